//! System calls that the engine intercepts when the program makes them. An op makes them through
//! the same entry points, since they concern every ring. No ring's lock is held.
//!
//! The entry points lie in the highest layer and ops in a low one, so the engine registers them
//! here before its first ring.

use uringlet_sys::static_ref::StaticRef;
use uringlet_sys::{Errno, fd_table, io};

/// `struct epoll_event`: 12 bytes on x86-64.
pub(crate) type RawEpollEvent = [u32; 3];

/// The engine's entry points.
#[derive(Debug)]
pub(crate) struct InterceptedCalls {
    /// close(2): the result, or -errno; `None`: make the plain call.
    pub(crate) close: fn(i32) -> Option<isize>,
    /// A number is handed to an epoll set.
    pub(crate) note_polled: fn(i32),
}

static CALLS: StaticRef<InterceptedCalls> = StaticRef::new();

/// Sets the entry points; called before the first ring is made.
pub(crate) fn register(calls: &'static InterceptedCalls) {
    CALLS.set(calls);
}

/// close(2): requests on the number keep its file.
pub(crate) fn close(fd: i32) -> Result<usize, Errno> {
    match CALLS.get().and_then(|calls| (calls.close)(fd)) {
        None => io::close(fd),
        Some(result) if result < 0 => Err(Errno::new(-result as i32)),
        Some(result) => Ok(result as usize),
    }
}

/// epoll_ctl(2): a ring that is added to an epoll set must keep its readiness up to date from then
/// on.
pub(crate) fn epoll_ctl(epfd: i32, op: u32, fd: i32, event: &RawEpollEvent) -> Result<usize, Errno> {
    if fd_table::is_internal(epfd) || fd_table::is_internal(fd) {
        return Err(Errno::EBADF);
    }
    if let Some(calls) = CALLS.get() {
        (calls.note_polled)(fd);
    }
    io::epoll_ctl(epfd, op, fd, io::ptr_of_slice(event))
}
