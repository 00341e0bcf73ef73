//! `/proc/self/mem`: the kernel writes there whatever the page protection is.

use crate::linux::general::{AT_FDCWD, O_CLOEXEC, O_RDWR};
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// The open file.
#[derive(Debug)]
pub struct ProcMem(i32);

impl ProcMem {
    /// Opens it for writing.
    ///
    /// # Errors
    /// Those of openat(2): there is no `/proc`, or a policy forbids it.
    pub fn open() -> Result<Self, Errno> {
        // SAFETY: a constant path.
        let fd = unsafe { syscall!(Sysno::openat, AT_FDCWD, c"/proc/self/mem".as_ptr(), O_RDWR | O_CLOEXEC, 0) }?;
        Ok(Self(fd as i32))
    }

    /// Writes all of `bytes` to `at`; whether that worked.
    ///
    /// # Safety
    /// The bytes may change: no reference to them exists, and no thread is executing them.
    #[must_use]
    pub unsafe fn write(&self, at: usize, bytes: &[u8]) -> bool {
        // SAFETY: a live buffer; see above.
        unsafe { syscall!(Sysno::pwrite64, self.0, bytes.as_ptr(), bytes.len(), at) == Ok(bytes.len()) }
    }
}

impl Drop for ProcMem {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { raw_syscall!(Sysno::close, self.0) };
    }
}
