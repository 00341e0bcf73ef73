//! The package's files, as they lie in a root.

use super::package::VERSION;
use crate::{paths, stream};
use anyhow::{Context, ensure};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs and libraries: from the release folder, to the root.
const BINARIES: [(&str, &str); 5] = [
    ("uringlet", "usr/bin/uringlet"),
    ("liburinglet_attach.so", "usr/lib/uringlet/liburinglet.so"),
    ("liburing/liburing.so.2", "usr/lib/uringlet/liburing/liburing.so.2"),
    ("uringlet-bench-worker", "usr/lib/uringlet/uringlet-bench-worker"),
    ("uringlet-bench-pool", "usr/lib/uringlet/uringlet-bench-pool"),
];
/// Shells, and where Debian keeps their completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/uringlet"),
    ("zsh", "usr/share/zsh/vendor-completions/_uringlet"),
    ("fish", "usr/share/fish/vendor_completions.d/uringlet.fish"),
];
/// For C programs: from the checkout or the release folder, to the root.
const HEADER: [&str; 2] = ["crates/capi/uringlet.h", "usr/include/uringlet.h"];
const ARCHIVE: [&str; 2] = ["liburinglet.a", "usr/lib/x86_64-linux-gnu/liburinglet.a"];
const PKG_CONFIG: [&str; 2] = ["crates/capi/uringlet.pc.in", "usr/lib/x86_64-linux-gnu/pkgconfig/uringlet.pc"];
const MAN: &str = "usr/share/man/man1";
const DOC: &str = "usr/share/doc/uringlet";

/// Puts everything but the control file into `tree`.
pub(super) fn fill(tree: &Path) -> anyhow::Result<()> {
    let release = paths::target().join("release");
    for (from, to) in BINARIES {
        install(&release.join(from), &tree.join(to), 0o755)?;
        let stripped = tree.join(to);
        stream::sh("strip", &["--strip-unneeded", stripped.to_str().context("a path that is not UTF-8")?])?;
    }
    // Only the loader of static programs is executed.
    fs::set_permissions(tree.join(BINARIES[2].1), Permissions::from_mode(0o644))?;
    let uringlet = tree.join(BINARIES[0].1);
    for (shell, to) in COMPLETIONS {
        write(&tree.join(to), &output(Command::new(&uringlet).args(["completions", shell]))?)?;
    }
    output(Command::new(&uringlet).arg("man").arg(tree.join(MAN)))?;
    compress_all(&tree.join(MAN))?;
    for_c_programs(tree)?;
    documents(tree)
}

fn for_c_programs(tree: &Path) -> anyhow::Result<()> {
    let root = paths::root();
    install(&root.join(HEADER[0]), &tree.join(HEADER[1]), 0o644)?;
    install(&paths::target().join("release").join(ARCHIVE[0]), &tree.join(ARCHIVE[1]), 0o644)?;
    let text = fs::read_to_string(root.join(PKG_CONFIG[0]))?;
    let text = text.replace("@PREFIX@", "/usr").replace("@LIBDIR@", "${prefix}/lib/x86_64-linux-gnu").replace("@VERSION@", VERSION);
    write(&tree.join(PKG_CONFIG[1]), text.as_bytes())
}

fn documents(tree: &Path) -> anyhow::Result<()> {
    let doc = tree.join(DOC);
    let packaging = paths::root().join("packaging");
    install(&packaging.join("copyright"), &doc.join("copyright"), 0o644)?;
    install(&packaging.join("lintian-overrides"), &tree.join("usr/share/lintian/overrides/uringlet"), 0o644)?;
    let date = output(Command::new("git").args(["log", "-1", "--format=%cD"]).current_dir(paths::root()))?;
    let changelog = fs::read_to_string(packaging.join("changelog"))?;
    let changelog = changelog.replace("@VERSION@", VERSION).replace("@DATE@", String::from_utf8_lossy(&date).trim());
    write(&doc.join("changelog"), changelog.as_bytes())?;
    install(&paths::root().join("README.md"), &doc.join("README.md"), 0o644)?;
    for file in files(&paths::root().join("docs"))?.into_iter().filter(|file| file.extension().is_some_and(|end| end == "md")) {
        install(&file, &doc.join("docs").join(file.file_name().context("a file")?), 0o644)?;
    }
    for file in files(&packaging.join("examples"))? {
        let mode = if file.extension().is_some_and(|end| end == "sh") { 0o755 } else { 0o644 };
        install(&file, &doc.join("examples").join(file.file_name().context("a file")?), mode)?;
    }
    for file in files(&packaging.join("container"))? {
        install(&file, &doc.join("examples/container").join(file.file_name().context("a file")?), 0o644)?;
    }
    output(Command::new("gzip").arg("-9n").arg(doc.join("changelog"))).map(drop)
}

/// The control file: version, size, and the libraries that the programs need.
pub(super) fn describe(tree: &Path) -> anyhow::Result<()> {
    let needed = paths::target().join("deb/shlibdeps");
    paths::fresh_dir(&needed.join("debian"))?;
    write(&needed.join("debian/control"), b"Source: uringlet\n\nPackage: uringlet\nArchitecture: amd64\n")?;
    let mut shlibdeps = Command::new("dpkg-shlibdeps");
    shlibdeps.arg("-O").current_dir(&needed);
    // The others are static, or without libc.
    for (_, to) in [BINARIES[3], BINARIES[4]] {
        shlibdeps.arg(tree.join(to));
    }
    let depends = String::from_utf8(output(&mut shlibdeps)?)?;
    let depends = depends.trim().strip_prefix("shlibs:Depends=").context("dpkg-shlibdeps names no libraries")?;
    let size = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(tree))?;
    let size = String::from_utf8(size)?.split_whitespace().next().unwrap_or_default().to_owned();
    let control = fs::read_to_string(paths::root().join("packaging/control"))?;
    let control = control.replace("@VERSION@", VERSION).replace("@SIZE@", &size).replace("@DEPENDS@", depends);
    write(&tree.join("DEBIAN/control"), control.as_bytes())?;
    let sums = output(Command::new("sh").args(["-c", "find usr -type f | LC_ALL=C sort | xargs md5sum"]).current_dir(tree))?;
    write(&tree.join("DEBIAN/md5sums"), &sums)?;
    // Whatever the umask was.
    output(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree)).map(drop)
}

fn install(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().context("a file in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    Ok(fs::set_permissions(to, Permissions::from_mode(mode))?)
}

fn write(to: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().context("a file in a folder")?)?;
    fs::write(to, content).with_context(|| format!("writing {}", to.display()))?;
    Ok(fs::set_permissions(to, Permissions::from_mode(0o644))?)
}

fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect())
}

fn compress_all(folder: &Path) -> anyhow::Result<()> {
    let files = files(folder)?;
    ensure!(!files.is_empty(), "no man page was made");
    output(Command::new("gzip").arg("-9n").args(files)).map(drop)
}

/// The standard output of a command that must succeed.
fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let out = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    ensure!(out.status.success(), "{command:?} ended with {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    Ok(out.stdout)
}
