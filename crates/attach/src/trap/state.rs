//! What is trapped in this process, as flags that any module may ask for.

use core::sync::atomic::{AtomicBool, Ordering};

use uringlet_sys::linux::general::SIGSYS;

/// `si_errno` of our traps: the program's own filters have other numbers.
pub(super) const TRAP_DATA: u16 = 0x7572;

/// SIGSYS is ours.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// `--trap` was given.
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// The program's own code may have run.
static HAS_STARTED: AtomicBool = AtomicBool::new(false);
/// The program has a filter of its own, which may forbid another one.
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether calls are, or may be, trapped.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// True once.
pub(super) fn begin() -> bool {
    !IS_ON.swap(true, Ordering::AcqRel)
}

/// Whether this is SIGSYS, and calls are trapped.
pub(crate) fn is_trap_signal(signal: u32) -> bool {
    signal == SIGSYS && is_on()
}

/// The constructor is done.
pub(crate) fn note_start() {
    HAS_STARTED.store(true, Ordering::Relaxed);
}

/// Whether SIGSYS is ours, or can be: once the program runs, its threads may have blocked it.
pub(super) fn can_be_on() -> bool {
    is_on() || !HAS_STARTED.load(Ordering::Relaxed)
}

/// Whether code that is made later is covered.
#[inline]
pub(crate) fn covers_new_code() -> bool {
    IS_REQUESTED.load(Ordering::Relaxed)
}

/// Code that is made later is covered from now on.
pub(super) fn cover_new_code() {
    IS_REQUESTED.store(true, Ordering::Relaxed);
}

/// The program has installed a filter: another one may be refused from now on, or kill.
pub(crate) fn note_filter() {
    IS_CONFINED.store(true, Ordering::Relaxed);
}

/// Whether the program has installed one.
pub(super) fn is_confined() -> bool {
    IS_CONFINED.load(Ordering::Relaxed)
}
