//! Signals that arrive while a program's thread is in the engine are put off until it leaves, as the kernel does: a handler may use a ring, fork, or never
//! come back, and the thread may hold a lock of the engine's.
//!
//! From the first ring on, the kernel's handler for each signal that the program handles is [`on_signal`]. If the interrupted stack pointer lies in an engine
//! stack, it blocks all signals, queues the signal to this thread again, and returns into the engine; a wait there ends with EINTR. On the way out
//! (`switch`) the mask is put back, and the kernel delivers what is pending, on the program's own stack.
//!
//! A signal may arrive between the engine's last look and its wait, which then nothing would end. So a timer interrupts the thread every millisecond until
//! it has left, by the signal that the engine interrupts its own threads with.
//!
//! Not put off: faults (those of the engine's own copies end the copy, `copies`), and the SIGXFSZ of the engine's own writes (`file_size`). A signal that the thread's own mask blocks came in through the mask that a waiting io_uring_enter(2) was given: on the way out it is
//! let in once, before the mask is put back.

mod copies;
mod file_size;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use syscalls::{Sysno, raw};
use uringlet_sys::thread::{INTERRUPT_SIGNAL, install_interrupt_handler};

use crate::stack::{self, STACK_TOP};
use file_size::{SIG_DFL, SIGXFSZ};

const SIGNALS: usize = 64;
const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;
const SA_SIGINFO: usize = 4;
const SA_RESTORER: usize = 0x0400_0000;
const SA_RESETHAND: usize = 0x8000_0000;
const SIG_IGN: usize = 1;

/// SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: blocked, they would kill.
const FAULTS: u64 = bit(4) | bit(5) | bit(7) | bit(8) | bit(11) | bit(31);

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// The program's handlers: read when the kernel's is ours.
static HANDLERS: [[AtomicUsize; 2]; SIGNALS + 1] = [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; SIGNALS + 1];
static ARMED: AtomicBool = AtomicBool::new(false);

/// The program is about to make a ring.
pub(crate) fn arm() {
    if ARMED.swap(true, Ordering::AcqRel) {
        return;
    }
    // The timer that ends a wait needs it, also while the engine has no thread.
    install_interrupt_handler();
    for signal in 1..=SIGNALS {
        intercept(signal);
    }
    copies::arm();
}

/// A program's handler, with the flags that are not passed on to the kernel as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handler {
    pub(crate) address: usize,
    pub(crate) flags: usize,
}

/// The flags of a [`Handler`] that count.
pub(crate) const HANDLER_FLAGS: usize = SA_SIGINFO | SA_RESETHAND;

/// The program's handler for a signal, if the kernel's is ours.
pub(crate) fn program_handler(signal: usize) -> Option<Handler> {
    let [address, flags] = HANDLERS.get(signal)?;
    Some(Handler { address: address.load(Ordering::Acquire), flags: flags.load(Ordering::Relaxed) })
}

/// The address that the kernel has instead of the program's handler.
pub(crate) fn our_handler() -> usize {
    on_signal as *const () as usize
}

/// After the program has set a handler.
pub(crate) fn changed(signal: usize) {
    if ARMED.load(Ordering::Acquire) {
        intercept(signal);
        copies::changed(signal);
    }
}

fn get_action(signal: usize) -> Option<KernelAction> {
    let mut action = KernelAction::default();
    // SAFETY: rt_sigaction(2) fills the structure.
    let result = unsafe { raw::syscall4(Sysno::rt_sigaction as usize, signal, 0, &raw mut action as usize, 8) };
    (result == 0).then_some(action)
}

fn set_action(signal: usize, action: &KernelAction) {
    // SAFETY: the action is the program's own with our handler, or the default.
    unsafe { raw::syscall4(Sysno::rt_sigaction as usize, signal, core::ptr::from_ref(action) as usize, 0, 8) };
}

/// Puts [`on_signal`] in the place of the program's handler, if it has one. libc's own signals (32, 33) and the engine's stay as they are.
fn intercept(signal: usize) {
    if !(1..=SIGNALS).contains(&signal) || signal == INTERRUPT_SIGNAL as usize || signal == 32 || signal == 33 {
        return;
    }
    let Some(action) = get_action(signal) else { return };
    if signal == SIGXFSZ && action.handler == SIG_DFL {
        let Some(ours) = file_size::in_place_of_default(our_handler()) else { return };
        return replace(signal, &action, ours);
    }
    if action.handler <= SIG_IGN || action.handler == our_handler() || action.flags & SA_RESTORER == 0 {
        return;
    }
    let flags = (action.flags | SA_SIGINFO) & !SA_RESETHAND;
    replace(signal, &action, KernelAction { handler: our_handler(), flags, ..action });
}

fn replace(signal: usize, programs: &KernelAction, ours: KernelAction) {
    HANDLERS[signal][1].store(programs.flags, Ordering::Relaxed);
    HANDLERS[signal][0].store(programs.handler, Ordering::Release);
    set_action(signal, &ours);
}

/// Offsets in the kernel's `struct ucontext`.
const CONTEXT_RSP: usize = 160;
const CONTEXT_MASK: usize = 296;
/// In `siginfo_t`.
const INFO_CODE: usize = 8;

/// The handler of every signal that the program handles.
unsafe extern "C" fn on_signal(signal: c_int, info: *mut c_void, context: *mut c_void) {
    // SAFETY: the kernel passes a siginfo_t and a ucontext of this layout.
    let (stack_pointer, mask, code) = unsafe {
        let context = context.cast::<u8>();
        let mask = context.add(CONTEXT_MASK).cast::<u64>();
        (context.add(CONTEXT_RSP).cast::<usize>().read(), &mut *mask, info.cast::<u8>().add(INFO_CODE).cast::<i32>().read())
    };
    let is_fault = FAULTS & bit(signal as u32) != 0 && code > 0;
    if is_fault && copies::end(context) {
        return;
    }
    if signal as usize == SIGXFSZ && stack::containing(stack_pointer).is_some() && file_size::is_own(info) {
        return;
    }
    if program_handler(signal as usize).is_none_or(|handler| handler.address == SIG_DFL) {
        return file_size::die(signal, info);
    }
    if !is_fault
        && let Some(base) = stack::containing(stack_pointer)
        && defer(signal, info, base, mask)
    {
        return;
    }
    handle(signal, info, context);
}

/// All but what must come through.
static BLOCKED: u64 = !(FAULTS | bit(INTERRUPT_SIGNAL));

/// False: the kernel cannot queue another signal.
fn defer(signal: c_int, info: *mut c_void, base: usize, mask: &mut u64) -> bool {
    // SAFETY: this thread runs on the stack with this base, so nobody else uses its top; the calls name live memory.
    unsafe {
        // Also where the program wants its handler interrupted by the same signal.
        raw::syscall4(Sysno::rt_sigprocmask as usize, SIG_BLOCK, &raw const BLOCKED as usize, 0, 8);
        let pid = raw::syscall0(Sysno::getpid as usize);
        let tid = raw::syscall0(Sysno::gettid as usize);
        if raw::syscall4(Sysno::rt_tgsigqueueinfo as usize, pid, tid, signal as usize, info as usize) != 0 {
            return false;
        }
        let kept = (base + STACK_TOP + 16) as *mut u64;
        // Several signals at once: the frame that is left last holds the thread's mask.
        kept.add(1).write(*mask);
        let is_first = kept.read() == 0;
        kept.add(2).write(bit(signal as u32) | if is_first { 0 } else { kept.add(2).read() });
        if is_first {
            kept.write(start_timer(tid));
        }
    }
    // What the kernel goes back to when this handler returns.
    *mask |= BLOCKED;
    true
}

/// A timer's id plus one; all ones if there is none.
fn start_timer(tid: usize) -> u64 {
    const CLOCK_MONOTONIC: usize = 1;
    const SIGEV_THREAD_ID: i32 = 4;
    const MILLISECOND: u64 = 1_000_000;
    const NONE: u64 = u64::MAX;
    // Without a handler the signal would kill.
    if get_action(INTERRUPT_SIGNAL as usize).is_none_or(|action| action.handler <= SIG_IGN) {
        return NONE;
    }
    let event: [i32; 16] = {
        let mut event = [0; 16];
        (event[2], event[3], event[4]) = (INTERRUPT_SIGNAL as i32, SIGEV_THREAD_ID, tid as i32);
        event
    };
    let mut id = 0_i32;
    let every = [0, MILLISECOND, 0, MILLISECOND];
    // SAFETY: the calls name live memory of the kernel's layouts (sigevent, timer_t, itimerspec).
    unsafe {
        if raw::syscall3(Sysno::timer_create as usize, CLOCK_MONOTONIC, &raw const event as usize, &raw mut id as usize) != 0 {
            return NONE;
        }
        raw::syscall4(Sysno::timer_settime as usize, id as usize, 0, every.as_ptr() as usize, 0);
    }
    id as u64 + 1
}

/// The thread has left the engine. `timer`, `mask` and the set of signals `came` are what [`defer`] kept.
pub(crate) extern "C" fn deliver_deferred(timer: u64, mask: u64, came: u64) {
    let open = mask & !came;
    // SAFETY: our own timer; the mask is a live word.
    unsafe {
        if timer != u64::MAX {
            raw::syscall1(Sysno::timer_delete as usize, timer as usize - 1);
        }
        raw::syscall4(Sysno::rt_sigprocmask as usize, SIG_SETMASK, &raw const open as usize, 0, 8);
        if open != mask {
            raw::syscall4(Sysno::rt_sigprocmask as usize, SIG_SETMASK, &raw const mask as usize, 0, 8);
        }
    }
}

/// Calls the program's handler as the kernel would have.
fn handle(signal: c_int, info: *mut c_void, context: *mut c_void) {
    let Some(handler) = program_handler(signal as usize).filter(|h| h.address > SIG_IGN) else { return };
    if handler.flags & SA_RESETHAND != 0 {
        set_action(signal as usize, &KernelAction::default());
    }
    // SAFETY: the address that the program gave for this signal. One that takes the number alone finds it in the same register.
    unsafe {
        let function: unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) = core::mem::transmute(handler.address);
        function(signal, info, context);
    }
}
