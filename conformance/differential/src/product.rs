//! The built product, and whether the kernel provides a ring.

use anyhow::{Context, ensure};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use uringlet_abi::UringParams;

/// The error of io_uring_setup(2), if the kernel provides no ring.
pub(crate) fn no_kernel_ring() -> Option<io::Error> {
    const SYS_IO_URING_SETUP: libc::c_long = 425;
    let mut params = UringParams::default();
    // SAFETY: the kernel writes the 120 bytes of the parameters; the descriptor is ours to close.
    unsafe {
        let fd = libc::syscall(SYS_IO_URING_SETUP, 4, std::ptr::from_mut(&mut params));
        if fd < 0 {
            return Some(io::Error::last_os_error());
        }
        libc::close(fd as i32);
    }
    None
}

/// Builds the release. Returns the paths of `uringlet` and `xtask`.
pub(crate) fn build() -> anyhow::Result<(PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packages = ["-p", "uringlet-cli", "-p", "uringlet-attach", "-p", "xtask"];
    let status = Command::new("cargo").args(["build", "--release", "--quiet"]).args(packages).current_dir(&root).status();
    ensure!(status.context("starting cargo")?.success(), "cargo could not build uringlet");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), |dir| root.join(dir));
    let built = target.join("release").canonicalize().context("the build directory")?;
    Ok((built.join("uringlet"), built.join("xtask")))
}
