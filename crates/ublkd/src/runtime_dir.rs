//! The folder where the broker is met: only its user may look into it.

use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use uringlet_ublk::wire;

/// Names another folder.
pub const DIR_VARIABLE: &str = "URINGLET_UBLK_DIR";

/// The broker's socket in it.
#[must_use]
pub fn socket(dir: &Path) -> PathBuf {
    dir.join(wire::SOCKET)
}

/// The NBD server's.
#[must_use]
pub fn nbd_socket(dir: &Path) -> PathBuf {
    dir.join("nbd.sock")
}

/// Makes [`wire::LIST`] what it should be.
///
/// # Errors
/// Those of the filesystem.
pub(crate) fn publish_devices(dir: &Path, ids: &[u32]) -> std::io::Result<()> {
    let list = dir.join(wire::LIST);
    std::fs::create_dir_all(&list)?;
    let names: Vec<_> = ids.iter().map(|id| OsString::from(format!("ublkc{id}"))).collect();
    for entry in std::fs::read_dir(&list)? {
        let entry = entry?;
        if !names.contains(&entry.file_name()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    for name in names {
        match std::os::unix::fs::symlink("/dev/null", list.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Where this user's broker is: `$URINGLET_UBLK_DIR`, or `uringlet` in `$XDG_RUNTIME_DIR`, root's in `/run`, and else in the
/// folder for temporary files.
#[must_use]
pub fn default_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os(DIR_VARIABLE) {
        return dir.into();
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/uringlet".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => Path::new(&dir).join("uringlet"),
        None => std::env::temp_dir().join(format!("uringlet-{}", uid.as_raw())),
    }
}

/// Makes the folder, or sees that it is ours alone.
///
/// # Errors
/// It belongs to somebody else, others may look into it, or it cannot be made.
pub fn prepare(dir: &Path) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(dir);
    if let Err(error) = made
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("making {}", dir.display()));
    }
    // Not through a link: somebody else may have put it there.
    let found = std::fs::symlink_metadata(dir).with_context(|| format!("looking at {}", dir.display()))?;
    ensure!(found.is_dir(), "{} is not a folder", dir.display());
    ensure!(found.uid() == rustix::process::geteuid().as_raw(), "{} belongs to user {}", dir.display(), found.uid());
    ensure!(found.mode() & 0o077 == 0, "others may look into {}: chmod 700 it", dir.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_readable_by_others_is_refused() {
        let dir = std::env::temp_dir().join(format!("ublkd-dir-{}", std::process::id()));
        prepare(&dir).unwrap();
        prepare(&dir).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(prepare(&dir).is_err());
        std::fs::remove_dir(&dir).unwrap();
        std::os::unix::fs::symlink("/", &dir).unwrap();
        assert!(prepare(&dir).is_err());
        std::fs::remove_file(&dir).unwrap();
    }
}
