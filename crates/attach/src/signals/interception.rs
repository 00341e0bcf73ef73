//! Putting our handler before the program's.

use core::sync::atomic::{AtomicBool, Ordering};

use uringlet_sys::linux::general::SIGXFSZ;
use uringlet_sys::signal::{self, KernelSigaction};
use uringlet_sys::thread::{INTERRUPT_SIGNAL, install_interrupt_handler};

use super::handlers::{RESETHAND, RESTORER, SIG_DFL, SIG_IGN, SIGINFO, SIGNALS, replace};
use super::on_signal::our_handler;
use super::{fault_check, file_size};

/// The signals that glibc and musl use themselves.
const LIBC_SIGNALS: core::ops::RangeInclusive<u32> = 32..=33;

static IS_INTERCEPTING: AtomicBool = AtomicBool::new(false);

/// The program is about to make a ring.
pub(crate) fn intercept() {
    if IS_INTERCEPTING.swap(true, Ordering::AcqRel) {
        return;
    }
    // The timer that ends a wait needs it, also while the engine has no thread.
    install_interrupt_handler();
    for signal in 1..=SIGNALS {
        intercept_signal(signal);
    }
    fault_check::enable();
}

/// After the program has set an action.
pub(crate) fn action_changed(signal: u32) {
    if IS_INTERCEPTING.load(Ordering::Acquire) {
        intercept_signal(signal);
        fault_check::action_changed(signal);
    }
}

/// Puts our handler in the place of the program's, if it has one. libc's own signals and the
/// engine's stay as they are.
fn intercept_signal(signal: u32) {
    if !(1..=SIGNALS).contains(&signal) || signal == INTERRUPT_SIGNAL || LIBC_SIGNALS.contains(&signal) {
        return;
    }
    let Ok(action) = signal::action(signal) else { return };
    if signal == SIGXFSZ && action.handler == SIG_DFL {
        let Some(ours) = file_size::default_stand_in(our_handler()) else { return };
        return replace(signal, &action, &ours);
    }
    if action.handler <= SIG_IGN || action.handler == our_handler() || action.flags & RESTORER == 0 {
        return;
    }
    let flags = (action.flags | SIGINFO) & !RESETHAND;
    replace(signal, &action, &KernelSigaction { handler: our_handler(), flags, ..action });
}
