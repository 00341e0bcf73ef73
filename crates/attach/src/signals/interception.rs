//! Putting our handler before the program's.

use core::sync::atomic::{AtomicBool, Ordering};

use uringlet_sys::linux::general::{SA_ONSTACK, SIGXFSZ};
use uringlet_sys::signal::{self, KernelSigaction};
use uringlet_sys::thread::{self, INTERRUPT_SIGNAL};
use uringlet_sys::{UserPtr, process, user};

use super::handlers::{HANDLER_FLAGS, Handler, RESETHAND, RESTORER, SIG_DFL, SIG_IGN, SIGINFO, SIGNALS, program_handler, replace};
use super::on_signal::our_handler;
use super::{fault_check, file_size};
use crate::static_file::is_static;

/// The signals that glibc and musl use themselves: to cancel threads, and to change the user of all
/// of them.
///
/// In a static program these handlers make their calls through rewritten sites, and would enter the
/// engine where they have interrupted it. So there they are deferred as the program's own.
const LIBC_SIGNALS: core::ops::RangeInclusive<u32> = 32..=33;

static IS_INTERCEPTING: AtomicBool = AtomicBool::new(false);

/// The program is about to make a ring.
pub(crate) fn intercept() {
    if IS_INTERCEPTING.swap(true, Ordering::AcqRel) {
        return;
    }
    const HOOK: fn() = || intercept_signal(INTERRUPT_SIGNAL);
    thread::set_interrupt_hook(&HOOK);
    for signal in 1..=SIGNALS {
        intercept_signal(signal);
    }
    fault_check::enable();
}

/// Whether the program has made a ring.
pub(crate) fn is_intercepting() -> bool {
    IS_INTERCEPTING.load(Ordering::Acquire)
}

/// Puts our handler before that of libc which cancels threads.
pub(crate) fn intercept_cancels(signal: u32) {
    intercept_handler(signal);
}

/// After the program has set an action. What a vfork child sets is its own, and ends with its
/// execve(2): the handlers kept here are its parent's.
pub(crate) fn action_changed(signal: u32) {
    if IS_INTERCEPTING.load(Ordering::Acquire) && !process::is_foreign() {
        intercept_signal(signal);
        fault_check::action_changed(signal);
    }
}

/// The program's handler for a signal; `None` before the first ring.
pub(crate) fn intercepted_handler(signal: u32) -> Option<Handler> {
    program_handler(signal).filter(|_| IS_INTERCEPTING.load(Ordering::Acquire))
}

/// The kernel has told the program an action in its own layout: if that is ours, it is replaced by
/// the program's.
pub(crate) fn show_own_action(at: UserPtr, program: Handler) {
    let Ok([handler, flags]) = user::read::<[u64; 2]>(at) else { return };
    if handler == our_handler() as u64 {
        let flags = if program.address == SIG_DFL { program.flags } else { flags & !HANDLER_FLAGS | program.flags & HANDLER_FLAGS };
        // If the program has unmapped it meanwhile, nobody reads it.
        let _ = user::write(at, &[program.address as u64, flags]);
    }
}

/// Puts our handler in the place of the program's, if it has one. libc's own signals stay as they
/// are, where libc is not part of the program.
fn intercept_signal(signal: u32) {
    if !(1..=SIGNALS).contains(&signal) || (LIBC_SIGNALS.contains(&signal) && !is_static()) {
        return;
    }
    let Ok(action) = signal::action(signal) else { return };
    if signal == INTERRUPT_SIGNAL {
        return intercept_interrupts(&action);
    }
    if signal == SIGXFSZ && action.handler == SIG_DFL {
        return replace(signal, &action, &file_size::default_stand_in(our_handler()));
    }
    intercept_handler(signal);
}

fn intercept_handler(signal: u32) {
    let Ok(action) = signal::action(signal) else { return };
    if action.handler <= SIG_IGN || action.handler == our_handler() || action.flags & RESTORER == 0 {
        return;
    }
    let flags = (action.flags | SIGINFO) & !RESETHAND;
    replace(signal, &action, &KernelSigaction { handler: our_handler(), flags, ..action });
}

/// The engine interrupts its threads, and the waits of the program's, by this signal: our handler
/// is the kernel's also where the program has the default or ignores it. No call is restarted.
fn intercept_interrupts(program: &KernelSigaction) {
    if program.handler != our_handler() {
        let noop = thread::noop_interrupt_action();
        let flags = noop.flags | SIGINFO | program.flags & u64::from(SA_ONSTACK);
        replace(INTERRUPT_SIGNAL, program, &KernelSigaction { handler: our_handler(), flags, mask: program.mask, ..noop });
    }
}
