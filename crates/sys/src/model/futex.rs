//! Replaces `futex` with `--cfg loom`: the same functions on the model's kernel.

use crate::model::{self, Awake, On};
use crate::sync::AtomicU32;
use core::sync::atomic::Ordering::Acquire;
use syscalls::Errno;

/// Sleeps while `*word == expected`, at most until `deadline_ns` of the model's time (`u64::MAX`:
/// without limit).
///
/// # Errors
/// `EAGAIN` the word differs, `ETIMEDOUT`.
pub fn futex_wait(word: &AtomicU32, expected: u32, deadline_ns: u64) -> Result<(), Errno> {
    let differs = |_: &mut model::Kernel| (word.load(Acquire) != expected).then_some(());
    match model::sleep_unless(On::Futex(address(word)), deadline_ns, differs) {
        Ok(()) => Err(Errno::EAGAIN),
        Err(Awake::TimedOut) => Err(Errno::ETIMEDOUT),
        Err(Awake::Woken | Awake::Ended) => Ok(()),
    }
}

/// Unblocks up to `n` sleepers on `word`.
pub fn futex_wake(word: &AtomicU32, n: u32) {
    model::with(|kernel| kernel.wake(On::Futex(address(word)), n));
}

fn address(word: &AtomicU32) -> usize {
    core::ptr::from_ref(word).addr()
}

/// As [`futex_wait`]: processes are threads in a model, and the word at the address lives as long
/// as it.
///
/// # Errors
/// Those of [`futex_wait`].
pub(crate) fn shared_wait(at: usize, expected: u32, deadline_ns: u64) -> Result<(), Errno> {
    // SAFETY: a ring's commons live as long as the model.
    futex_wait(unsafe { &*(at as *const AtomicU32) }, expected, deadline_ns)
}

/// As [`futex_wake`].
pub(crate) fn shared_wake(at: usize, n: u32) {
    model::with(|kernel| kernel.wake(On::Futex(at), n));
}
