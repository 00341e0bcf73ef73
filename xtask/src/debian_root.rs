//! Folders with Debian in them, made by mmdebstrap from the mirror of this machine's own packages.

use crate::{apt, paths};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How its packages are put into a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packages {
    /// Installed, with apt.
    Installed,
    /// Unpacked only: no script of theirs runs.
    Unpacked,
}

/// Becomes a program in the root, in a mount namespace of its own: the mounts end with it.
pub(crate) const ENTER: &str = "mount --rbind /proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" \"$@\"";

/// The root of this name in the cache. It is made if it is not there with just these packages.
/// `finish` completes it.
pub(crate) fn cached(
    name: &str,
    suite: &str,
    how: Packages,
    packages: &str,
    finish: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let root = paths::cache().join(name);
    let made = root.with_extension("packages");
    if fs::read_to_string(&made).is_ok_and(|text| text == packages) && root.exists() {
        return Ok(root);
    }
    // A root that is half made is not taken for the one that was there.
    if made.exists() {
        fs::remove_file(&made)?;
    }
    make(&root, suite, how, packages)?;
    finish(&root)?;
    fs::write(made, packages)?;
    Ok(root)
}

/// Makes a root in place of what is there.
pub(crate) fn make(root: &Path, suite: &str, how: Packages, packages: &str) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a root of Debian can be made by root only");
    apt::ensure_installed(&["mmdebstrap", "util-linux"])?;
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("removing {}", root.display()))?;
    }
    fs::create_dir_all(paths::cache())?;
    println!("making a root of Debian {suite} with {packages}");
    let mut command = Command::new("mmdebstrap");
    // A mirror that is a snapshot has a release file of an earlier day.
    command.args(["--mode=root", "--aptopt=Acquire::Check-Valid-Until \"false\""]).arg(format!("--include={packages}"));
    match how {
        Packages::Installed => command.arg("--variant=apt"),
        Packages::Unpacked => command.args(["--variant=extract", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]),
    };
    let out = command.arg(suite).arg(root).arg(apt::mirror()?).output().context("starting mmdebstrap")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "Debian {suite} cannot be had from this machine's mirror: mmdebstrap ended with {}:\n{said}", out.status);
    Ok(())
}
