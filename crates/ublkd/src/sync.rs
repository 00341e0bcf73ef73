//! Locks and errnos as the broker uses them.

use rustix::io::Errno as IoErrno;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uringlet_sys::Errno;

pub(crate) fn errno(error: IoErrno) -> Errno {
    Errno::new(error.raw_os_error())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
