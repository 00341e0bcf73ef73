//! Which container runtime has started this.

use std::env;
use std::fs;
use std::path::Path;

/// A runtime, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerRuntime {
    GVisor,
    Kubernetes,
    Docker,
    Podman,
    SystemdNspawn,
    Lxc,
    /// One that only says that it is a container.
    Other,
}

/// What containers are told by.
#[derive(Debug, Default)]
struct ContainerTraces {
    /// `/proc/version`
    version: String,
    /// Variable `container`, of this process or of process 1.
    variable: String,
    has_kubernetes_service: bool,
    has_dockerenv: bool,
    has_containerenv: bool,
    /// `/proc/1/cgroup`
    cgroup: String,
}

impl ContainerRuntime {
    pub(super) fn here() -> Option<Self> {
        let text = |path: &str| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let of_init = text("/proc/1/environ").split('\0').find_map(|line| line.strip_prefix("container=").map(str::to_owned));
        Self::of(&ContainerTraces {
            version: text("/proc/version"),
            variable: env::var("container").ok().or(of_init).unwrap_or_default(),
            has_kubernetes_service: env::var_os("KUBERNETES_SERVICE_HOST").is_some()
                || Path::new("/var/run/secrets/kubernetes.io").exists(),
            has_dockerenv: Path::new("/.dockerenv").exists(),
            has_containerenv: Path::new("/run/.containerenv").exists(),
            cgroup: text("/proc/1/cgroup"),
        })
    }

    fn of(traces: &ContainerTraces) -> Option<Self> {
        let is_in = |name: &str| traces.cgroup.contains(name);
        Some(match () {
            () if traces.version.contains("gVisor") => Self::GVisor,
            () if traces.has_kubernetes_service || is_in("kubepods") => Self::Kubernetes,
            () if traces.has_containerenv || traces.variable == "podman" || is_in("libpod") => Self::Podman,
            () if traces.has_dockerenv || traces.variable == "docker" || is_in("docker") => Self::Docker,
            () if traces.variable == "systemd-nspawn" => Self::SystemdNspawn,
            () if traces.variable.starts_with("lxc") || is_in("lxc") => Self::Lxc,
            () if !traces.variable.is_empty() => Self::Other,
            () => return None,
        })
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::GVisor => "gVisor",
            Self::Kubernetes => "Kubernetes",
            Self::Docker => "Docker",
            Self::Podman => "podman",
            Self::SystemdNspawn => "systemd-nspawn",
            Self::Lxc => "LXC",
            Self::Other => "a container",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_told_by_what_they_leave() {
        let of = |traces: ContainerTraces| ContainerRuntime::of(&traces).map(ContainerRuntime::name);
        let default = ContainerTraces::default;
        assert_eq!(of(default()), None);
        assert_eq!(of(ContainerTraces { has_dockerenv: true, ..default() }), Some("Docker"));
        assert_eq!(of(ContainerTraces { has_dockerenv: true, has_kubernetes_service: true, ..default() }), Some("Kubernetes"));
        assert_eq!(of(ContainerTraces { cgroup: "0::/../libpod-12.scope".into(), ..default() }), Some("podman"));
        assert_eq!(of(ContainerTraces { variable: "oci".into(), ..default() }), Some("a container"));
        assert_eq!(of(ContainerTraces { version: "Linux version 4.19.0-gVisor".into(), ..default() }), Some("gVisor"));
    }
}
