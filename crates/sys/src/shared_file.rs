//! A sparse file in memory with its beginning mapped: a ublk device shares it with its server.

use crate::fd::EngineFd;
use crate::io;
use crate::linux::general::{AT_FDCWD, MFD_CLOEXEC};
use crate::proc_path::ProcPath;
use crate::shm_mapping::ShmMapping;
use crate::user::UserPtr;
use core::sync::atomic::Ordering::Release;
use syscalls::{Errno, Sysno, syscall};

/// See the module.
#[derive(Debug)]
pub struct SharedFile {
    fd: EngineFd,
    head: ShmMapping,
    head_len: usize,
}

impl SharedFile {
    /// A file of `len` bytes, all zero, with the first `head_len` mapped. `name` is what /proc
    /// shows, with its NUL.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`, `EFBIG`.
    pub fn new(name: &core::ffi::CStr, len: u64, head_len: usize) -> Result<Self, Errno> {
        let fd = io::memfd_create(io::ptr_of_slice(name.to_bytes_with_nul()), MFD_CLOEXEC)?;
        let fd = EngineFd::adopt(fd as i32);
        io::ftruncate(fd.number(), len as i64)?;
        let head = ShmMapping::map_file(fd.number(), head_len)?;
        Ok(Self { fd, head, head_len })
    }

    /// A file that another process has made. Nothing of it is mapped.
    #[must_use]
    pub const fn from_fd(fd: EngineFd) -> Self {
        Self { fd, head: ShmMapping::none(), head_len: 0 }
    }

    /// The engine's descriptor of it.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.fd.number()
    }

    /// A new descriptor for the program, with a file description of its own; `flags` are `O_*`.
    ///
    /// # Errors
    /// `EMFILE`; those of open(2) of /proc/self/fd/N.
    pub fn open(&self, flags: u32) -> Result<i32, Errno> {
        const KEPT: u32 = io::O_ACCMODE | io::O_CLOEXEC | io::O_NONBLOCK;
        let path = ProcPath::of(self.fd.number());
        io::openat(AT_FDCWD, io::ptr_of_slice(path.bytes()), flags & KEPT, 0).map(|fd| fd as i32)
    }

    /// Stores a word in the mapped part. Does nothing beyond that part, or when `offset` is no
    /// multiple of 8.
    pub fn store(&self, offset: usize, value: u64) {
        if offset.is_multiple_of(8) && offset.checked_add(8).is_some_and(|end| end <= self.head_len) {
            // SAFETY: it lies in the mapping, aligned.
            unsafe { self.head.u64(offset) }.store(value, Release);
        }
    }

    /// Reads `bytes` at an offset.
    ///
    /// # Errors
    /// Those of pread(2); `EIO` beyond the file's end.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        // SAFETY: the kernel writes to a live slice.
        let n = unsafe { syscall!(Sysno::pread64, self.fd.number(), bytes.as_mut_ptr(), bytes.len(), offset) }?;
        if n == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Writes `bytes` at an offset.
    ///
    /// # Errors
    /// Those of pwrite(2).
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let n = io::pwrite(self.fd.number(), io::ptr_of_slice(bytes), bytes.len(), offset as i64)?;
        if n == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Copies from the file to an address of the program: bytes copied, 0 if the address is bad.
    #[must_use]
    pub fn copy_to_user(&self, offset: u64, to: UserPtr, len: usize) -> usize {
        io::pread(self.fd.number(), to, len, offset as i64).unwrap_or(0)
    }

    /// Copies from an address of the program to the file: bytes copied, 0 if the address is bad.
    #[must_use]
    pub fn copy_from_user(&self, offset: u64, from: UserPtr, len: usize) -> usize {
        io::pwrite(self.fd.number(), from, len, offset as i64).unwrap_or(0)
    }
}

/// A descriptor for the program that can be polled, closed and duplicated only.
///
/// # Errors
/// `EMFILE`.
pub fn placeholder_fd(flags: u32) -> Result<i32, Errno> {
    // An epoll set without members: reads, writes and mmap fail.
    // SAFETY: no addresses.
    unsafe { syscall!(Sysno::epoll_create1, flags & io::O_CLOEXEC) }.map(|fd| fd as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_of_the_file_reads_what_is_stored() {
        let file = SharedFile::new(c"test", 1 << 50, 8192).unwrap();
        file.store(4096, 77);
        file.store(8192, 1);
        file.store(4097, 1);
        file.write(1 << 49, b"far away").unwrap();
        let fd = file.open(2 | io::O_CLOEXEC).unwrap();
        let mut word = 0_u64;
        assert_eq!(io::pread(fd, io::ptr_of_mut(&mut word), 8, 4096), Ok(8));
        assert_eq!(word, 77);
        assert_eq!(io::pread(fd, io::ptr_of_mut(&mut word), 8, 1 << 49), Ok(8));
        assert_eq!(&word.to_le_bytes(), b"far away");
        assert_eq!(file.copy_to_user(4096, UserPtr::NULL, 8), 0);
        let to = io::ptr_of_mut(&mut word);
        assert_eq!(file.copy_to_user(4096, to, 8), 8);
        assert_eq!(word, 77);
        io::close(fd).unwrap();
    }
}
