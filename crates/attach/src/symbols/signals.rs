//! sigaction(2) and the older functions: libc sets the handler, `signals` puts ours before it.

use core::ffi::{c_int, c_void};

use uringlet_sys::linux::general::{SA_NODEFER, SA_RESETHAND, SA_RESTART};
use uringlet_sys::signal::KernelSigaction;

use super::next::{BSD_SIGNAL, NextFunction, SIGACTION, SIGNAL, SIGSET, SSIGNAL, SYSV_SIGNAL, UNDERSCORE_SYSV_SIGNAL};
use crate::convert::{Register, low_i32};
use crate::signals::{HANDLER_FLAGS, ProgramAction, action_changed, action_for_kernel, note_action, our_handler, program_handler};
use crate::trap;

/// libc's `struct sigaction`, glibc's and musl's.
#[repr(C)]
#[derive(Clone, Copy)]
struct LibcSigaction {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sigaction(signal: c_int, new: *const c_void, old: *mut c_void) -> c_int {
    if trap::is_on() {
        // SAFETY: the program's own call with the program's own arguments.
        return unsafe { sigaction_without_sigsys(signal, new.cast(), old.cast()) };
    }
    set_action(signal, new, old)
}

fn set_action(signal: c_int, new: *const c_void, old: *mut c_void) -> c_int {
    let before = program_handler(signal.cast_unsigned());
    let result = SIGACTION.call_int([signal.reg(), new.reg(), old.reg(), 0, 0, 0]);
    if result != 0 {
        return result;
    }
    if !old.is_null() {
        // SAFETY: libc has just filled it.
        let old = unsafe { &mut *old.cast::<LibcSigaction>() };
        if let Some(before) = before.filter(|_| old.handler == our_handler()) {
            old.handler = before.address;
            old.flags = old.flags & !libc_flags(HANDLER_FLAGS) | libc_flags(before.flags & HANDLER_FLAGS);
            if before.address == 0 {
                // Ours replaces the default.
                (old.flags, old.restorer) = (libc_flags(before.flags), 0);
            }
        }
    }
    if !new.is_null() {
        action_changed(signal.cast_unsigned());
    }
    result
}

impl LibcSigaction {
    fn to_kernel(self) -> KernelSigaction {
        KernelSigaction { handler: self.handler, flags: self.flags.cast_unsigned().into(), restorer: self.restorer, mask: self.mask[0] }
    }

    fn set(&mut self, action: &KernelSigaction) {
        (self.handler, self.flags, self.restorer, self.mask[0]) = (action.handler, libc_flags(action.flags), action.restorer, action.mask);
    }
}

/// While calls are trapped: the kernel's action never blocks SIGSYS, and that of SIGSYS is ours.
unsafe fn sigaction_without_sigsys(signal: c_int, new: *const LibcSigaction, old: *mut LibcSigaction) -> c_int {
    let number = signal.cast_unsigned();
    let shown = ProgramAction::of(number);
    // SAFETY: libc reads it as well, and fills `old` below.
    let mut passed = unsafe { new.as_ref() }.copied();
    let program = passed.map(|action| action.to_kernel());
    if let (Some(passed), Some(program)) = (&mut passed, &program) {
        passed.set(&action_for_kernel(number, program));
    }
    let passed = passed.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let result = if trap::is_trap_signal(number) {
        SIGACTION.call_int([signal.reg(), passed.reg(), old.reg(), 0, 0, 0])
    } else {
        set_action(signal, passed.cast(), old.cast())
    };
    if result == 0 {
        if let Some(program) = program {
            note_action(number, &program);
        }
        // SAFETY: see above.
        if let Some(old) = unsafe { old.as_mut() } {
            let mut told = old.to_kernel();
            shown.show(&mut told);
            old.set(&told);
        }
    }
    result
}

/// The kernel's `SA_*` as libc's structure has them.
fn libc_flags(flags: u64) -> c_int {
    low_i32(flags.reg())
}

/// What these functions return when they fail.
const SIG_ERR: usize = usize::MAX;

/// For the functions that return the former handler.
fn set_handler(next: &NextFunction, signal: c_int, handler: usize, flags: u32) -> usize {
    if trap::is_trap_signal(signal.cast_unsigned()) {
        let new = LibcSigaction { handler, mask: [0; 16], flags: flags.cast_signed(), restorer: 0 };
        let mut old = new;
        // SAFETY: two live structures.
        let result = unsafe { sigaction_without_sigsys(signal, &raw const new, &raw mut old) };
        return if result == 0 { old.handler } else { SIG_ERR };
    }
    let before = program_handler(signal.cast_unsigned());
    let old = next.call([signal.reg(), handler, 0, 0, 0, 0]).cast_unsigned();
    action_changed(signal.cast_unsigned());
    match before {
        Some(before) if old == our_handler() => before.address,
        _ => old,
    }
}

macro_rules! handler_functions {
    ($($name:ident = $next:ident with $flags:expr;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(signal: c_int, handler: usize) -> usize {
            set_handler(&$next, signal, handler, $flags)
        })*
    };
}

/// What `signal` of System V does.
const ONCE: u32 = SA_RESETHAND | SA_NODEFER;

handler_functions! {
    signal = SIGNAL with SA_RESTART;
    bsd_signal = BSD_SIGNAL with SA_RESTART;
    sysv_signal = SYSV_SIGNAL with ONCE;
    __sysv_signal = UNDERSCORE_SYSV_SIGNAL with ONCE;
    ssignal = SSIGNAL with SA_RESTART;
    sigset = SIGSET with 0;
}
