//! Threads with a descriptor table of their own: after unshare(2) with `CLONE_FILES`, or
//! close_range(2) with `CLOSE_RANGE_UNSHARE`.
//!
//! A number means one file in one table, and another file in another table. The engine has one set
//! of facts about numbers (`fd_table`), and its own descriptors are in one table: that of the
//! thread that made the rings.
//!
//! - The only thread of a program: the engine's threads share its old table. They end, and new ones
//!   share the new one. A worker that is busy runs what it has, on the files of before.
//! - One thread of several: it leaves the table of the rings. It gets no ring and may not use one
//!   (`EPERM`), and what it does with numbers is its own business.
//!
//! A thread that has left, and each thread that it makes, is known by a ring's descriptor: the
//! engine's end is not in its table, since it was closed there, or made later.
//!
//! Differs: in the kernel a thread of several may do so and go on to use rings.

use super::Engine;
use crate::identity;
use crate::identity_call::IdentityChange;
use uringlet_sys::linux::general::CLONE_FILES;
use uringlet_sys::{Sysno, fd_table, io, thread};

impl Engine {
    /// The calling thread, if it is the only one of the program, gets a descriptor table of its
    /// own. `false`: it has not.
    pub(super) fn unshare_files(&'static self) -> bool {
        let Some(change) = IdentityChange::of(Sysno::unshare, [CLONE_FILES as usize, 0, 0]) else { return false };
        if !identity::has_ring() || !thread::is_program_alone() {
            return false;
        }
        self.before_identity_call(change);
        let is_done = io::unshare(CLONE_FILES).is_ok();
        self.after_identity_call(change, if is_done { 0 } else { -1 });
        is_done
    }
}

/// The calling thread, one of several, has left the table of the rings: closes the copies of the
/// engine's descriptors in its new table.
pub(super) fn leave_table() {
    identity::note_split_files();
    let mut from = 0;
    while let Some(fd) = fd_table::next_internal(from) {
        let _ = io::close(fd.cast_signed());
        from = fd + 1;
    }
}
