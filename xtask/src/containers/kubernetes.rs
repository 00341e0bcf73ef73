//! A pod of Kubernetes as containers that share volumes.

use super::built_image::{self, only, strings};
use super::container::ContainerSpec;
use super::images;
use super::ways::Yard;
use crate::paths;
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::os::unix::fs::chown;
use std::path::PathBuf;

/// The containers of a pod: those of its beginning first.
pub(super) fn containers(yard: &mut Yard, pod: &Value) -> anyhow::Result<Vec<ContainerSpec>> {
    ensure!(pod["kind"] == "Pod" && pod["apiVersion"] == "v1", "not a pod");
    let spec = &pod["spec"];
    only(spec, &["restartPolicy", "securityContext", "initContainers", "containers", "volumes"])?;
    let volumes = volumes(yard, spec)?;
    let all = ["initContainers", "containers"].into_iter().filter_map(|key| spec[key].as_array()).flatten();
    all.map(|described| container(yard, spec, described, &volumes)).collect()
}

/// A volume: its name, its folder, and whether no container can write to it.
type PodVolume = (String, PathBuf, bool);

fn volumes(yard: &Yard, spec: &Value) -> anyhow::Result<Vec<PodVolume>> {
    let group = number(&spec["securityContext"]["fsGroup"])?;
    let each = |volume: &Value| {
        let name = volume["name"].as_str().context("a volume without a name")?.to_owned();
        if let Some(image) = volume.get("image") {
            ensure!(image["reference"] == "uringlet", "another image than uringlet's");
            return Ok((name, yard.image.clone(), true));
        }
        ensure!(volume.get("emptyDir").or(volume.get("persistentVolumeClaim")).is_some(), "a volume that is not emulated here");
        let folder = images::work().join(format!("volume-{name}"));
        paths::fresh_dir(&folder)?;
        chown(&folder, Some(group), Some(group))?;
        Ok((name, folder, false))
    };
    spec["volumes"].as_array().into_iter().flatten().map(each).collect()
}

fn container(yard: &mut Yard, spec: &Value, described: &Value, volumes: &[PodVolume]) -> anyhow::Result<ContainerSpec> {
    only(described, &["name", "image", "command", "args", "workingDir", "env", "securityContext", "volumeMounts"])?;
    let mut image = built_image::image(yard, described["image"].as_str().context("no image")?)?;
    if described.get("command").is_some() {
        image.entrypoint = strings(&described["command"]);
        image.command = Vec::new();
    }
    image.command.extend(strings(&described["args"]));
    let mut container = image.container();
    yard.give_data(&mut container)?;
    container.volumes.retain(|volume| volume.at == images::SCRIPTS);
    if let Some(cwd) = described["workingDir"].as_str() {
        cwd.clone_into(&mut container.cwd);
    } else {
        "/".clone_into(&mut container.cwd);
    }
    for variable in described["env"].as_array().into_iter().flatten() {
        let text = |key: &str| variable[key].as_str().with_context(|| format!("a variable without {key}"));
        container.set_env(text("name")?, text("value")?);
    }
    for mount in described["volumeMounts"].as_array().into_iter().flatten() {
        let (_, folder, is_image) = volumes.iter().find(|(name, ..)| mount["name"] == name.as_str()).context("a mount of no volume")?;
        let at = mount["mountPath"].as_str().context("a mount without a path")?;
        container.mount(folder, at, *is_image || mount["readOnly"] == true);
    }
    restrict(&mut container, &spec["securityContext"], &described["securityContext"])?;
    Ok(container)
}

/// The security contexts of pod and container.
fn restrict(container: &mut ContainerSpec, pod: &Value, own: &Value) -> anyhow::Result<()> {
    only(pod, &["runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile"])?;
    only(own, &["allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"])?;
    ensure!(pod["seccompProfile"]["type"] == "RuntimeDefault", "another profile than the engine's");
    ensure!(pod["runAsUser"] == pod["runAsGroup"], "user and group have different numbers");
    container.uid = number(&pod["runAsUser"])?;
    ensure!(pod["runAsNonRoot"] != true || container.uid != 0, "the container's user is root");
    container.no_new_privileges = own["allowPrivilegeEscalation"] == false;
    container.is_readonly = own["readOnlyRootFilesystem"] == true;
    for capability in strings(&own["capabilities"]["drop"]) {
        match capability.as_str() {
            "ALL" => container.has_capabilities = false,
            other => bail!("dropping {other} is not emulated here"),
        }
    }
    Ok(())
}

fn number(value: &Value) -> anyhow::Result<u32> {
    Ok(u32::try_from(value.as_u64().context("not a number")?)?)
}
