//! Images as folders: roots of Debian, and layers above them.

use crate::{apt, deb, paths, stream};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A layer of an image.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) folder: PathBuf,
}

/// A root of Debian with programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// Debian 12: fio, qemu-img.
    Stable,
    /// Debian testing: PostgreSQL 18. Debian 12's has no io_uring.
    Testing,
}

/// Where the files of uringlet are in images that have them.
pub(super) const URINGLET: &str = "/opt/uringlet";
/// Where scripts of this repository are in a container.
pub(super) const SCRIPTS: &str = "/check";
/// In each root. Packages are only unpacked: no script of theirs runs.
const COMMON: &str = "libc6,libgcc-s1,bash,dash,coreutils,util-linux,grep,sed,base-files";

impl Root {
    /// Debian's name of its suite.
    pub(super) fn name(self) -> &'static str {
        self.suite().0
    }

    fn suite(self) -> (&'static str, &'static str) {
        match self {
            Self::Stable => ("bookworm", "fio,qemu-utils,liburing2"),
            Self::Testing => ("testing", "postgresql-18,liburing2"),
        }
    }

    /// The root's layer. It is made if it is not there.
    pub(super) fn layer(self) -> anyhow::Result<Layer> {
        let (suite, packages) = self.suite();
        let folder = paths::cache().join(format!("container-{suite}"));
        let made = folder.with_extension("packages");
        let include = format!("--include={COMMON},{packages}");
        if fs::read_to_string(&made).is_ok_and(|text| text == include) && folder.exists() {
            return Ok(Layer { folder });
        }
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(paths::cache())?;
        println!("making a root of Debian {suite} with {packages}");
        let target = folder.to_str().context("the cache's path is not UTF-8")?;
        // A mirror that is a snapshot has a release file of an earlier day.
        let mirror = apt::mirror()?;
        let options = ["--mode=root", "--variant=extract", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"];
        let options = [&options[..], &["--aptopt=Acquire::Check-Valid-Until \"false\"", &include, suite, target, &mirror]].concat();
        stream::sh("mmdebstrap", &options)?;
        finish(&folder)?;
        fs::write(made, include)?;
        Ok(Layer { folder })
    }
}

/// What the packages' scripts would have made, and the folders of volumes.
fn finish(root: &Path) -> anyhow::Result<()> {
    let users = [("root", 0), ("postgres", 999), ("app", 1000)];
    let passwd: String = users.iter().map(|(name, id)| format!("{name}:x:{id}:{id}::/nonexistent:/bin/sh\n")).collect();
    let group: String = users.iter().map(|(name, id)| format!("{name}:x:{id}:\n")).collect();
    fs::write(root.join("etc/passwd"), passwd)?;
    fs::write(root.join("etc/group"), group)?;
    for folder in ["data", "check", "tmp", "root", "run", "proc", "sys", "dev", "opt"] {
        fs::create_dir_all(root.join(folder))?;
    }
    stream::sh("chmod", &["1777", root.join("tmp").to_str().context("the cache's path is not UTF-8")?])
}

/// Which tarball is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tarball {
    Build,
    /// The one that is there.
    Keep,
}

/// The image of uringlet: the tarball's files, as the Dockerfile of packaging/container puts them.
pub(super) fn uringlet_image(tarball: Tarball) -> anyhow::Result<PathBuf> {
    let tarball = deb::tarball(tarball == Tarball::Build)?;
    let image = work().join("image");
    paths::fresh_dir(&image)?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the cache's path is not UTF-8");
    stream::sh("tar", &["--strip-components=1", "--no-same-owner", "-xzf", &text(&tarball)?, "-C", &text(&image)?])?;
    ensure!(image.join("lib/uringlet/liburinglet.so").exists(), "the tarball lacks the library");
    Ok(image)
}

/// A layer with the image's files at [`URINGLET`].
pub(super) fn uringlet_layer(image: &Path) -> anyhow::Result<Layer> {
    copied_layer("uringlet", image, URINGLET)
}

/// A layer with a copy of a folder.
pub(super) fn copied_layer(name: &str, from: &Path, to: &str) -> anyhow::Result<Layer> {
    let folder = work().join(format!("layer-{name}"));
    paths::fresh_dir(&folder)?;
    let target = folder.join(to.trim_start_matches('/'));
    fs::create_dir_all(target.parent().context("the root folder is no target")?)?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the cache's path is not UTF-8");
    stream::sh("cp", &["-a", &text(from)?, &text(&target)?])?;
    Ok(Layer { folder })
}

/// A layer with this machine's Node. Debian 12's has no io_uring; later ones than Node 20 submit no
/// file operations to a ring.
pub(super) fn node_layer() -> anyhow::Result<Layer> {
    let find = ["-c", "readlink -f \"$(command -v node)\" && node -p process.versions.uv"];
    let out = Command::new("sh").args(find).output().context("starting sh")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut lines = text.lines();
    let (node, uv) = lines.next().zip(lines.next()).context("there is no Node here; version 20 is wanted")?;
    let minor = uv.strip_prefix("1.").and_then(|rest| rest.split('.').next()).and_then(|minor| minor.parse::<u32>().ok());
    ensure!(minor.is_some_and(|minor| (45..=48).contains(&minor)), "this Node has libuv {uv}; Node 20 is wanted");
    copied_layer("node", Path::new(node), "/usr/local/bin/node")
}

/// A layer with one file.
pub(super) fn file_layer(name: &str, path: &str, content: &str) -> anyhow::Result<Layer> {
    let folder = work().join(format!("layer-{name}"));
    let file = folder.join(path.trim_start_matches('/'));
    paths::fresh_dir(&folder)?;
    fs::create_dir_all(file.parent().context("a file lies in a folder")?)?;
    fs::write(file, content)?;
    Ok(Layer { folder })
}

/// Folders of one run of the task.
pub(super) fn work() -> PathBuf {
    paths::cache().join("work/containers")
}
