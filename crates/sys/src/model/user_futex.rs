//! Replaces `user_futex::calls` with `--cfg loom`: the same functions on the model's kernel. A
//! waiter is interrupted while there is an alarm.

use super::waitv::FutexWaitv;
use crate::model::{self, On};
use crate::sync::AtomicU32;
use crate::user::UserPtr;
use core::sync::atomic::Ordering::Relaxed;
use syscalls::Errno;

/// Relaxed: the lock of the model's kernel around it orders the load.
fn load(at: usize) -> u32 {
    // SAFETY: a model's futexes and requeue_words are the model checker's atomics, and outlive all
    // that refers to them.
    unsafe { &*(at as *const AtomicU32) }.load(Relaxed)
}

pub(super) fn value(addr: UserPtr) -> Result<u32, Errno> {
    Ok(load(addr.addr()))
}

pub(super) fn wake(addr: usize, _is_private: bool, n: i32, mask: u32) -> Result<usize, Errno> {
    Ok(model::with(|kernel| kernel.wake_masked(On::Futex(addr), n.max(1) as u32, mask)))
}

pub(super) fn look_up(_addr: usize, _is_private: bool) -> Result<(), Errno> {
    Ok(())
}

pub(super) fn wait(waiter: FutexWaitv, mask: u32) -> Result<(), Errno> {
    sleep_on(&[waiter], mask).map(drop)
}

pub(super) fn wait_any(waiters: &[FutexWaitv]) -> Result<usize, Errno> {
    sleep_on(waiters, u32::MAX)
}

/// Checks each word and enqueues on it, one after the other: wakes and requeues can come in
/// between.
fn sleep_on(waiters: &[FutexWaitv], mask: u32) -> Result<usize, Errno> {
    loop {
        let mut sleep = model::Sleep::default();
        for waiter in waiters {
            let at = waiter.addr();
            if !sleep.enqueue(On::Futex(at), mask, || u64::from(load(at)) == waiter.value()) {
                return sleep.dequeue().ok_or(Errno::EAGAIN);
            }
        }
        let is_spurious = sleep.wait();
        match sleep.dequeue() {
            Some(nth) => return Ok(nth),
            None if is_spurious => {}
            None => return Err(Errno::EINTR),
        }
    }
}

pub(super) fn requeue_one(from: usize, value: u32, to: usize, _is_private: bool) -> Result<bool, Errno> {
    debug_assert_eq!(load(from), value, "only the caller changes it");
    Ok(model::with(|kernel| kernel.move_one(On::Futex(from), On::Futex(to))))
}
