//! What a ring's descriptor refuses: read(2) and write(2), and to be sent through a socket. A FIFO
//! would do all of it.

use uringlet_core::ENGINE;

use crate::convert::Register;

/// The kernel's answer.
pub(crate) const EINVAL: isize = -22;

/// Of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Whether read(2) or write(2) of this number is refused. Before a read, polls are told.
pub(crate) fn refuses_transfer(fd: i32, direction: Direction) -> bool {
    if direction == Direction::Read {
        ENGINE.before_read(fd);
    }
    ENGINE.is_ours(fd) && ENGINE.is_ring(fd)
}

/// The first of `count` messages of sendmmsg(2) that is refused. The kernel sends those before it.
pub(crate) fn first_refused(messages: usize, count: u32, passes_a_ring: impl Fn(usize) -> bool) -> Option<u32> {
    /// Bytes of a `struct mmsghdr`.
    const STRIDE: usize = 64;
    /// The kernel sends no more in one call.
    const MOST: u32 = 1024;
    (0..count.min(MOST)).find(|&nth| passes_a_ring(messages.wrapping_add(nth.reg() * STRIDE)))
}
