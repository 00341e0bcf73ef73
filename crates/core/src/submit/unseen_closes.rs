//! Numbers of a program whose closes are not seen (`uringlet::Ring`): what is known of one may be
//! another file's.
//!
//! The fast path does not ask: a transfer at a position fails on a file without positions before it
//! has done anything, and all else is right on any file. Each other request asks what its numbers
//! lead to, by fstat(2).

use crate::file::FileKind;
use crate::state::{LockOwner, RINGS, UringGuard};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_abi::{Opcode, Sqe, op_flags, sqe};
use uringlet_sys::fd_table;

static ARE_EXPECTED: AtomicBool = AtomicBool::new(false);

/// From now on.
pub(crate) fn expect() {
    ARE_EXPECTED.store(true, Relaxed);
}

/// Before a request is made of the SQE.
#[inline]
pub(super) fn look(guard: &mut UringGuard, sqe: &Sqe) {
    if ARE_EXPECTED.load(Relaxed) {
        look_at_numbers(guard, sqe);
    }
}

#[cold]
fn look_at_numbers(guard: &mut UringGuard, sqe: &Sqe) {
    for fd in descriptors(sqe).into_iter().flatten() {
        let is_other_file = !fd_table::is_ours(fd) && FileKind::has_changed(fd);
        if is_other_file && fd_table::has_users(fd) {
            guard.unlocked(|| forget_registrations(fd));
        }
    }
}

/// The file's registrations for poll ended with it.
fn forget_registrations(fd: i32) {
    for ring in RINGS.all() {
        if let Some(mut guard) = ring.lock(LockOwner::Worker)
            && let Some(poller) = &mut guard.res.poller
        {
            poller.invalidate(fd);
        }
    }
}

/// The numbers of the files that a request uses: not the registered ones.
fn descriptors(request: &Sqe) -> [Option<i32>; 2] {
    let is_splice = matches!(Opcode::from_u8(request.opcode), Some(Opcode::Splice | Opcode::Tee));
    let is_plain = request.flags & sqe::FIXED_FILE == 0 && request.fd >= 0;
    let has_plain_input = is_splice && request.op_flags & op_flags::SPLICE_F_FD_IN_FIXED == 0;
    [is_plain.then_some(request.fd), has_plain_input.then_some(request.splice_fd_in)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_request_are_those_of_its_files() {
        let read = Sqe { opcode: Opcode::Read as u8, fd: 5, splice_fd_in: 6, ..Sqe::default() };
        assert_eq!(descriptors(&read), [Some(5), None]);
        assert_eq!(descriptors(&Sqe { flags: sqe::FIXED_FILE, ..read }), [None, None]);
        assert_eq!(descriptors(&Sqe { fd: -1, ..read }), [None, None]);
        let splice = Sqe { opcode: Opcode::Splice as u8, ..read };
        assert_eq!(descriptors(&splice), [Some(5), Some(6)]);
        assert_eq!(descriptors(&Sqe { op_flags: op_flags::SPLICE_F_FD_IN_FIXED, ..splice }), [Some(5), None]);
        assert_eq!(descriptors(&Sqe { opcode: 255, ..read }), [Some(5), None]);
    }
}
