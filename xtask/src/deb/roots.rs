//! The package in fresh roots: installed, used by an ordinary user where io_uring kills, removed.

use crate::debian_root::{self, ENTER, Packages};
use crate::{apt, paths, stream};
use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(super) const SUITES: [&str; 2] = ["bookworm", "testing"];

/// What is not the package's: the packager's own records, and the cache of a user without a home.
const RECORDS: [&str; 5] = ["var/lib/dpkg", "var/log", "var/cache", "etc/ld.so.cache", "tmp/"];

/// As an ordinary user. The program makes a ring by libc's syscall(), or is linked to liburing.
const USED: [(&str, &str); 6] = [
    ("uringlet run -- /tmp/dynamic", "engine preloaded"),
    ("uringlet run -- /tmp/fixed", "engine preloaded"),
    ("uringlet run --when-blocked -- /tmp/dynamic", "engine preloaded"),
    ("/usr/share/doc/uringlet/examples/blocked-or-not.sh /tmp/dynamic", "engine preloaded"),
    ("LD_PRELOAD=/usr/lib/uringlet/liburinglet.so URINGLET=when-blocked /tmp/dynamic", "engine preloaded engine"),
    ("LD_LIBRARY_PATH=/usr/lib/uringlet/liburing /tmp/linked", "engine"),
];

/// One root, from its making to the package's removal.
pub(super) fn check(suite: &str, deb: &Path) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a root can be made by root only");
    apt::ensure_installed(&["mmdebstrap", "util-linux", "gcc", "libc6-dev", "liburing-dev"])?;
    let root = paths::cache().join(format!("deb-root-{suite}"));
    debian_root::make(&root, suite, Packages::Installed, "libgcc-s1")?;
    let before = listing(&root)?;
    fs::copy(deb, root.join("var/cache/uringlet.deb"))?;
    inside(&root, &["dpkg", "-i", "/var/cache/uringlet.deb"])?;
    programs(&root)?;
    for (command, wanted) in USED {
        let told = as_user(&root, command)?;
        ensure!(told.starts_with(wanted), "`{command}` says `{}`, not `{wanted}`", told.trim());
    }
    inside(&root, &["dpkg", "--purge", "uringlet"])?;
    for program in ["dynamic", "fixed", "linked"] {
        fs::remove_file(root.join("tmp").join(program))?;
    }
    let after = listing(&root)?;
    let left: Vec<_> = after.symmetric_difference(&before).collect();
    ensure!(left.is_empty(), "the package leaves or takes files: {left:?}");
    fs::remove_dir_all(&root).context("removing the root")
}

/// All files but [`RECORDS`].
fn listing(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let out = Command::new("find").arg(root).args(["-xdev", "-printf", "%P\n"]).output().context("starting find")?;
    let is_record = |path: &&str| RECORDS.iter().any(|record| path.starts_with(record));
    Ok(String::from_utf8_lossy(&out.stdout).lines().filter(|path| !is_record(path)).map(str::to_owned).collect())
}

/// Test programs, made by this machine's compiler: its libc is not newer than the roots'.
fn programs(root: &Path) -> anyhow::Result<()> {
    let sources = paths::root().join("crates");
    let (backend, linked) = (sources.join("cli/tests/c/backend.c"), sources.join("liburing/tests/c/whose_ring.c"));
    for (name, source, option) in [("dynamic", &backend, "-O1"), ("fixed", &backend, "-static"), ("linked", &linked, "-luring")] {
        let mut compiler = Command::new("cc");
        compiler.args(["-D_GNU_SOURCE", "-O1", "-w", "-o"]).arg(root.join("tmp").join(name)).arg(source).arg(option);
        ensure!(compiler.status().context("starting cc")?.success(), "{} does not compile", source.display());
    }
    Ok(())
}

/// A command of root's in the root.
fn inside(root: &Path, command: &[&str]) -> anyhow::Result<()> {
    let root = root.to_str().context("the cache's path is not UTF-8")?;
    stream::sh("unshare", &[&["--mount", "sh", "-c", ENTER, root], command].concat())
}

/// What a command prints that nobody runs in the root. An io_uring call of the kernel's kills.
fn as_user(root: &Path, command: &str) -> anyhow::Result<String> {
    let mut sandbox = Command::new(paths::SELF_EXE);
    sandbox.args(["sandbox", "--kill", "--", "unshare", "--mount", "sh", "-c", ENTER]).arg(root);
    sandbox
        .args(["runuser", "-u", "nobody", "--", "sh", "-c", command])
        .env("HOME", "/nonexistent")
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    let out = sandbox.output().context("starting the sandbox")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(out.status.success(), "`{command}` ended with {}: {text}{}", out.status, String::from_utf8_lossy(&out.stderr));
    Ok(text)
}
