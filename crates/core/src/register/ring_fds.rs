//! `IORING_REGISTER_RING_FDS`: small numbers for rings, so that enter() looks up no descriptor.
//!
//! The kernel keeps sixteen a thread. Here the numbers are the process': a thread may use one that another registered,
//! which the kernel would refuse; no program can rely on that refusal.

use crate::driver::closing;
use crate::state::{LockOwner, RINGS, Ring};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use uringlet_abi::register::RsrcUpdate;
use uringlet_sys::{Errno, UserPtr, user};

/// Rings that can be registered in a process.
const SLOTS: usize = 1024;
/// Slots that one call may name, as the kernel's.
const MAX_PER_CALL: u32 = 16;
const ANY: u32 = u32::MAX;

/// The place of each registered ring + 1; 0 for none.
static REGISTERED: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

/// The ring with this registered number.
#[inline]
pub(crate) fn registered_ring(index: u32) -> Result<&'static Ring, Errno> {
    let slot = REGISTERED.get(index as usize).ok_or(Errno::EINVAL)?;
    // An empty number that the kernel does not have either is a bad argument, not a bad descriptor.
    let none = if index < MAX_PER_CALL { Errno::EBADF } else { Errno::EINVAL };
    let ring_index = slot.load(Acquire).checked_sub(1).ok_or(none)?;
    RINGS.get(ring_index).ok_or(Errno::EBADF)
}

/// A ring that is only ever named by its registered number (`REGISTERED_FD_ONLY`): its descriptor closes, it lives on.
pub(super) fn register_only(ring: &'static Ring, app_fd: i32) -> Result<usize, Errno> {
    let slot = take_slot(ring, 0..SLOTS)?;
    if let Some(mut guard) = ring.lock(LockOwner::Worker) {
        guard.known_fds = 0;
        guard.fd = None;
    }
    uringlet_sys::fd_table::set_ring_index(app_fd, None);
    let _ = uringlet_sys::io::close(app_fd);
    Ok(slot)
}

fn take_slot(ring: &'static Ring, mut range: core::ops::Range<usize>) -> Result<usize, Errno> {
    range.find(|&i| REGISTERED[i].compare_exchange(0, ring.index + 1, AcqRel, Acquire).is_ok()).ok_or(Errno::EBUSY)
}

/// Registers `n` rings; how many were.
pub(super) fn register(arg: UserPtr, n: u32) -> Result<usize, Errno> {
    for_each(arg, n, |update, at| {
        if update.resv != 0 || (update.offset != ANY && update.offset >= MAX_PER_CALL) {
            return Err(Errno::EINVAL);
        }
        let ring = RINGS.find(update.data as u32 as i32)?;
        let range = if update.offset == ANY { 0..SLOTS } else { update.offset as usize..update.offset as usize + 1 };
        update.offset = take_slot(ring, range)? as u32;
        user::write(at, update)
    })
}

/// Unregisters `n` rings; how many were.
pub(super) fn unregister(arg: UserPtr, n: u32) -> Result<usize, Errno> {
    for_each(arg, n, |update, _| {
        if update.resv != 0 || update.data != 0 {
            return Err(Errno::EINVAL);
        }
        let slot = REGISTERED.get(update.offset as usize).ok_or(Errno::EINVAL)?;
        let ring_index = slot.swap(0, AcqRel);
        if let Some(ring) = ring_index.checked_sub(1).and_then(|ring_index| RINGS.get(ring_index)) {
            closing::end_if_unnamed(ring);
        }
        Ok(())
    })
}

/// Whether the ring in this place has a registered number.
pub(crate) fn is_registered(ring_index: u32) -> bool {
    REGISTERED.iter().any(|slot| slot.load(Acquire) == ring_index + 1)
}

/// The ring in this place has ended: its registered numbers are free.
pub(crate) fn forget(ring_index: u32) {
    for slot in &REGISTERED {
        let _ = slot.compare_exchange(ring_index + 1, 0, AcqRel, Acquire);
    }
}

fn for_each(arg: UserPtr, n: u32, mut f: impl FnMut(&mut RsrcUpdate, UserPtr) -> Result<(), Errno>) -> Result<usize, Errno> {
    if n == 0 || n > MAX_PER_CALL {
        return Err(Errno::EINVAL);
    }
    for done in 0..n as usize {
        let at = arg.add(done * size_of::<RsrcUpdate>());
        let result = user::read(at).and_then(|mut update| f(&mut update, at));
        if let Err(errno) = result {
            return if done > 0 { Ok(done) } else { Err(errno) };
        }
    }
    Ok(n as usize)
}
