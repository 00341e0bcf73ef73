//! The program's handlers, kept here while the kernel's is ours.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use uringlet_sys::linux::general::{SA_RESETHAND, SA_RESTART, SA_RESTORER, SA_SIGINFO};
use uringlet_sys::signal::{self, KernelSigaction};

/// The highest signal.
pub(super) const SIGNALS: u32 = 64;
/// The handler that stands for the default, and the one for an ignored signal.
pub(super) const SIG_DFL: usize = 0;
pub(super) const SIG_IGN: usize = 1;

/// A [`Handler`] that any thread may replace.
struct HandlerCell {
    address: AtomicUsize,
    flags: AtomicU64,
}

/// Each signal's handler: valid while the kernel's is ours.
static HANDLERS: [HandlerCell; SIGNALS as usize + 1] =
    [const { HandlerCell { address: AtomicUsize::new(0), flags: AtomicU64::new(0) } }; SIGNALS as usize + 1];

/// A program's handler, with the flags that are not passed on to the kernel as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handler {
    pub(crate) address: usize,
    pub(crate) flags: u64,
}

/// The flags that a handler called by ours differs in from what the kernel knows.
pub(crate) const HANDLER_FLAGS: u64 = SIGINFO | RESETHAND | SA_RESTART as u64;
/// `SA_SIGINFO`
pub(super) const SIGINFO: u64 = SA_SIGINFO as u64;
/// `SA_RESETHAND`
pub(super) const RESETHAND: u64 = SA_RESETHAND as u64;
/// `SA_RESTORER`
pub(super) const RESTORER: u64 = SA_RESTORER as u64;

/// The program's handler for a signal, if the kernel's is ours.
pub(crate) fn program_handler(signal: u32) -> Option<Handler> {
    let cell = HANDLERS.get(signal as usize)?;
    Some(Handler { address: cell.address.load(Ordering::Acquire), flags: cell.flags.load(Ordering::Relaxed) })
}

/// Keeps the program's action.
pub(super) fn keep(signal: u32, program: &KernelSigaction) {
    let cell = &HANDLERS[signal as usize];
    cell.flags.store(program.flags, Ordering::Relaxed);
    cell.address.store(program.handler, Ordering::Release);
}

/// Keeps the program's action and gives ours to the kernel.
pub(super) fn replace(signal: u32, program: &KernelSigaction, ours: &KernelSigaction) {
    keep(signal, program);
    // SAFETY: callers pass the program's own action with our handler in it, or the stand-in of the
    // default.
    let _ = unsafe { signal::set_action(signal, ours) };
}

/// The program's action is the default from now on, the kernel's stays ours.
pub(super) fn forget(signal: u32) {
    HANDLERS[signal as usize].address.store(SIG_DFL, Ordering::Release);
}

/// Restores the default action.
pub(super) fn reset(signal: u32) {
    // SAFETY: the default action has no handler.
    let _ = unsafe { signal::set_action(signal, &KernelSigaction::default()) };
}
