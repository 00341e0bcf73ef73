//! The runtime directory with the broker's sockets, accessible to its user alone.

use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use uringlet_ublk::wire;

/// Environment variable that names another directory.
pub const DIR_VARIABLE: &str = "URINGLET_UBLK_DIR";

/// The broker's socket in it.
#[must_use]
pub fn socket(dir: &Path) -> PathBuf {
    dir.join(wire::SOCKET)
}

/// The NBD server's socket in it.
#[must_use]
pub fn nbd_socket(dir: &Path) -> PathBuf {
    dir.join("nbd.sock")
}

/// See [`wire::ON_DEMAND_MARK`].
#[must_use]
pub fn on_demand_mark(dir: &Path) -> PathBuf {
    dir.join(wire::ON_DEMAND_MARK)
}

/// Makes [`wire::LIST`] list exactly these devices.
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

/// This user's runtime directory: `$URINGLET_UBLK_DIR`, or `uringlet` in `$XDG_RUNTIME_DIR`; for
/// root in `/run`; otherwise in the directory for temporary files.
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

/// Creates the directory, or checks that only this user can access it.
///
/// # Errors
/// It has another owner or is accessible to others; it cannot be created.
pub fn prepare(dir: &Path) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(dir);
    if let Err(error) = made
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| format!("creating {}", dir.display()));
    }
    // Without following a link, which another user may have put there.
    let found = std::fs::symlink_metadata(dir).with_context(|| format!("reading the mode of {}", dir.display()))?;
    ensure!(found.is_dir(), "{} is not a directory", dir.display());
    ensure!(found.uid() == rustix::process::geteuid().as_raw(), "{} belongs to user {}", dir.display(), found.uid());
    ensure!(found.mode() & 0o077 == 0, "{} is accessible to others: chmod 700 it", dir.display());
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
