//! `IORING_REGISTER_RING_FDS`: small numbers for rings, so that enter() looks up no descriptor.

use crate::driver::closing;
use crate::state::{KERNEL_SLOTS, LockOwner, RINGS, Ring, register_ring, unregister_ring};
use uringlet_abi::register::RsrcUpdate;
use uringlet_sys::{Errno, UserPtr, user};

/// Numbers that one call may name, as the kernel's.
const MAX_PER_CALL: u32 = KERNEL_SLOTS;
const ANY: u32 = u32::MAX;

/// A ring that is only ever named by its registered number (`REGISTERED_FD_ONLY`): its descriptor
/// closes, it lives on.
pub(super) fn register_only(ring: &'static Ring, app_fd: i32) -> Result<usize, Errno> {
    let number = register_ring(ring, None)?;
    if let Some(mut guard) = ring.lock(LockOwner::Worker) {
        guard.known_fds = 0;
        guard.fd = None;
    }
    uringlet_sys::fd_table::set_ring_index(app_fd, None);
    let _ = uringlet_sys::io::close(app_fd);
    Ok(number as usize)
}

/// Registers `n` rings. Returns how many were.
pub(super) fn register(arg: UserPtr, n: u32) -> Result<usize, Errno> {
    for_each(arg, n, |update, at| {
        if update.resv != 0 || (update.offset != ANY && update.offset >= MAX_PER_CALL) {
            return Err(Errno::EINVAL);
        }
        let ring = RINGS.find(update.data as u32 as i32)?;
        let number = if update.offset == ANY { None } else { Some(update.offset) };
        update.offset = register_ring(ring, number)?;
        user::write(at, update)
    })
}

/// Unregisters `n` rings. Returns how many were.
pub(super) fn unregister(arg: UserPtr, n: u32) -> Result<usize, Errno> {
    for_each(arg, n, |update, _| {
        if update.resv != 0 || update.data != 0 {
            return Err(Errno::EINVAL);
        }
        if let Some(ring) = unregister_ring(update.offset)? {
            closing::end_if_unnamed(ring);
        }
        Ok(())
    })
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
