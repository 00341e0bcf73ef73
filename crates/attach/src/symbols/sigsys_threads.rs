//! The threads of a static program that have asked to block SIGSYS: there is no libc that keeps a
//! value for each thread.
//!
//! Differs: of more threads than there are slots some are told that they do not block it; so is, by
//! chance, a thread with the number of one that has ended.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use uringlet_sys::process::tid;

use crate::convert::address;

const SLOTS: usize = 64;
const NO_THREAD: u32 = 0;

/// Thread numbers.
static THREADS: [AtomicU32; SLOTS] = [const { AtomicU32::new(NO_THREAD) }; SLOTS];
/// A thread has been noted: until then the others need not be looked up.
static IS_USED: AtomicBool = AtomicBool::new(false);

fn slot_of(thread: u32) -> Option<&'static AtomicU32> {
    THREADS.iter().find(|slot| slot.load(Ordering::Relaxed) == thread)
}

/// Whether the calling thread has asked to block it.
pub(super) fn has_blocked() -> bool {
    IS_USED.load(Ordering::Relaxed) && slot_of(tid()).is_some()
}

/// Notes what the calling thread has asked for.
pub(super) fn keep_blocked(is_blocked: bool) {
    if !is_blocked && !IS_USED.load(Ordering::Relaxed) {
        return;
    }
    IS_USED.store(true, Ordering::Relaxed);
    let own = tid();
    match (slot_of(own), is_blocked) {
        (None, true) => note(own),
        (Some(slot), false) => slot.store(NO_THREAD, Ordering::Relaxed),
        (Some(_), true) | (None, false) => {}
    }
}

/// Into a free slot, or else that of another thread.
fn note(thread: u32) {
    let is_taken = |slot: &AtomicU32| slot.compare_exchange(NO_THREAD, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if !THREADS.iter().any(is_taken) {
        THREADS[address(u64::from(thread)) % SLOTS].store(thread, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_is_told_what_it_has_asked_for() {
        assert!(!has_blocked());
        keep_blocked(false);
        keep_blocked(true);
        assert!(has_blocked());
        std::thread::spawn(|| assert!(!has_blocked())).join().unwrap();
        // Others push it out.
        (0..128).for_each(|number| note(1 << 30 | number));
        assert!(!has_blocked());
        keep_blocked(true);
        assert!(has_blocked());
        keep_blocked(false);
        assert!(!has_blocked());
    }
}
