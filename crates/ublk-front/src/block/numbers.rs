//! Which process on this machine has which number: `/dev/ublkbN` is one name for all of them.
//!
//! A process holds a lock on byte N of one file beside the nodes from ADD_DEV until its device is
//! gone. The kernel releases the locks of a process that dies. The file stays: removing it would
//! let two processes lock two files.

use crate::sync::lock;
use rustix::fd::AsRawFd;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use uringlet_sys::Errno;
use uringlet_sys::range_lock::{self, LockKind};

const FILE_NAME: &str = ".ublkb.lock";

/// See the module.
#[derive(Debug)]
pub(super) struct NumberLocks {
    path: PathBuf,
    /// Opened for the first number.
    file: Mutex<Option<File>>,
}

impl NumberLocks {
    pub(super) fn new(dir: &Path) -> Self {
        Self { path: dir.join(FILE_NAME), file: Mutex::default() }
    }

    /// Takes a number. Not checked against this process's own.
    ///
    /// # Errors
    /// `EEXIST`: another process has it.
    pub(super) fn lock(&self, id: u32) -> Result<(), Errno> {
        let mut file = lock(&self.file);
        if file.is_none() {
            let options = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path);
            // Where no file can be made, no node can: the device is available over NBD only.
            let Ok(opened) = options else { return Ok(()) };
            *file = Some(opened);
        }
        let Some(file) = &*file else { return Ok(()) };
        match range_lock::lock(file.as_raw_fd(), LockKind::Exclusive, id.into(), 1) {
            Err(Errno::EAGAIN | Errno::EACCES) => Err(Errno::EEXIST),
            // Filesystems without locks: as without the file.
            _ => Ok(()),
        }
    }

    pub(super) fn unlock(&self, id: u32) {
        if let Some(file) = &*lock(&self.file) {
            // An error means that it was not locked.
            let _ = range_lock::unlock(file.as_raw_fd(), id.into(), 1);
        }
    }
}
