//! The ways in: how a program in a container gets the engine.

use super::container::{ContainerSpec, ORDINARY};
use super::images::{self, Layer, Root, SCRIPTS, Tarball, URINGLET};
use super::profile::{ProfileOf, Profiles};
use crate::paths;
use crate::programs::program_cases::{ProgramCases, ProgramRun};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// How the program gets the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WayIn {
    /// It does not.
    None,
    /// LD_PRELOAD.
    Preload,
    /// `uringlet run`.
    Run,
    /// The drop-in liburing.so.2, by LD_LIBRARY_PATH.
    DropIn,
    /// `/etc/ld.so.preload` of the image.
    WholeImage,
}

impl WayIn {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "without uringlet",
            Self::Preload => "LD_PRELOAD",
            Self::Run => "uringlet run",
            Self::DropIn => "drop-in liburing",
            Self::WholeImage => "/etc/ld.so.preload",
        }
    }
}

/// The user that a program is in its container, and what it may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContainerRights {
    uid: u32,
    no_new_privileges: bool,
    is_readonly: bool,
}

const fn rights(uid: u32, no_new_privileges: bool, is_readonly: bool) -> ContainerRights {
    ContainerRights { uid, no_new_privileges, is_readonly }
}

/// Each pair of two properties is among the first four.
pub(crate) const RIGHTS: [ContainerRights; 8] = [
    rights(ORDINARY, true, true),
    rights(0, false, true),
    rights(0, true, false),
    rights(ORDINARY, false, false),
    rights(ORDINARY, true, false),
    rights(0, false, false),
    rights(0, true, true),
    rights(ORDINARY, false, true),
];

/// Everything that containers are made of.
pub(crate) struct Yard {
    pub(crate) profiles: Profiles,
    /// The files of the image of uringlet.
    pub(super) image: PathBuf,
    pub(super) uringlet: Layer,
    preload: Layer,
    roots: HashMap<&'static str, Layer>,
    folder: PathBuf,
    scripts: PathBuf,
}

impl Yard {
    /// Makes all but the roots.
    pub(crate) fn prepare(tarball: Tarball) -> anyhow::Result<Self> {
        let folder = images::work();
        paths::fresh_dir(&folder)?;
        let image = images::uringlet_image(tarball)?;
        let preload = images::file_layer("preload", "/etc/ld.so.preload", &format!("{URINGLET}/lib/uringlet/liburinglet.so\n"))?;
        let uringlet = images::uringlet_layer(&image)?;
        let profiles = Profiles::build(&folder)?;
        let scripts = copied_scripts(&folder, &profiles)?;
        Ok(Self { profiles, image, uringlet, preload, roots: HashMap::new(), folder, scripts })
    }

    /// The layer of a root.
    pub(crate) fn root(&mut self, root: Root) -> anyhow::Result<Layer> {
        if let Some(known) = self.roots.get(root.name()) {
            return Ok(known.clone());
        }
        let layer = root.layer()?;
        self.roots.insert(root.name(), layer.clone());
        Ok(layer)
    }

    /// A container of a program in this image, with its folder /data and the scripts.
    pub(crate) fn container(&self, image: &[Layer], way: WayIn, rights: ContainerRights, args: &[String]) -> anyhow::Result<ContainerSpec> {
        let mut layers = image.to_vec();
        if way != WayIn::None {
            layers.push(self.uringlet.clone());
        }
        if way == WayIn::WholeImage {
            layers.push(self.preload.clone());
        }
        let mut container = ContainerSpec::new(layers);
        container.uid = rights.uid;
        container.no_new_privileges = rights.no_new_privileges;
        container.is_readonly = rights.is_readonly;
        container.args = args.to_vec();
        match way {
            WayIn::Preload => container.set_env("LD_PRELOAD", &format!("{URINGLET}/lib/uringlet/liburinglet.so")),
            WayIn::DropIn => container.set_env("LD_LIBRARY_PATH", &format!("{URINGLET}/lib/uringlet/liburing")),
            WayIn::Run => {
                let run = [&format!("{URINGLET}/bin/uringlet"), "run", "--require", "--"].map(str::to_owned);
                container.args.splice(0..0, run);
            }
            WayIn::None | WayIn::WholeImage => {}
        }
        self.give_data(&mut container)?;
        Ok(container)
    }

    /// An empty folder at /data that belongs to the container's user, and the scripts.
    pub(crate) fn give_data(&self, container: &mut ContainerSpec) -> anyhow::Result<()> {
        let data = self.data();
        paths::fresh_dir(&data)?;
        chown(&data, Some(container.uid), Some(container.uid))?;
        container.mount(&data, "/data", false);
        container.mount(&self.scripts, SCRIPTS, true);
        container.cwd = "/data".to_owned();
        Ok(())
    }

    /// The folder that is /data in the container that runs.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(crate) fn run(&self, cases: &ProgramCases, container: &ContainerSpec) -> anyhow::Result<ProgramRun> {
        container.run(cases, &self.profiles, &self.folder.join("container"))
    }

    /// config.json of a container.
    pub(super) fn config(&self, container: &ContainerSpec) -> anyhow::Result<Value> {
        container.configure(&self.profiles, &self.folder)
    }

    /// Whether this machine can start a container at all.
    pub(crate) fn probe(&self, cases: &ProgramCases, root: &Layer, profile: ProfileOf) -> anyhow::Result<()> {
        let args = ["/bin/true".to_owned()];
        let mut container = self.container(std::slice::from_ref(root), WayIn::None, RIGHTS[5], &args)?;
        container.profile = profile;
        self.run(cases, &container)?.ok().map(drop).context("a container that runs /bin/true")
    }

    pub(crate) fn remove(self) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.folder).context("removing the containers' folders")
    }
}

/// The programs' output, if the container ended well. The library has nothing to say there.
pub(crate) fn silent(run: ProgramRun) -> anyhow::Result<String> {
    let output = run.ok()?;
    let said = output.lines().find(|line| line.starts_with("uringlet") || line.contains("ld.so"));
    ensure!(said.is_none(), "it says: {}", said.unwrap_or_default());
    Ok(output)
}

/// Scripts that any user may read, and the sandbox.
fn copied_scripts(folder: &Path, profiles: &Profiles) -> anyhow::Result<PathBuf> {
    let target = folder.join("scripts");
    paths::fresh_dir(&target)?;
    let conformance = paths::root().join("conformance");
    let scripts = fs::read_dir(conformance.join("containers"))?.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    for from in scripts.chain([conformance.join("node-fs.mjs")]) {
        let name = from.file_name().context("a script has a name")?;
        copy_executable(&from, &target.join(name))?;
    }
    if profiles.docker() == ProfileOf::Sandbox {
        copy_executable(Path::new(paths::SELF_EXE), &target.join("xtask"))?;
    }
    fs::set_permissions(&target, Permissions::from_mode(0o755))?;
    Ok(target)
}

fn copy_executable(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    fs::set_permissions(to, Permissions::from_mode(0o755)).context("making a file executable")
}
