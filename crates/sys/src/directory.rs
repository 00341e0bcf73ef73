//! Files in a directory that is the user's alone, by names and not by the program's addresses.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use syscalls::{Errno, Sysno, syscall};

use crate::io::{self, fstat};
use crate::linux::general::{AT_FDCWD, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_WRONLY, stat};
use crate::process::effective_user;
use crate::user_ptr::UserPtr;

const MODE_OTHERS: u32 = 0o077;

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    /// `st_dev`
    pub dev: u64,
    /// `st_ino`
    pub ino: u64,
    /// `st_size`, bytes
    pub size: u64,
    /// `st_mtim`, seconds and nanoseconds
    pub mtime: [u64; 2],
    /// `st_ctim`, seconds and nanoseconds
    pub ctime: [u64; 2],
}

/// The version of the file at `path`, by stat(2).
///
/// # Errors
/// Those of stat(2).
pub fn file_version(path: &CStr) -> Result<FileVersion, Errno> {
    let mut st = MaybeUninit::<stat>::zeroed();
    // SAFETY: a string that ends in NUL; the kernel writes a `struct stat`, of integers only, to
    // memory of its size.
    let st = unsafe {
        syscall!(Sysno::newfstatat, AT_FDCWD, path.as_ptr(), st.as_mut_ptr(), 0)?;
        st.assume_init()
    };
    let (mtime, ctime) = ([st.st_mtime, st.st_mtime_nsec], [st.st_ctime, st.st_ctime_nsec]);
    Ok(FileVersion { dev: st.st_dev, ino: st.st_ino, size: st.st_size.cast_unsigned(), mtime, ctime })
}

/// Makes a directory that only its owner may enter. It may be there already.
pub fn make_private(path: &CStr) {
    let _ = io::mkdirat(AT_FDCWD, name_of(path), 0o700);
}

/// An open directory.
#[derive(Debug)]
pub struct Directory(i32);

impl Directory {
    /// Opens a directory, not by way of a symbolic link.
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn open(path: &CStr) -> Result<Self, Errno> {
        Ok(Self(open_at(AT_FDCWD, path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0)?))
    }

    /// Whether it belongs to the effective user and gives other users no access.
    #[must_use]
    pub fn is_private(&self) -> bool {
        fstat(self.0).is_ok_and(|stat| stat.uid == effective_user() && stat.mode & MODE_OTHERS == 0)
    }

    /// Reads a file from its start; the number of bytes, at most the buffer's length.
    ///
    /// # Errors
    /// Those of openat(2) and read(2).
    pub fn read(&self, name: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
        let fd = open_at(self.0, name, O_NOFOLLOW | O_CLOEXEC, 0)?;
        // SAFETY: a live buffer.
        let len = unsafe { syscall!(Sysno::read, fd, buffer.as_mut_ptr(), buffer.len()) };
        close(fd);
        len
    }

    /// Puts a file with this content in the place of `name`. A reader sees the old file or the new
    /// one; on failure the old one stays. `temporary` is a name that nothing else uses.
    pub fn replace(&self, name: &CStr, temporary: &CStr, content: &[u8]) {
        let Ok(fd) = open_at(self.0, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600) else { return };
        // SAFETY: a live buffer.
        let is_written = unsafe { syscall!(Sysno::write, fd, content.as_ptr(), content.len()) } == Ok(content.len());
        close(fd);
        // SAFETY: strings that end in NUL.
        unsafe {
            if !is_written || syscall!(Sysno::renameat, self.0, temporary.as_ptr(), self.0, name.as_ptr()).is_err() {
                let _ = syscall!(Sysno::unlinkat, self.0, temporary.as_ptr(), 0);
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        close(self.0);
    }
}

fn open_at(directory: i32, path: &CStr, flags: u32, mode: u32) -> Result<i32, Errno> {
    io::openat(directory, name_of(path), flags, mode).map(io::number_of)
}

fn close(fd: i32) {
    let _ = io::close(fd);
}

fn name_of(path: &CStr) -> UserPtr {
    io::ptr_of_slice(path.to_bytes_with_nul())
}
