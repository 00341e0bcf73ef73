//! A file's descriptors and its mapping.

use crate::op::{Contents, MAX_SIZE};
use anyhow::Context;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The kinds of descriptors of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleKind {
    Plain,
    Append,
    Direct,
}

/// Descriptors per file: its slots in the ring's file table.
pub(crate) const HANDLES: usize = 3;

/// An open file.
#[derive(Debug)]
pub(crate) struct FileHandles {
    pub(crate) plain: File,
    append: File,
    direct: Option<File>,
    map: SharedMapping,
}

impl FileHandles {
    pub(crate) fn new(path: &Path, contents: Contents) -> anyhow::Result<Self> {
        let plain = OpenOptions::new().read(true).write(true).create(true).truncate(contents == Contents::Truncated).open(path);
        let plain = plain.with_context(|| format!("opening {}", path.display()))?;
        let append = OpenOptions::new().read(true).append(true).open(path)?;
        let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).ok();
        let map = SharedMapping::of(&plain)?;
        Ok(Self { plain, append, direct, map })
    }

    pub(crate) fn fd(&self, kind: HandleKind) -> RawFd {
        match kind {
            HandleKind::Plain => self.plain.as_raw_fd(),
            HandleKind::Append => self.append.as_raw_fd(),
            HandleKind::Direct => self.direct.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        }
    }

    /// In the order of the ring's file table.
    pub(crate) fn fds(&self) -> [RawFd; HANDLES] {
        [self.fd(HandleKind::Plain), self.fd(HandleKind::Append), self.fd(HandleKind::Direct)]
    }

    /// Reads bytes through the mapping; they must lie below the end of the file.
    pub(crate) fn read_mapped(&self, off: u64, into: &mut [u8]) {
        // SAFETY: inside the mapping; the claims keep other operations from changing these bytes
        // and the file from shrinking.
        unsafe { std::ptr::copy_nonoverlapping(self.map.at(off), into.as_mut_ptr(), into.len()) };
    }

    /// Writes bytes through the mapping; they must lie below the end of the file.
    pub(crate) fn write_mapped(&self, off: u64, data: &[u8]) {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.map.at(off), data.len()) };
    }
}

/// A shared mapping of the largest possible file.
#[derive(Debug)]
struct SharedMapping(*mut u8);

impl SharedMapping {
    fn of(file: &File) -> anyhow::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, nothing is replaced.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), MAX_SIZE as usize, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("mapping a file");
        }
        Ok(Self(p.cast()))
    }

    fn at(&self, off: u64) -> *mut u8 {
        self.0.wrapping_add(off as usize)
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: our mapping, and nothing borrows from it.
        unsafe { libc::munmap(self.0.cast(), MAX_SIZE as usize) };
    }
}

/// fallocate(2). An error may mean that the filesystem lacks the mode.
pub(crate) fn fallocate(file: &File, mode: i32, off: u64, len: u64) -> io::Result<()> {
    // SAFETY: numbers only.
    let r = unsafe { libc::fallocate(file.as_raw_fd(), mode, off as i64, len as i64) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes the file back and drops it from the page cache.
pub(crate) fn drop_cache(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // SAFETY: numbers only.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A directory that is removed on drop.
#[derive(Debug)]
pub(crate) struct ScratchDir(pub(crate) PathBuf);

impl ScratchDir {
    pub(crate) fn new(path: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&path).with_context(|| format!("making the folder {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
