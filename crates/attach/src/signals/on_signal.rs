//! The kernel's handler of every signal that the program handles.

use core::ffi::{c_int, c_void};

use uringlet_sys::linux::general::{SIGSYS, SIGXFSZ};
use uringlet_sys::signal::bit;
use uringlet_sys::thread::{INTERRUPT_MARK, INTERRUPT_SIGNAL, is_engine_mask};
use uringlet_sys::{process, uaccess};

use super::deferral::{FAULTS, defer};
use super::file_size;
use super::handlers::{RESETHAND, SIG_DFL, SIG_IGN, forget, program_handler, reset};
use super::siginfo::SignalInfo;
use crate::arch::SignalContext;
use crate::{stack, trap};

/// The address that the kernel has instead of the program's handler.
pub(crate) fn our_handler() -> usize {
    on_signal as *const () as usize
}

unsafe extern "C" fn on_signal(signal: c_int, info: *mut c_void, context: *mut c_void) {
    let number = signal.cast_unsigned();
    // SAFETY: the kernel passes a siginfo_t and a ucontext.
    let (info, context) = unsafe { (SignalInfo::new(info), SignalContext::new(context)) };
    if number == SIGSYS && trap::on_trap(info, context) {
        return;
    }
    let is_fault = FAULTS & bit(number) != 0 && info.code() > 0;
    if is_fault && end_faulted_copy(context) {
        return;
    }
    if number == INTERRUPT_SIGNAL && !is_for_this_thread(info, context) {
        return;
    }
    let engine_stack = stack::containing(context.stack_pointer());
    if number == SIGXFSZ && engine_stack.is_some() && file_size::is_from_engine(info) {
        return;
    }
    // The kernel's own SIGSYS cannot be ignored.
    let is_deadly = |address| address == SIG_DFL || (address == SIG_IGN && is_fault);
    if program_handler(number).is_none_or(|handler| is_deadly(handler.address)) {
        return file_size::die(number, info);
    }
    if !is_fault
        && let Some(base) = engine_stack
        && defer(number, info, context, base)
    {
        return;
    }
    call_program_handler(signal, info, context);
}

/// Whether the interrupt signal was sent by somebody else than the engine, to a thread of the
/// program. Only engine threads may have it unblocked: what the kernel delivers there is passed on
/// to the main thread.
fn is_for_this_thread(info: SignalInfo, context: SignalContext) -> bool {
    if info.value() == INTERRUPT_MARK {
        return false;
    }
    let is_engine_thread = is_engine_mask(context.mask());
    // Without a sender: an interrupt of the engine's for which the kernel had no memory.
    if is_engine_thread && info.sender() != 0 {
        let _ = info.send_to(process::pid_now(), INTERRUPT_SIGNAL);
    }
    !is_engine_thread
}

/// If the fault is one of the engine's copies: the copy ends where the thread continues.
fn end_faulted_copy(context: SignalContext) -> bool {
    let Some(fix_up) = uaccess::fixup_address(context.program_counter()) else { return false };
    // SAFETY: the fix-up of the faulting instruction expects its registers.
    unsafe { context.set_program_counter(fix_up) };
    true
}

/// Calls the program's handler as the kernel would have.
fn call_program_handler(signal: c_int, info: SignalInfo, context: SignalContext) {
    let number = signal.cast_unsigned();
    let Some(handler) = program_handler(number).filter(|h| h.address > SIG_IGN) else { return };
    if handler.flags & RESETHAND != 0 {
        if number == INTERRUPT_SIGNAL || trap::is_trap_signal(number) { forget(number) } else { reset(number) }
    }
    // SAFETY: the address that the program gave for this signal. A handler that takes the number
    // alone finds it in the same register.
    unsafe {
        let function: unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) = core::mem::transmute(handler.address);
        function(signal, info.as_ptr(), context.as_ptr());
    }
}
