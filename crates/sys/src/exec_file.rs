//! What execve(2) would do with a file, and what a process that is about to call it has to know.

use crate::io::{FileStat, Res, newfstatat, ptr_of_mut, ptr_of_slice};
use crate::linux::general::{
    AT_EMPTY_PATH, AT_EXECVE_CHECK, AT_FDCWD, F_GETFD, F_SETFD, FD_CLOEXEC, O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDONLY, X_OK, stat,
};
use crate::linux::prctl::PR_GET_TID_ADDRESS;
use crate::proc_path::ProcPath;
use crate::process;
use crate::user_ptr::UserPtr;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// A file as execveat(2) names it; `flags` are `AT_*`.
#[derive(Clone, Copy, Debug)]
pub struct ExecPath {
    /// The directory of a relative path, or the file itself.
    pub dir: i32,
    /// Address of the path.
    pub path: UserPtr,
    /// `AT_EMPTY_PATH`, `AT_SYMLINK_NOFOLLOW`.
    pub flags: u32,
}

impl ExecPath {
    /// The path of execve(2).
    #[must_use]
    pub const fn at(path: UserPtr) -> Self {
        Self { dir: AT_FDCWD, path, flags: 0 }
    }

    /// newfstatat(2).
    ///
    /// # Errors
    /// Those of the call.
    pub fn stat(self) -> Result<FileStat, Errno> {
        let mut st = MaybeUninit::<stat>::zeroed();
        newfstatat(self.dir, self.path, UserPtr::new(st.as_mut_ptr().addr()), self.flags)?;
        // SAFETY: integers only; the kernel has written them.
        let st = unsafe { st.assume_init() };
        Ok(FileStat {
            mode: st.st_mode,
            dev: st.st_dev,
            ino: st.st_ino,
            size: st.st_size.cast_unsigned(),
            uid: st.st_uid,
            rdev: st.st_rdev,
        })
    }

    /// Opens the file, which is a regular one, to read it. `is_empty`: the path is, so the
    /// descriptor is the file.
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn open(self, is_empty: bool) -> Result<ExecFile, Errno> {
        // Where another file has taken its place since.
        const FLAGS: u32 = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
        let own = ProcPath::of(self.dir);
        let (dir, path) = if is_empty { (AT_FDCWD, ptr_of_slice(own.bytes())) } else { (self.dir, self.path) };
        crate::io::openat(dir, path, FLAGS, 0).map(|fd| ExecFile(crate::io::number_of(fd)))
    }

    /// Whether the calling thread may execute it, by the real user and group.
    #[must_use]
    pub fn is_executable(self) -> bool {
        // SAFETY: the kernel reads the path that it has read before.
        unsafe { syscall!(Sysno::faccessat, self.dir, self.path.addr(), X_OK) }.is_ok()
    }
}

/// An open file that is to be executed.
#[derive(Debug)]
pub struct ExecFile(i32);

impl ExecFile {
    /// Reads from byte `offset` on.
    ///
    /// # Errors
    /// Those of pread(2).
    pub fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let offset = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let len = into.len();
        crate::io::pread(self.0, UserPtr::new(into.as_mut_ptr().addr()), len, offset)
    }

    /// Whether execve(2) would take the file: permissions, mount, writers, security modules; and
    /// these two arrays, if they are given. `None`: the kernel is older than the question (Linux
    /// 6.14).
    #[must_use]
    pub fn may_be_executed(&self, arrays: Option<[UserPtr; 2]>) -> Option<bool> {
        let empty = c"";
        let none = [empty.as_ptr(), core::ptr::null()];
        let [arguments, environment] = arrays.unwrap_or([UserPtr::new(none.as_ptr().addr()), UserPtr::NULL]);
        let flags = AT_EMPTY_PATH | AT_EXECVE_CHECK;
        // SAFETY: with this flag nothing is executed: an older kernel refuses it.
        let checked = unsafe { syscall!(Sysno::execveat, self.0, empty.as_ptr(), arguments.addr(), environment.addr(), flags) };
        match checked {
            Ok(_) => Some(true),
            Err(Errno::EINVAL | Errno::ENOSYS) => None,
            Err(_) => Some(false),
        }
    }

    /// Whether it may give capabilities to the process that executes it.
    #[must_use]
    pub fn has_capabilities(&self) -> bool {
        // SAFETY: asks for the length alone.
        let found = unsafe { syscall!(Sysno::fgetxattr, self.0, c"security.capability".as_ptr(), 0, 0) };
        !matches!(found, Err(Errno::ENODATA | Errno::EOPNOTSUPP))
    }

    /// Its path without symbolic links, as far as it fits. Not NUL-terminated.
    ///
    /// # Errors
    /// Those of readlink(2): /proc may not be mounted.
    pub fn path(&self, into: &mut [u8]) -> Res {
        let link = ProcPath::of(self.0);
        // SAFETY: a NUL-terminated path of ours; the kernel writes at most the buffer's length.
        unsafe { syscall!(Sysno::readlink, link.bytes().as_ptr(), into.as_mut_ptr(), into.len()) }
    }
}

impl Drop for ExecFile {
    fn drop(&mut self) {
        let _ = crate::io::close(self.0);
    }
}

/// Whether the calling thread has one user and one group: a program that it executes is trusted
/// with its environment.
#[must_use]
pub fn has_one_identity() -> bool {
    process::user_and_group() == process::effective_user_and_group()
}

/// Whether a descriptor is closed by execve(2), or is none.
#[must_use]
pub fn is_closed_by_exec(fd: i32) -> bool {
    // SAFETY: no addresses.
    unsafe { syscall!(Sysno::fcntl, fd, F_GETFD) }.map_or(true, |flags| flags & FD_CLOEXEC as usize != 0)
}

/// Whether a number stays open over execve(2): what would close it is taken back.
#[must_use]
pub fn stays_open(fd: i32) -> bool {
    // SAFETY: no addresses.
    !is_closed_by_exec(fd) || unsafe { syscall!(Sysno::fcntl, fd, F_SETFD, 0) }.is_ok()
}

/// The word that the kernel clears when the calling thread leaves its memory, by its end or an
/// execve(2): 0 if there is none. Only while other processes or threads use the memory.
///
/// # Errors
/// `EINVAL`: the kernel does not say.
pub fn tid_address() -> Result<usize, Errno> {
    let mut address = 0_usize;
    // SAFETY: the kernel writes one word.
    unsafe { syscall!(Sysno::prctl, PR_GET_TID_ADDRESS, ptr_of_mut(&mut address).addr(), 0, 0, 0) }?;
    Ok(address)
}

/// Has the kernel clear this word; `None`: none.
pub fn set_tid_address(word: Option<&'static AtomicU32>) {
    let address = word.map_or(0, |word| word.as_ptr().addr());
    // SAFETY: an atomic integer that lives as long as the memory, or nothing.
    unsafe { raw_syscall!(Sysno::set_tid_address, address) };
}
