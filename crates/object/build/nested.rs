//! The cargo that builds the object.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, variable};

const GNU: &str = "x86_64-unknown-linux-gnu";

/// What the build of the embedding program decides for itself alone. Flags such as
/// `target-cpu=native` would put registers into the object that it does not save.
fn is_of_outer_build(name: &str) -> bool {
    const NAMES: [&str; 6] = ["RUSTFLAGS", "CARGO_TARGET_DIR", "RUSTC_WORKSPACE_WRAPPER", "RUSTDOCFLAGS", "CARGO_MAKEFLAGS", "MAKEFLAGS"];
    const PREFIXES: [&str; 4] = ["CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_FEATURE_", "CARGO_CFG_"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Builds the object in the workspace `sources`. Returns its path.
pub(crate) fn build(sources: &Path, out: &Path) -> Result<PathBuf, Failure> {
    let target = target()?;
    let folder = out.join("target");
    let mut cargo = Command::new(variable("CARGO")?);
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_outer_build)) {
        cargo.env_remove(name);
    }
    // Set, though empty: it comes before the flags of all configuration files.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", if target == GNU { "" } else { "-Ctarget-feature=-crt-static" });
    cargo.args(["build", "--release", "--locked", "--package", "uringlet-attach", "--lib", "--target", &target]);
    cargo.args(["--config", "profile.release.strip=true", "--config", "profile.release.debug=false"]);
    cargo.arg("--manifest-path").arg(sources.join("Cargo.toml")).arg("--target-dir").arg(&folder);
    let done = cargo.output().map_err(|error| format!("starting cargo: {error}"))?;
    if !done.status.success() {
        return Err(format!("building liburinglet.so: cargo ended with {}\n{}", done.status, String::from_utf8_lossy(&done.stderr)));
    }
    Ok(folder.join(&target).join("release/liburinglet_attach.so"))
}

/// The object needs no libc, so that of the host does: its linker is there, and musl's target makes
/// shared objects only with other flags.
fn target() -> Result<String, Failure> {
    let host = variable("HOST")?;
    if host == GNU { Ok(host) } else { variable("TARGET") }
}
