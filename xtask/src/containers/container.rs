//! A container: what it is made of, and how it is started on this machine.

use super::images::Layer;
use super::profile::{ProfileOf, Profiles};
use crate::programs::program_cases::{ProgramCases, ProgramRun};
use anyhow::Context;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

/// The user of a container that is not root's.
pub(super) const ORDINARY: u32 = 1000;

/// A folder of this machine inside the container.
#[derive(Debug, Clone)]
pub(super) struct ContainerMount {
    pub(super) from: PathBuf,
    pub(super) at: String,
    pub(super) is_readonly: bool,
}

/// What a container engine is told.
#[derive(Debug, Clone)]
pub(crate) struct ContainerSpec {
    /// The lowest one first.
    pub(super) layers: Vec<Layer>,
    pub(super) volumes: Vec<ContainerMount>,
    /// Folders of their own in memory.
    pub(super) tmpfs: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) args: Vec<String>,
    pub(super) cwd: String,
    pub(crate) uid: u32,
    pub(super) no_new_privileges: bool,
    pub(super) is_readonly: bool,
    /// Without any: not even those that a set-uid program would get.
    pub(super) has_capabilities: bool,
    pub(crate) profile: ProfileOf,
}

impl ContainerSpec {
    /// A container of these layers as an engine starts it without options.
    pub(super) fn new(layers: Vec<Layer>) -> Self {
        Self {
            layers,
            volumes: Vec::new(),
            tmpfs: Vec::new(),
            env: vec![("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned())],
            args: Vec::new(),
            cwd: "/".to_owned(),
            uid: 0,
            no_new_privileges: false,
            is_readonly: false,
            has_capabilities: true,
            profile: ProfileOf::Docker,
        }
    }

    pub(crate) fn set_env(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn mount(&mut self, from: &Path, at: &str, is_readonly: bool) {
        self.volumes.push(ContainerMount { from: from.to_path_buf(), at: at.to_owned(), is_readonly });
    }

    /// In words, for the name of a case.
    pub(super) fn describe(&self) -> String {
        let mut words = vec![if self.uid == 0 { "root" } else { "uid 1000" }];
        words.extend(self.no_new_privileges.then_some("no new privileges"));
        words.extend(self.is_readonly.then_some("read-only"));
        words.extend((!self.has_capabilities).then_some("no capabilities"));
        words.join(", ")
    }

    /// Runs the container to its end. `folder` is emptied; it lies on a disk.
    pub(super) fn run(&self, cases: &ProgramCases, profiles: &Profiles, folder: &Path) -> anyhow::Result<ProgramRun> {
        crate::paths::fresh_dir(folder)?;
        for name in ["upper", "work", "rootfs", "state"] {
            fs::create_dir(folder.join(name))?;
        }
        // The root of the top layer is the container's root.
        chown(folder.join("upper"), Some(0), Some(0))?;
        self.configure(profiles, folder)?;
        let lower: Vec<_> = self.layers.iter().rev().map(|layer| layer.folder.to_string_lossy().into_owned()).collect();
        let folder = folder.to_str().context("the cache's path is not UTF-8")?;
        cases.run_outside(&[&SESSION[..], &[START, folder, &lower.join(":")]].concat())
    }

    /// Writes config.json of the OCI's runtime specification. Returns it.
    pub(super) fn configure(&self, profiles: &Profiles, folder: &Path) -> anyhow::Result<Value> {
        let mut config = self.config(folder);
        let file = folder.join("config.json");
        fs::write(&file, config.to_string())?;
        // Which calls are allowed depends on the capabilities.
        if let Some(filter) = profiles.filter(&file, self.profile)? {
            config["linux"]["seccomp"] = filter;
            fs::write(&file, config.to_string())?;
        }
        Ok(config)
    }

    /// The same without the filter.
    fn config(&self, folder: &Path) -> Value {
        let capabilities = if self.has_capabilities { &CAPABILITIES[..] } else { &[] };
        // An ordinary user has none until it executes a set-uid program.
        let held = if self.uid == 0 { capabilities } else { &[] };
        let env: Vec<_> = self.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let sandbox = if self.profile == ProfileOf::Sandbox { &SANDBOX[..] } else { &[] };
        let args: Vec<_> = sandbox.iter().copied().chain(self.args.iter().map(String::as_str)).collect();
        json!({
            "ociVersion": "1.0.2",
            "root": { "path": folder.join("rootfs"), "readonly": self.is_readonly },
            "hostname": "container",
            "process": {
                "user": { "uid": self.uid, "gid": self.uid },
                "args": args,
                "env": env,
                "cwd": self.cwd,
                "capabilities": { "bounding": capabilities, "effective": held, "permitted": held },
                "noNewPrivileges": self.no_new_privileges,
            },
            "mounts": self.mounts(),
            "linux": {
                "namespaces": NAMESPACES.map(|name| json!({ "type": name })),
                "maskedPaths": MASKED,
                "readonlyPaths": READONLY,
            },
        })
    }

    /// Docker's own mounts, then the volumes.
    fn mounts(&self) -> Vec<Value> {
        let own = OWN_MOUNTS.iter().map(|(at, kind, options)| {
            let options: Vec<_> = options.split(',').collect();
            json!({ "destination": at, "type": kind, "source": kind, "options": options })
        });
        let tmpfs = self.tmpfs.iter().map(
            |at| json!({ "destination": at, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "noexec", "mode=1777"] }),
        );
        let volumes = self.volumes.iter().map(|volume| {
            let access = if volume.is_readonly { "ro" } else { "rw" };
            json!({ "destination": volume.at, "type": "bind", "source": volume.from, "options": ["rbind", "rprivate", access] })
        });
        own.chain(tmpfs).chain(volumes).collect()
    }
}

/// Sets the filter of [`ProfileOf::Sandbox`] inside the container.
const SANDBOX: [&str; 4] = ["/check/xtask", "sandbox", "--docker", "--"];

/// The capabilities that Docker leaves to a container by default.
const CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];
const NAMESPACES: [&str; 6] = ["mount", "network", "uts", "pid", "ipc", "cgroup"];
const MASKED: [&str; 8] =
    ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/scsi", "/sys/firmware"];
const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
const OWN_MOUNTS: [(&str, &str, &str); 7] = [
    ("/proc", "proc", "nosuid,noexec,nodev"),
    ("/dev", "tmpfs", "nosuid,strictatime,mode=755,size=65536k"),
    ("/dev/pts", "devpts", "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"),
    ("/sys", "sysfs", "nosuid,noexec,nodev,ro"),
    ("/sys/fs/cgroup", "cgroup", "nosuid,noexec,nodev,ro"),
    ("/dev/mqueue", "mqueue", "nosuid,noexec,nodev"),
    ("/dev/shm", "tmpfs", "nosuid,noexec,nodev,mode=1777,size=67108864"),
];

/// Mounts and processes of a session end with its first process, however that ends.
const SESSION: [&str; 8] = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"];
/// Arguments: the container's folder, the lower layers. A container needs a machine with control
/// groups of version 2 alone, and a root of its own above the layers.
const START: &str = "set -e
fail() { echo \"no container can be started here: $1\" >&2; exit 99; }
mount --make-rprivate / || fail 'no mount namespace'
umount -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup || fail 'control groups cannot be mounted'
mount -t tmpfs tmpfs \"$0/state\" || fail 'no tmpfs can be mounted'
mount -t overlay overlay -o \"lowerdir=$1,upperdir=$0/upper,workdir=$0/work\" \"$0/rootfs\" || fail 'no overlay can be mounted'
cd \"$0\" && exec crun --root \"$0/state\" --cgroup-manager=disabled run container";
