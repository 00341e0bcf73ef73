//! Debian testing in a folder: a libc newer than this machine's. Made once by mmdebstrap, as root.

use super::compare::{Place, scripts};
use crate::debian_root::{self, ENTER, Packages};
use crate::paths;
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installed in the root.
const PACKAGES: &str = "gcc,libc6-dev";
/// The folder of ours inside the root.
const INSIDE: &str = "harmless";

/// The first libc whose cancellation points are one function (`__syscall_cancel_arch`): 2.41.
/// Testing has a newer one.
const NEWER_LIBC: (u32, u32) = (2, 42);

/// The place of a script inside the root, with the scripts and this build of uringlet.
pub(super) fn place(script: &str, uringlet: &Path) -> anyhow::Result<Place> {
    ensure!(rustix::process::geteuid().is_root(), "a root of Debian testing can be made by root only");
    let root = made()?;
    let (version, newer) = (libc_version(&root)?, NEWER_LIBC);
    ensure!(version >= newer, "Debian testing has glibc {}.{}; {}.{} is wanted", version.0, version.1, newer.0, newer.1);
    let ours = root.join(INSIDE);
    paths::fresh_dir(&ours)?;
    copy_files(&scripts(), &ours)?;
    let sources = ours.join("c");
    fs::create_dir(&sources)?;
    copy_files(&paths::root().join("crates/cli/tests/c"), &sources)?;
    for file in [uringlet.to_path_buf(), uringlet.with_file_name("liburinglet_attach.so")] {
        fs::copy(&file, ours.join(file.file_name().context("a program without a name")?))?;
    }
    let inside = Path::new("/").join(INSIDE);
    let root = root.to_str().context("the cache's path is not UTF-8")?;
    let enter = ["unshare", "--mount", "sh", "-c", ENTER, root].map(str::to_owned).to_vec();
    Ok(Place {
        script: inside.join(format!("{script}.sh")),
        dir: ours.join("run"),
        seen_dir: inside.join("run"),
        uringlet: inside.join("uringlet"),
        enter,
    })
}

/// The version of the libc in the root.
fn libc_version(root: &Path) -> anyhow::Result<(u32, u32)> {
    let out = Command::new("chroot").arg(root).args(["getconf", "GNU_LIBC_VERSION"]).output().context("starting chroot")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let number = |word: &str| word.parse().ok();
    let version = text.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    let version = version.and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    version.with_context(|| format!("getconf in the root says `{}`", text.trim()))
}

fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// The root's folder; it is made if it is not there.
fn made() -> anyhow::Result<PathBuf> {
    debian_root::cached("testing-root", "testing", Packages::Installed, PACKAGES, |_| Ok(()))
}
