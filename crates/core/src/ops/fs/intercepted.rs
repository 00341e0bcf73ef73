//! System calls that the engine intercepts when the program makes them. An op makes them through
//! the same entry points of the engine, since they concern every ring. No ring's lock is held. No
//! other module of `ops` uses a higher layer.

use crate::engine::ENGINE;
use uringlet_sys::{Errno, fd_table, io};

/// `struct epoll_event`: 12 bytes on x86-64.
pub(super) type RawEpollEvent = [u32; 3];

/// close(2): requests on the number keep its file.
pub(super) fn close(fd: i32) -> Result<usize, Errno> {
    match ENGINE.close(fd) {
        None => io::close(fd),
        Some(result) if result < 0 => Err(Errno::new(-result as i32)),
        Some(result) => Ok(result as usize),
    }
}

/// epoll_ctl(2): a ring that is added to an epoll set must keep its readiness up to date from then
/// on.
pub(super) fn epoll_ctl(epfd: i32, op: u32, fd: i32, event: &RawEpollEvent) -> Result<usize, Errno> {
    if fd_table::is_internal(epfd) || fd_table::is_internal(fd) {
        return Err(Errno::EBADF);
    }
    ENGINE.note_polled(fd);
    io::epoll_ctl(epfd, op, fd, io::ptr_of_slice(event))
}
