//! Errors of system calls as the engine's errnos.

use uringlet_sys::Errno;

pub(crate) fn errno(error: rustix::io::Errno) -> Errno {
    Errno::new(error.raw_os_error())
}
