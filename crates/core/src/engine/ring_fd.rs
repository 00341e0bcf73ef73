//! What a ring's descriptor is not to be used for, and what comes before a read of others.

use super::Engine;
use crate::driver::leave::look_at_files;
use crate::state::{LockOwner, RINGS};
use uringlet_sys::fd::RingFd;
use uringlet_sys::{UserPtr, fd_table, io, user};

impl Engine {
    /// Before the program reads from a number by itself: a readiness that the read may take back is
    /// told to the POLL_ADD that waits for it, if it was not yet (`docs/decisions/0030`). One table
    /// load if none waits.
    #[inline]
    pub fn before_read(&'static self, fd: i32) {
        if let Some(index) = fd_table::untold_ring(fd) {
            self.tell_polls(index);
            // What was told just now is what the program is about to read.
            fd_table::clear_told(fd);
        }
    }

    #[cold]
    fn tell_polls(&'static self, index: u32) {
        if let Some(ring) = RINGS.get(index).filter(|_| !self.is_foreign_process()) {
            look_at_files(ring);
        }
    }

    /// Whether a number is a ring's. Where it is known as one, its file is looked at: libc may have
    /// closed it and given it to another file.
    #[must_use]
    pub fn is_ring(&'static self, fd: i32) -> bool {
        let ring = fd_table::ring_index(fd).filter(|_| !self.is_foreign_process()).and_then(|index| RINGS.get(index));
        ring.and_then(|ring| ring.lock(LockOwner::Worker)).is_some_and(|guard| {
            let own = guard.fd.as_ref().map(RingFd::ino);
            own.is_some() && own == io::fstat(fd).ok().map(|stat| stat.ino)
        })
    }

    /// Whether the `struct msghdr` at `message` sends a ring through the Unix socket `fd`. The
    /// kernel refuses that: the ring could hold the socket that holds the ring.
    #[must_use]
    pub fn passes_a_ring(&'static self, fd: i32, message: UserPtr) -> bool {
        /// Where its address and length of the ancillary data are.
        const CONTROL: usize = 32;
        let Ok([control, len]) = user::read::<[u64; 2]>(message.add(CONTROL)) else { return false };
        len > 0 && self.holds_a_ring(UserPtr::at(control), len as usize) && io::is_unix_socket(fd)
    }

    /// Whether one of the control messages is an `SCM_RIGHTS` with a ring.
    fn holds_a_ring(&'static self, control: UserPtr, len: usize) -> bool {
        const HEADER: usize = 16;
        /// `SOL_SOCKET` and `SCM_RIGHTS`, as two integers of the header.
        const RIGHTS: u64 = 1 << 32 | 1;
        let mut at = 0;
        while at + HEADER <= len {
            let Ok([message_len, kind]) = user::read::<[u64; 2]>(control.add(at)) else { return false };
            let end = at.saturating_add(message_len as usize);
            if (message_len as usize) < HEADER || end > len {
                return false;
            }
            if kind == RIGHTS && self.is_a_ring_among(control.add(at + HEADER), message_len as usize - HEADER) {
                return true;
            }
            at = end.next_multiple_of(8);
        }
        false
    }

    fn is_a_ring_among(&'static self, numbers: UserPtr, bytes: usize) -> bool {
        /// `SCM_MAX_FD`
        const MOST: usize = 253;
        let mut fds = [-1_i32; MOST];
        let fds = &mut fds[..(bytes / size_of::<i32>()).min(MOST)];
        // A number that is none is refused before those behind it are looked at.
        user::read_slice(fds, numbers).is_ok() && fds.iter().take_while(|&&fd| fd >= 0).any(|&fd| self.is_ring(fd))
    }
}
