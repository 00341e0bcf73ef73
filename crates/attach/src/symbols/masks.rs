//! sigprocmask(2) and pthread_sigmask(3): while calls are trapped (`trap`), no thread blocks
//! SIGSYS. A thread that has asked for it is told that it does.
//!
//! Differs: a thread that is made by one that has blocked SIGSYS is told that it does not. The
//! masks of waits (sigsuspend, ppoll) are the program's own.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use uringlet_sys::linux::general::{SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGSYS};
use uringlet_sys::passthrough::pass_through;
use uringlet_sys::signal::bit;
use uringlet_sys::{Sysno, UserPtr, user};

use super::next::{
    NextFunction, PTHREAD_GETSPECIFIC, PTHREAD_KEY_CREATE, PTHREAD_KEY_DELETE, PTHREAD_SETSPECIFIC, PTHREAD_SIGMASK, SIGPROCMASK,
};
use super::sigsys_threads;
use crate::convert::{Register, low_u32};
use crate::static_file::is_static;
use crate::trap;

/// libc's `sigset_t`, glibc's and musl's. The kernel's is the first word.
type LibcSigset = [u64; 16];

/// libc's key of the value that says whether a thread has asked to block SIGSYS, plus one. 0: none
/// has, so far.
static KEY: AtomicUsize = AtomicUsize::new(0);

/// Whether this thread has asked to block SIGSYS.
fn has_blocked() -> bool {
    if is_static() {
        return sigsys_threads::has_blocked();
    }
    match KEY.load(Ordering::Acquire) {
        0 => false,
        key => PTHREAD_GETSPECIFIC.call([key - 1, 0, 0, 0, 0, 0]) != 0,
    }
}

/// Keeps what this thread has asked for.
fn keep_blocked(is_blocked: bool) {
    if is_static() {
        sigsys_threads::keep_blocked(is_blocked);
    } else if (is_blocked || KEY.load(Ordering::Acquire) != 0)
        && let Some(key) = key()
    {
        PTHREAD_SETSPECIFIC.call([key, is_blocked.into(), 0, 0, 0, 0]);
    }
}

fn key() -> Option<usize> {
    let known = KEY.load(Ordering::Acquire);
    if known != 0 {
        return Some(known - 1);
    }
    PTHREAD_SETSPECIFIC.function()?;
    let mut key = 0_u32;
    if PTHREAD_KEY_CREATE.function().is_none() || PTHREAD_KEY_CREATE.call_int([(&raw mut key).reg(), 0, 0, 0, 0, 0]) != 0 {
        return None;
    }
    match KEY.compare_exchange(0, key.reg() + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(key.reg()),
        Err(other) => {
            PTHREAD_KEY_DELETE.call([key.reg(), 0, 0, 0, 0, 0]);
            Some(other - 1)
        }
    }
}

/// A change of a thread's mask, and what it was told before.
struct MaskChange {
    how: u32,
    asked: Option<u64>,
    had_blocked: bool,
}

impl MaskChange {
    fn new(how: u32, asked: Option<u64>) -> Self {
        Self { how, asked, had_blocked: has_blocked() }
    }

    /// After the kernel has made it. Returns the bit to be added to the mask before.
    fn done(&self) -> u64 {
        if let Some(asked) = self.asked {
            let names_it = asked & bit(SIGSYS) != 0;
            match self.how {
                SIG_BLOCK if names_it => keep_blocked(true),
                SIG_UNBLOCK if names_it => keep_blocked(false),
                SIG_SETMASK => keep_blocked(names_it),
                _ => {}
            }
        }
        if self.had_blocked { bit(SIGSYS) } else { 0 }
    }
}

/// Calls libc's function with a set that lacks SIGSYS.
unsafe fn change(next: &NextFunction, how: c_int, set: *const LibcSigset, old: *mut LibcSigset) -> c_int {
    if !trap::is_on() {
        return next.call_int([how.reg(), set.reg(), old.reg(), 0, 0, 0]);
    }
    // SAFETY: libc reads it as well, and fills `old` below.
    let mut passed = unsafe { set.as_ref() }.copied();
    let change = MaskChange::new(how.cast_unsigned(), passed.map(|set| set[0]));
    let passed = passed.as_mut().map_or(null_mut(), |set| {
        set[0] &= !bit(SIGSYS);
        core::ptr::from_mut(set)
    });
    let result = next.call_int([how.reg(), passed.reg(), old.reg(), 0, 0, 0]);
    if result == 0 {
        let shown = change.done();
        // SAFETY: see above.
        if let Some(old) = unsafe { old.as_mut() } {
            old[0] |= shown;
        }
    }
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sigprocmask(how: c_int, set: *const c_void, old: *mut c_void) -> c_int {
    // SAFETY: the program's own call with the program's own arguments.
    unsafe { change(&SIGPROCMASK, how, set.cast(), old.cast()) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const c_void, old: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { change(&PTHREAD_SIGMASK, how, set.cast(), old.cast()) }
}

/// rt_sigprocmask(2) without libc, while calls are trapped: its result.
pub(crate) fn change_raw_mask(args: [usize; 6]) -> isize {
    let [how, set, old, size, a5, a6] = args;
    // An address that cannot be read is the kernel's to refuse.
    let asked = if set == 0 { None } else { user::read::<u64>(UserPtr::new(set)).ok() };
    let change = MaskChange::new(low_u32(how), asked);
    let passed = asked.map(|asked| asked & !bit(SIGSYS));
    let set = passed.as_ref().map_or(set, |passed| core::ptr::from_ref(passed).addr());
    // SAFETY: the program's own call; the mask in its place is live.
    let result = unsafe { pass_through(Sysno::rt_sigprocmask, [how, set, old, size, a5, a6]) };
    if result == 0 {
        let shown = change.done();
        if old != 0
            && shown != 0
            && let Ok(told) = user::read::<u64>(UserPtr::new(old))
        {
            // If the program has unmapped it meanwhile, nobody reads it.
            let _ = user::write(UserPtr::new(old), &(told | shown));
        }
    }
    result
}
