//! Futex system calls on words of the program's, and on requeue words.

use super::waitv::FutexWaitv;
use crate::clock::timespec;
use crate::linux::general::{FUTEX_CMP_REQUEUE, FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE, FUTEX_WAIT_BITSET, FUTEX_WAKE_BITSET};
use crate::user::{self, UserPtr};
use syscalls::{Errno, Sysno, raw_syscall, syscall};

const fn flag(is_private: bool) -> u32 {
    if is_private { FUTEX_PRIVATE_FLAG } else { 0 }
}

pub(super) fn value(addr: UserPtr) -> Result<u32, Errno> {
    user::read(addr)
}

pub(super) fn wake(addr: usize, is_private: bool, n: i32, mask: u32) -> Result<usize, Errno> {
    // SAFETY: the kernel uses the address as a key, and checks it.
    unsafe { syscall!(Sysno::futex, addr, FUTEX_WAKE_BITSET | flag(is_private), n, 0, 0, mask) }
}

/// Whether the kernel finds a futex at `addr`. Requeues nobody to where they are: of all calls that
/// look the futex up this one neither wakes nor sleeps.
pub(super) fn look_up(addr: usize, is_private: bool) -> Result<(), Errno> {
    const NONE: u32 = 0;
    // SAFETY: the kernel uses the addresses as keys, and checks them.
    unsafe { syscall!(Sysno::futex, addr, FUTEX_REQUEUE | flag(is_private), NONE, NONE, addr, 0) }.map(drop)
}

/// Passes a deadline that never comes: only a wait with a deadline is not restarted after a signal.
pub(super) fn wait(waiter: FutexWaitv, mask: u32) -> Result<(), Errno> {
    let never = timespec(u64::MAX);
    let op = FUTEX_WAIT_BITSET | flag(waiter.is_private());
    // SAFETY: the kernel checks the address, and reads a live timespec.
    let r = unsafe { raw_syscall!(Sysno::futex, waiter.addr(), op, waiter.value(), &raw const never, 0, mask) };
    Errno::from_ret(r).map(drop)
}

pub(super) fn wait_any(waiters: &[FutexWaitv]) -> Result<usize, Errno> {
    // SAFETY: the kernel reads live structures, and checks the addresses in them.
    unsafe { syscall!(Sysno::futex_waitv, waiters.as_ptr(), waiters.len(), 0, 0, 0) }
}

/// Requeues one waiter at `from`, whose word holds `value`. Returns whether there was one.
pub(super) fn requeue_one(from: usize, value: u32, to: usize, is_private: bool) -> Result<bool, Errno> {
    const WAKE_NONE: u32 = 0;
    const MOVE_ONE: u32 = 1;
    let op = FUTEX_CMP_REQUEUE | flag(is_private);
    // SAFETY: the kernel reads 4 bytes of a live requeue word, and uses the other address as a key.
    unsafe { syscall!(Sysno::futex, from, op, WAKE_NONE, MOVE_ONE, to, value) }.map(|moved| moved == 1)
}
