//! Messages from ring to ring. The sender's lock is released before the other ring's is taken: two
//! rings that send to each other at once would deadlock otherwise.

use crate::ops::OpFile;
use crate::ops::fs::install_file;
use crate::ops::msg_ring::{MsgRing, RingMessage};
use crate::ring_resources::RingResources;
use crate::state::{LockOwner, RINGS, Ring, UringGuard};
use uringlet_abi::{Cqe, cqe, setup};
use uringlet_sys::fd::close_keeping_locks;
use uringlet_sys::{Errno, io};

/// Sends a message.
pub(super) fn send(guard: &mut UringGuard, op: MsgRing, file: OpFile) -> Result<usize, Errno> {
    let target = guard.unlocked(|| ring_of(file))?;
    match op.message {
        RingMessage::Cqe { res, flags } => guard.unlocked(|| post(target, Cqe { user_data: op.user_data, res, flags })).map(|()| 0),
        RingMessage::File { .. } => send_file(guard, target, op),
        RingMessage::None => Err(Errno::EINVAL),
    }
}

/// Sends a CQE to the ring of a descriptor, from no ring.
///
/// # Errors
/// `EINVAL` not a CQE; `EBADF`; `EBADFD` no ring, or a disabled one.
pub(crate) fn send_without_ring(op: &MsgRing, fd: i32) -> Result<usize, Errno> {
    // The ring is checked before the fields of the message.
    let target = ring_of(OpFile { fd, is_fixed: false })?;
    let RingMessage::Cqe { res, flags } = op.message else { return Err(Errno::EINVAL) };
    post(target, Cqe { user_data: op.user_data, res, flags }).map(|()| 0)
}

fn ring_of(file: OpFile) -> Result<&'static Ring, Errno> {
    if file.is_fixed {
        // A ring is never registered.
        return Err(Errno::EBADFD);
    }
    RINGS.find(file.fd).map_err(|errno| if errno == Errno::EOPNOTSUPP { Errno::EBADFD } else { errno })
}

/// Locks the target ring, unless it is disabled.
fn lock(target: &'static Ring) -> Result<UringGuard, Errno> {
    target.lock(LockOwner::Worker).filter(|guard| !guard.is_disabled).ok_or(Errno::EBADFD)
}

fn post(target: &'static Ring, cqe: Cqe) -> Result<(), Errno> {
    let mut other = lock(target)?;
    post_message(&mut other.res, cqe);
    Ok(())
}

/// Posts a message's CQE to the ring that it is for.
fn post_message(res: &mut RingResources, cqe: Cqe) {
    res.trace_posted(cqe);
    res.cq.note_async();
    // A program that reaps takes the flag at its word, and steps over two slots.
    if cqe.flags & cqe::BIG != 0 && res.setup & setup::CQE_MIXED != 0 {
        res.post_big(cqe, [0, 0]);
    } else {
        res.post(cqe);
    }
}

fn send_file(guard: &mut UringGuard, target: &'static Ring, op: MsgRing) -> Result<usize, Errno> {
    let RingMessage::File { from, to, is_silent } = op.message else { return Err(Errno::EINVAL) };
    if core::ptr::eq(target, guard.ring) {
        return Err(Errno::EINVAL);
    }
    let node = guard.unlocked(|| lock(target).map(drop)).and_then(|()| guard.res.files.get(from).cloned().ok_or(Errno::EBADF))?;
    let sent = guard.unlocked(|| {
        let number = io::dup_cloexec(node.fd.number())?;
        let mut other = lock(target).inspect_err(|_| close_keeping_locks(io::number_of(number)))?;
        let slot = install_file(&mut other.res, number as i32, to)?;
        if !is_silent {
            post_message(&mut other.res, Cqe { user_data: op.user_data, res: slot as i32, flags: 0 });
        }
        Ok(slot)
    });
    guard.res.release_file(node);
    sent
}
