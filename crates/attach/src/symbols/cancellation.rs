//! `pthread_setcanceltype`: threads that may be cancelled at any instruction.
//!
//! libc cancels such a thread by a signal whose handler ends the thread. In the engine the thread
//! may hold a lock, or be the one that the others rely on to drive the ring. So from the first
//! `PTHREAD_CANCEL_ASYNCHRONOUS` on that signal is deferred, as the program's own are (`signals`).
//! libc installs its handler in the first `pthread_cancel`, which sends the signal as well: the
//! handler has to be there before.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use uringlet_sys::lock::{futex_wait, futex_wake};

use super::next::{PTHREAD_CANCEL, PTHREAD_CREATE, PTHREAD_JOIN, PTHREAD_SETCANCELTYPE};
use crate::arch::weak_address;
use crate::convert::Register;
use crate::signals;

/// The same in glibc and musl.
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

/// A thread of the program has chosen asynchronous cancellation.
static IS_ASYNC_USED: AtomicBool = AtomicBool::new(false);
/// libc's handler is deferred.
static IS_DEFERRED: AtomicBool = AtomicBool::new(false);

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    if kind == PTHREAD_CANCEL_ASYNCHRONOUS && !IS_ASYNC_USED.swap(true, Ordering::AcqRel) && signals::is_intercepting() {
        defer_cancels();
    }
    PTHREAD_SETCANCELTYPE.call_int([kind.reg(), old.reg(), 0, 0, 0, 0])
}

/// The program is about to make a ring.
pub(crate) fn before_ring() {
    if IS_ASYNC_USED.load(Ordering::Acquire) {
        defer_cancels();
    }
}

fn defer_cancels() {
    if !IS_DEFERRED.swap(true, Ordering::AcqRel) && install_handler() {
        signals::intercept_cancels(cancel_signal());
    }
}

/// The signal that this libc cancels by.
fn cancel_signal() -> u32 {
    let is_glibc = weak_address!("gnu_get_libc_version") != 0;
    if is_glibc { 32 } else { 33 }
}

/// 1: the thread of [`install_handler`] may end.
static MAY_END: AtomicU32 = AtomicU32::new(0);

/// Makes libc install its handler: cancels a thread that does nothing, and reaches no point where
/// it would notice.
fn install_handler() -> bool {
    unsafe extern "C" fn wait(_: *mut c_void) -> *mut c_void {
        while MAY_END.load(Ordering::Acquire) == 0 {
            let _ = futex_wait(&MAY_END, 0, u64::MAX);
        }
        core::ptr::null_mut()
    }
    let mut thread = 0_usize;
    let start = wait as *const () as usize;
    if PTHREAD_CREATE.call_int([(&raw mut thread).reg(), 0, start, 0, 0, 0]) != 0 {
        IS_DEFERRED.store(false, Ordering::Release);
        return false;
    }
    PTHREAD_CANCEL.call_int([thread, 0, 0, 0, 0, 0]);
    MAY_END.store(1, Ordering::Release);
    futex_wake(&MAY_END, u32::MAX);
    PTHREAD_JOIN.call_int([thread, 0, 0, 0, 0, 0]);
    true
}
