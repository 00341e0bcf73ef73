//! A directory for all files of a run and the filesystems mounted in it; removed at the end.
//!
//! The directory holds a locked file `lock`. If it can be locked, its run is dead, and the next run
//! removes the directory. Mounts are made in a mount namespace of this process: they are invisible
//! to others and end with it. The name of an image is removed once it is mounted, so that its space
//! is freed with the mount.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};

use crate::bench::launch::Launch;
use crate::bench::stop::StopFlag;

const PREFIX: &str = "uringlet-bench-";
/// Room for the smallest xfs (300 MB) and the test files.
const IMAGE_LEN: u64 = 512 << 20;

/// The directory of this run.
#[derive(Debug)]
pub(super) struct Workspace {
    path: PathBuf,
    mounts: Vec<PathBuf>,
    has_own_mounts: bool,
    _lock: File,
}

impl Workspace {
    /// Creates the directory, and removes those of dead runs with a message.
    pub(super) fn new(directory: &Path) -> Result<Self, String> {
        for left in remove_leftovers(directory) {
            eprintln!("removed {}, left by a killed run", left.display());
        }
        let path = directory.join(format!("{PREFIX}{}", std::process::id()));
        let wrong =
            |error: &dyn std::fmt::Display| format!("cannot make {}: {error}; choose another directory with --directory", path.display());
        fs::create_dir(&path).map_err(|error| wrong(&error))?;
        let path = path.canonicalize().map_err(|error| wrong(&error))?;
        let lock = locked(&path).map_err(|error| wrong(&error))?;
        Ok(Self { path, mounts: Vec::new(), has_own_mounts: false, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory to mount on, invisible to other processes.
    pub(super) fn mount_point(&mut self, name: &str) -> Result<PathBuf, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting needs root".to_owned());
        }
        if !self.has_own_mounts {
            unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("cannot create a mount namespace: {error}"))?;
            let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
            mount_change("/", private).map_err(|error| format!("cannot make mounts private: {error}"))?;
            self.has_own_mounts = true;
        }
        let point = self.path.join(name);
        fs::create_dir(&point).map_err(|error| format!("cannot make {}: {error}", point.display()))?;
        self.mounts.push(point.clone());
        Ok(point)
    }

    /// Makes and mounts a filesystem of this type on a loop image. Returns its mount point.
    pub(super) fn filesystem(&mut self, kind: &str, stop: &StopFlag) -> Result<PathBuf, String> {
        let point = self.mount_point(kind)?;
        let room = statvfs(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
        if room.f_bavail.saturating_mul(room.f_frsize) < IMAGE_LEN {
            return Err(format!("an image needs {} MB of free space in {}", IMAGE_LEN >> 20, self.path.display()));
        }
        let image = self.path.join(format!("{kind}.img"));
        let made = File::create_new(&image).and_then(|file| file.set_len(IMAGE_LEN));
        made.map_err(|error| format!("cannot make {}: {error}", image.display()))?;
        let mkfs = [format!("mkfs.{kind}").into(), "-q".into(), "-f".into(), image.clone().into_os_string()];
        command(&mkfs, &format!("{kind}progs or {kind}-progs"), stop)?;
        let mount = ["mount".into(), "-t".into(), kind.into(), "-o".into(), "loop".into(), image.clone().into(), point.clone().into()];
        command(&mount, "mount", stop)?;
        fs::remove_file(&image).map_err(|error| format!("cannot remove {}: {error}", image.display()))?;
        Ok(point)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        for point in self.mounts.iter().rev() {
            // Unmounts everything stacked there. Nothing is mounted after a failure.
            while unmount(point, UnmountFlags::DETACH).is_ok() {}
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("uringlet bench: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Runs a program that prints nothing on success.
fn command(argv: &[std::ffi::OsString], package: &str, stop: &StopFlag) -> Result<(), String> {
    let missing = format!("cannot start {}", argv[0].display());
    match Launch::new(argv).within(Duration::from_secs(120)).check(stop) {
        Err(why) if why.starts_with(&missing) => Err(format!("{why} (package {package})")),
        done => done,
    }
}

/// Creates the lock file of a directory. It is renamed once locked, so that a run that starts
/// meanwhile does not take this one for dead.
fn locked(folder: &Path) -> std::io::Result<File> {
    let file = File::create_new(folder.join("locking"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(folder.join("locking"), folder.join("lock"))?;
    Ok(file)
}

/// Removes the directories of dead runs and returns their paths.
fn remove_leftovers(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)).map(|entry| entry.path());
    folders.filter(|folder| is_dead(folder) && fs::remove_dir_all(folder).is_ok()).collect()
}

fn is_dead(folder: &Path) -> bool {
    let lock = OpenOptions::new().read(true).open(folder.join("lock"));
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_dead_runs_are_removed() {
        let parent = std::env::temp_dir().join(format!("uringlet-bench-test-{}", std::process::id()));
        fs::create_dir_all(parent.join("uringlet-bench-1")).unwrap();
        fs::create_dir_all(parent.join("uringlet-bench-2")).unwrap();
        fs::create_dir_all(parent.join("other")).unwrap();
        File::create(parent.join("uringlet-bench-1/lock")).unwrap();
        let living = locked(&parent.join("uringlet-bench-2")).unwrap();
        assert_eq!(remove_leftovers(&parent), [parent.join("uringlet-bench-1")]);
        let workspace = Workspace::new(&parent).unwrap();
        let path = workspace.path().to_path_buf();
        assert!(path.join("lock").is_file() && parent.join("uringlet-bench-2").is_dir());
        drop(workspace);
        assert!(!path.exists() && parent.join("other").is_dir());
        drop(living);
        fs::remove_dir_all(&parent).unwrap();
    }
}
