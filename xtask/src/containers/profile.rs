//! The seccomp filters of containers, made as Docker makes them: by its own Go module.

use crate::paths;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Go's own packages put it.
const GO: [&str; 2] = ["go", "/usr/local/go/bin/go"];
/// Of the package golang-github-containers-common.
const PODMAN: &str = "/usr/share/containers/seccomp.json";

/// The engine whose default profile filters the container's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProfileOf {
    /// io_uring answers EPERM.
    Docker,
    /// io_uring answers ENOSYS.
    Podman,
    /// The list of `xtask sandbox --docker`, for a machine without a Go compiler.
    Sandbox,
    /// None has any: the kernel's ring works.
    Nobody,
}

/// The program that makes them. There is none without a Go compiler.
#[derive(Debug)]
pub(crate) struct Profiles {
    program: Option<PathBuf>,
}

impl Profiles {
    /// Builds it.
    pub(super) fn build(folder: &Path) -> anyhow::Result<Self> {
        let works = |go: &&&str| Command::new(go).arg("version").output().is_ok_and(|out| out.status.success());
        let Some(go) = GO.iter().find(works) else { return Ok(Self { program: None }) };
        println!("building the program that makes the profiles of Docker and podman");
        let program = folder.join("profile");
        let mut build = Command::new(go);
        build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".");
        output(build.current_dir(paths::root().join("conformance/containers/profile")))?;
        Ok(Self { program: Some(program) })
    }

    /// Docker's, as near as this machine can make it.
    pub(crate) fn docker(&self) -> ProfileOf {
        if self.program.is_some() { ProfileOf::Docker } else { ProfileOf::Sandbox }
    }

    /// The filter of a container with this config.json, if the container's engine sets one.
    pub(super) fn filter(&self, config: &Path, whose: ProfileOf) -> anyhow::Result<Option<Value>> {
        let (profile, errno) = match whose {
            ProfileOf::Docker => (None, 1),
            ProfileOf::Podman => (Some(PODMAN), 38),
            ProfileOf::Sandbox | ProfileOf::Nobody => return Ok(None),
        };
        let program = self.program.as_ref().context("there is no Go compiler, which makes Docker's profile")?;
        let text = output(Command::new(program).arg(config).args(profile))?;
        let filter: Value = serde_json::from_slice(&text).context("the profile is no JSON")?;
        ensure!(filter["defaultErrnoRet"] == errno, "another default answer than {errno}: {}", filter["defaultErrnoRet"]);
        let has_rule = text.windows(8).any(|name| name == b"io_uring");
        ensure!(!has_rule, "the profile of {whose:?} has a rule for io_uring: the test shows nothing");
        Ok(Some(filter))
    }
}

/// The calls that a filter allows with some arguments at least.
pub(super) fn allowed(filter: &Value) -> Vec<&str> {
    let rules = filter["syscalls"].as_array().into_iter().flatten();
    let allowing = rules.filter(|rule| rule["action"] == "SCMP_ACT_ALLOW");
    allowing.filter_map(|rule| rule["names"].as_array()).flatten().filter_map(Value::as_str).collect()
}

fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let out = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{} ended with {}: {said}", command.get_program().display(), out.status);
    Ok(out.stdout)
}
