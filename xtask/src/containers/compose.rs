//! A service of a compose file as a container.

use super::built_image::{only, read, strings};
use super::container::ContainerSpec;
use super::dockerfile;
use super::ways::Yard;
use anyhow::{Context, ensure};
use serde_json::Value;

/// The container of the file's only service.
pub(super) fn container(yard: &mut Yard, file: &Value) -> anyhow::Result<ContainerSpec> {
    let services = file["services"].as_object().context("no services")?;
    let service = services.values().next().context("no service")?;
    let known = ["build", "user", "read_only", "tmpfs", "security_opt", "cap_drop", "environment", "volumes"];
    only(service, &known)?;
    ensure!(service["build"]["context"] == ".", "the example is built in another folder");
    let dockerfile = service["build"]["dockerfile"].as_str().context("no Dockerfile")?;
    let mut container = dockerfile::build(yard, &read(dockerfile)?)?.container();
    let user = service["user"].as_str().context("no user")?;
    let (uid, gid) = user.split_once(':').context("a user without a group")?;
    ensure!(uid == gid, "user and group have different numbers");
    container.uid = uid.parse()?;
    container.is_readonly = service["read_only"] == true;
    container.tmpfs = strings(&service["tmpfs"]);
    for option in strings(&service["security_opt"]) {
        ensure!(option == "no-new-privileges:true", "`{option}` is not emulated here");
        container.no_new_privileges = true;
    }
    for capability in strings(&service["cap_drop"]) {
        ensure!(capability == "ALL", "dropping {capability} is not emulated here");
        container.has_capabilities = false;
    }
    for (name, value) in service["environment"].as_object().into_iter().flatten() {
        container.set_env(name, value.as_str().context("a variable that is no text")?);
    }
    yard.give_data(&mut container)?;
    for volume in strings(&service["volumes"]) {
        let (name, target) = volume.split_once(':').context("a volume without a target")?;
        ensure!(file["volumes"].get(name).is_some(), "the file has no volume `{name}`");
        let data = yard.data();
        container.mount(&data, target, false);
    }
    Ok(container)
}
