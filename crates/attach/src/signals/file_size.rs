//! SIGXFSZ. The engine lets workers write, which block it, while there is a limit on the size of files; but another process may lower that limit
//! (prlimit(2)), and then the first write beyond it raises the signal in the program's own thread, which the kernel's io_uring never does.
//!
//! So from the first ring on the kernel's handler of SIGXFSZ is ours also where the program has the default. What comes while the thread is in an engine
//! stack, from this very process, was raised by a write of the engine's: it is dropped, the limit is asked for anew, and the write has answered EFBIG. Any
//! other takes the program's handler, or the default, which is restored for it: the process dies as it would have. A program that asks for its action is told
//! the default, an ignored signal stays ignored, and exec(2) restores the default by itself.
//!
//! Differs: a SIGXFSZ that the program sends to itself while its thread is in the engine is lost. Where the thread's mask blocks the signal it stays pending.

use core::ffi::{c_int, c_void};

use syscalls::{Sysno, raw};
use uringlet::ENGINE;

use super::{INFO_CODE, KernelAction, SA_RESTORER, SA_SIGINFO, get_action, set_action};
use uringlet_sys::thread::INTERRUPT_SIGNAL;

pub(super) const SIGXFSZ: usize = 25;
pub(super) const SIG_DFL: usize = 0;
/// What the kernel gives a signal that a system call raises: as if the process had sent it.
const SI_USER: i32 = 0;
const INFO_PID: usize = 16;
const SA_ONSTACK: usize = 0x0800_0000;
const SA_RESTART: usize = 0x1000_0000;

/// The action that stands in for the default.
pub(super) fn in_place_of_default(handler: usize) -> Option<KernelAction> {
    // The interrupt signal has a handler by now, with a way back.
    let restorer = get_action(INTERRUPT_SIGNAL as usize).filter(|action| action.flags & SA_RESTORER != 0)?.restorer;
    Some(KernelAction { handler, flags: SA_SIGINFO | SA_RESTORER | SA_ONSTACK | SA_RESTART, restorer, mask: 0 })
}

/// The signal came while the thread was in the engine. Whether it is the engine's own: then it is done with.
pub(super) fn is_own(info: *mut c_void) -> bool {
    // SAFETY: a siginfo_t; the sender's number stands there where the code is `SI_USER`.
    let (code, sender) = unsafe {
        let info = info.cast::<u8>();
        (info.add(INFO_CODE).cast::<i32>().read(), info.add(INFO_PID).cast::<i32>().read())
    };
    // SAFETY: getpid(2) takes nothing.
    if code != SI_USER || sender != unsafe { raw::syscall0(Sysno::getpid as usize) } as i32 {
        return false;
    }
    ENGINE.limits_changed();
    true
}

/// What the default does: the signal comes again when this handler returns, and nobody handles it.
pub(super) fn die(signal: c_int, info: *mut c_void) {
    set_action(signal as usize, &KernelAction::default());
    // SAFETY: the calls take numbers, and the siginfo_t of this signal.
    unsafe {
        let pid = raw::syscall0(Sysno::getpid as usize);
        let tid = raw::syscall0(Sysno::gettid as usize);
        raw::syscall4(Sysno::rt_tgsigqueueinfo as usize, pid, tid, signal as usize, info as usize);
    }
}
