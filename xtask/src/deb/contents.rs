//! What the package must contain, and how large it may be.

use super::package::{BuiltPackage, LIMIT_BYTES};
use anyhow::{Context, ensure};
use std::fs;
use std::process::Command;

/// Files that users look for.
const FILES: [&str; 19] = [
    "usr/bin/uringlet",
    "usr/lib/uringlet/liburinglet.so",
    "usr/lib/uringlet/liburing/liburing.so.2",
    "usr/share/man/man1/uringlet.1.gz",
    "usr/share/man/man1/uringlet-run.1.gz",
    "usr/share/man/man1/uringlet-doctor.1.gz",
    "usr/share/man/man1/uringlet-stat.1.gz",
    "usr/share/man/man1/uringlet-ublk-add.1.gz",
    "usr/share/bash-completion/completions/uringlet",
    "usr/share/zsh/vendor-completions/_uringlet",
    "usr/share/fish/vendor_completions.d/uringlet.fish",
    "usr/include/uringlet.h",
    "usr/lib/x86_64-linux-gnu/liburinglet.a",
    "usr/lib/x86_64-linux-gnu/pkgconfig/uringlet.pc",
    "usr/share/doc/uringlet/copyright",
    "usr/share/doc/uringlet/changelog.gz",
    "usr/share/doc/uringlet/docs/environment.md",
    "usr/share/doc/uringlet/examples/when-blocked.conf",
    "usr/share/doc/uringlet/examples/container/Dockerfile",
];

pub(super) fn check(package: &BuiltPackage) -> anyhow::Result<()> {
    let size = fs::metadata(&package.deb)?.len();
    ensure!(size <= LIMIT_BYTES, "the package has {size} bytes");
    let out = Command::new("dpkg-deb").arg("-c").arg(&package.deb).output().context("starting dpkg-deb")?;
    let listing = String::from_utf8_lossy(&out.stdout);
    for file in FILES {
        ensure!(listing.lines().any(|line| line.ends_with(&format!(" ./{file}"))), "the package lacks {file}");
    }
    let out = Command::new("tar").arg("-tzf").arg(&package.tarball).output().context("starting tar")?;
    let listing = String::from_utf8_lossy(&out.stdout);
    ensure!(listing.contains("/lib/uringlet/liburinglet.so\n"), "the tarball lacks the library");
    Ok(())
}
