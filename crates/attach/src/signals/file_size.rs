//! SIGXFSZ. The engine lets workers write, which block it, while there is a limit on the size of
//! files. But another process may lower that limit (prlimit(2)), and then the first write beyond it
//! raises the signal in the program's own thread, which the kernel's io_uring never does.
//!
//! So from the first ring on the kernel's handler of SIGXFSZ is ours even where the program has the
//! default. A signal that this very process raised while the thread is on an engine stack comes
//! from a write of the engine's: it is dropped, the limit is read again, and the write has failed
//! with EFBIG. Any other goes to the program's handler, or to the default, which is restored for
//! it: the process dies as it would have. A program that reads its action is told the default, an
//! ignored signal stays ignored, and exec(2) restores the default by itself.
//!
//! Differs: a SIGXFSZ that the program sends to itself while its thread is in the engine is lost.
//! Where the thread's mask blocks the signal it stays pending.

use uringlet_core::ENGINE;
use uringlet_sys::linux::general::{SA_ONSTACK, SA_RESTART};
use uringlet_sys::process::{pid_now, tid};
use uringlet_sys::signal::KernelSigaction;
use uringlet_sys::thread::noop_interrupt_action;

use super::handlers::{SIGINFO, reset};
use super::siginfo::{SI_USER, SignalInfo};

/// The action that replaces the default.
pub(super) fn default_stand_in(handler: usize) -> KernelSigaction {
    let noop = noop_interrupt_action();
    let flags = noop.flags | SIGINFO | u64::from(SA_ONSTACK | SA_RESTART);
    KernelSigaction { handler, flags, mask: 0, ..noop }
}

/// The signal came while the thread was in the engine. Whether a write of the engine's raised it:
/// then it needs no handler.
pub(super) fn is_from_engine(info: SignalInfo) -> bool {
    if info.code() != SI_USER || info.sender().cast_unsigned() != pid_now() {
        return false;
    }
    ENGINE.limits_changed();
    true
}

/// Does what the default does: the signal comes again when this handler returns, without a handler.
pub(super) fn die(signal: u32, info: SignalInfo) {
    reset(signal);
    // If it cannot be queued, the faulting instruction or the next write raises it again.
    let _ = info.send_to(tid(), signal);
}
