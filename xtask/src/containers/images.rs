//! Images as folders: roots of Debian, and layers above them.

use crate::debian_root::{self, Packages};
use crate::{deb, paths, stream};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A layer of an image.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(super) folder: PathBuf,
}

/// A root of Debian with programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    /// The folder's name in the cache.
    name: &'static str,
    suite: &'static str,
    packages: &'static str,
}

/// Where the files of uringlet are in images that have them.
pub(super) const URINGLET: &str = "/opt/uringlet";
/// Where scripts of this repository are in a container.
pub(super) const SCRIPTS: &str = "/check";
/// In each root. Packages are only unpacked: no script of theirs runs.
const COMMON: &str = "libc6,libgcc-s1,bash,dash,coreutils,util-linux,grep,sed,base-files";

impl Root {
    /// Debian 12: fio, qemu-img.
    pub(super) const STABLE: Self = Self { name: "container-bookworm", suite: "bookworm", packages: "fio,qemu-utils,liburing2" };
    /// Debian testing: PostgreSQL 18. Debian 12's has no io_uring.
    pub(crate) const TESTING: Self = Self::testing("container-testing", "postgresql-18,liburing2,diffutils");

    /// A root of Debian testing.
    pub(crate) const fn testing(name: &'static str, packages: &'static str) -> Self {
        Self { name, suite: "testing", packages }
    }

    /// The folder's name in the cache.
    pub(super) fn name(self) -> &'static str {
        self.name
    }

    /// The root's layer. It is made if it is not there.
    pub(crate) fn layer(self) -> anyhow::Result<Layer> {
        let packages = format!("{COMMON},{}", self.packages);
        let folder = debian_root::cached(self.name, self.suite, Packages::Unpacked, &packages, finish)?;
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
    std::os::unix::fs::symlink("/usr/share/zoneinfo/Etc/UTC", root.join("etc/localtime"))?;
    for folder in ["data", "check", "tmp", "root", "run", "proc", "sys", "dev", "opt"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the cache's path is not UTF-8");
    // A library whose file has another name than its users know is found by a link.
    stream::sh("/sbin/ldconfig", &["-r", &text(root)?])?;
    stream::sh("chmod", &["1777", &text(&root.join("tmp"))?])
}

/// Where the files of uringlet come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tarball {
    Build,
    /// The one that is there.
    Keep,
    /// None: the release's program and library.
    Release,
}

/// The image of uringlet: the tarball's files, as the Dockerfile of packaging/container puts them.
pub(super) fn uringlet_image(tarball: Tarball) -> anyhow::Result<PathBuf> {
    let image = work().join("image");
    paths::fresh_dir(&image)?;
    if tarball == Tarball::Release {
        copy_release(&image)?;
        return Ok(image);
    }
    let tarball = deb::tarball(tarball == Tarball::Build)?;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the cache's path is not UTF-8");
    stream::sh("tar", &["--strip-components=1", "--no-same-owner", "-xzf", &text(&tarball)?, "-C", &text(&image)?])?;
    ensure!(image.join("lib/uringlet/liburinglet.so").exists(), "the tarball lacks the library");
    Ok(image)
}

fn copy_release(image: &Path) -> anyhow::Result<()> {
    for (folder, file) in [("bin", "uringlet"), ("lib/uringlet", "liburinglet.so")] {
        fs::create_dir_all(image.join(folder))?;
        let built = paths::target().join("release").join(file);
        fs::copy(&built, image.join(folder).join(file)).with_context(|| format!("copying {}", built.display()))?;
    }
    Ok(())
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
