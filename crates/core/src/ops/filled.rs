//! Where a request has put what it has read or received.

use uringlet_abi::register::Iovec;
use uringlet_sys::{UserPtr, io};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FilledBytes {
    /// Where the bytes begin.
    Buffer(UserPtr),
    /// An array of iovecs, and how many.
    Vector(UserPtr, usize),
    /// A message's header of the program's.
    Message(UserPtr),
}

impl FilledBytes {
    /// Those of a copy of the iovecs, as long as the request has it.
    pub(super) fn of(iovecs: &[Iovec]) -> Self {
        Self::Vector(io::ptr_of_slice(iovecs), iovecs.len())
    }
}
