//! Faults of the engine's own copies (`uringlet_sys::uaccess`): a bad buffer ends a copy, not the program.
//!
//! Our handler ([`super::on_signal`]) has to be the kernel's for SIGSEGV and SIGBUS, and the thread's mask must let them in: a fault that is blocked kills.
//! Both are asked of the kernel, once for each time that a thread enters the engine, when the first copy is about to be made: three system calls, 0.55 µs.
//! The answer is kept on the engine's stack that the thread is on (`STACK_TOP` + 40), and cleared with it.
//!
//! What can change it meanwhile:
//! ```text
//!   the thread's mask           not while the thread is in the engine: handlers of the program are put off until it leaves, and the mask of a waiting
//!                               io_uring_enter(2) is in force in the kernel's wait only
//!   sigaction() of a thread     `changed` steps in front of the new handler, and counts: what is kept is of another count, and asked anew
//!   rt_sigaction(2), raw        is not seen. Found by the next enter: from then on, the kernel copies
//! ```
//! So a bad buffer meets a handler that is not ours only if a raw rt_sigaction(2) of another thread came since this one entered. The program then gets the
//! signal, as it would from a copy of its own.
//!
//! Where the program has the default, ours stands in for it from the first copy on: a program without a ublk device never has it. A fault that is not a
//! copy's restores the default, and the signal comes again: the process dies of it as it would have, with the registers of the faulting instruction.

use core::sync::atomic::{AtomicUsize, Ordering};

use syscalls::{Sysno, raw};
use uringlet_sys::uaccess;

use super::file_size::{self, SIG_DFL};
use super::{SIG_BLOCK, bit, get_action, our_handler, replace};
use crate::stack::{self, STACK_TOP};

pub(super) const SIGBUS: usize = 7;
pub(super) const SIGSEGV: usize = 11;
/// In the kernel's `struct ucontext`.
const CONTEXT_RIP: usize = 168;
/// Where on a stack the answer is kept: the count it is of, and in the lowest bits [`YES`] or [`NO`]; 0: nobody has asked.
const KEPT: usize = STACK_TOP + 40;
const YES: usize = 1;
const NO: usize = 2;

/// Counts changes of the two handlers.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// Copies may fault from now on, where [`are_caught`] says so.
pub(super) fn arm() {
    uaccess::set_fault_check(are_caught);
}

/// After the program has set a handler.
pub(super) fn changed(signal: usize) {
    if signal == SIGSEGV || signal == SIGBUS {
        CHANGES.fetch_add(1, Ordering::AcqRel);
    }
}

/// Whether a fault of a copy on this thread ends only the copy.
fn are_caught() -> bool {
    let local = 0_u8;
    // Engine threads have all signals blocked, and none of these stacks.
    let Some(base) = stack::containing(&raw const local as usize) else { return false };
    let changes = CHANGES.load(Ordering::Acquire) << 2;
    let kept = (base + KEPT) as *mut usize;
    // SAFETY: this thread runs on the stack with this base, so nobody else uses its top.
    let answer = unsafe { kept.read() };
    if answer & (YES | NO) != 0 && answer & !(YES | NO) == changes {
        return answer & YES != 0;
    }
    let is_so = are_open() && is_ours(SIGSEGV) && is_ours(SIGBUS);
    // SAFETY: as above.
    unsafe { kept.write(changes | if is_so { YES } else { NO }) };
    is_so
}

/// Whether the thread's mask lets both in.
fn are_open() -> bool {
    let mut mask = 0_u64;
    // SAFETY: a live word for the mask, which is not changed.
    let result = unsafe { raw::syscall4(Sysno::rt_sigprocmask as usize, SIG_BLOCK, 0, &raw mut mask as usize, 8) };
    result == 0 && mask & (bit(SIGSEGV as u32) | bit(SIGBUS as u32)) == 0
}

/// Whether the kernel's handler is ours, if need be from now on. A program that ignores the signal dies of a fault: nothing stands in for that.
fn is_ours(signal: usize) -> bool {
    match get_action(signal) {
        Some(action) if action.handler == our_handler() => true,
        Some(action) if action.handler == SIG_DFL => {
            let Some(stand_in) = file_size::in_place_of_default(our_handler()) else { return false };
            replace(signal, &action, stand_in);
            true
        }
        _ => false,
    }
}

/// If a fault with this `context` is a copy's: the copy ends where the thread goes on.
pub(super) fn end(context: *mut core::ffi::c_void) -> bool {
    // SAFETY: the kernel passes a ucontext of this layout.
    let next = unsafe { &mut *context.cast::<u8>().add(CONTEXT_RIP).cast::<usize>() };
    match uaccess::fixup_address(*next) {
        Some(fix_up) => {
            *next = fix_up;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::on_engine_stack;
    use uringlet_sys::UserPtr;
    use uringlet_sys::uaccess::copy_in_user;

    const PAGE: usize = 4096;

    /// Two pages, of which the second faults: with SIGSEGV, or with SIGBUS where a file ends.
    fn half(is_bus: bool) -> usize {
        // SAFETY: new mappings at addresses of the kernel's choice, and a part of them.
        unsafe {
            let fd = raw::syscall2(Sysno::memfd_create as usize, c"half".as_ptr() as usize, 0);
            raw::syscall2(Sysno::ftruncate as usize, fd, PAGE);
            let at = raw::syscall6(Sysno::mmap as usize, 0, 2 * PAGE, 3, 1, fd, 0);
            if !is_bus {
                raw::syscall3(Sysno::mprotect as usize, at + PAGE, PAGE, 0);
            }
            at
        }
    }

    /// What is copied of 2 pages, by whatever way `are_caught` leaves.
    fn copied(to: usize, from: usize) -> (bool, usize) {
        on_engine_stack(|| (are_caught(), copy_in_user(UserPtr::new(to), UserPtr::new(from), 2 * PAGE)))
    }

    #[test]
    fn a_fault_ends_a_copy_and_nothing_else() {
        // Rust's own handlers of the two are the program's here.
        super::super::arm();
        let whole = vec![7_u8; 2 * PAGE];
        for is_bus in [false, true] {
            let half = half(is_bus);
            assert_eq!(copied(half, whole.as_ptr() as usize), (true, PAGE));
            assert_eq!(copied(whole.as_ptr() as usize, half), (true, PAGE));
        }
        assert_eq!(copied(8, whole.as_ptr() as usize), (true, 0));
        // Not canonical: no page fault, but a general protection fault.
        assert_eq!(copied(1 << 63, whole.as_ptr() as usize), (true, 0));
        // Beside an engine's stack the kernel copies.
        assert!(!are_caught());
        blocked_faults_are_the_kernels(half(false), &whole);
        changes_are_noticed();
    }

    fn blocked_faults_are_the_kernels(half: usize, whole: &[u8]) {
        let (one, mut old) = (bit(SIGBUS as u32), 0_u64);
        // SAFETY: live words.
        unsafe { raw::syscall4(Sysno::rt_sigprocmask as usize, SIG_BLOCK, &raw const one as usize, &raw mut old as usize, 8) };
        assert_eq!(copied(half, whole.as_ptr() as usize), (false, PAGE));
        // SAFETY: as above.
        unsafe { raw::syscall4(Sysno::rt_sigprocmask as usize, super::super::SIG_SETMASK, &raw const old as usize, 0, 8) };
        assert_eq!(copied(half, whole.as_ptr() as usize), (true, PAGE));
    }

    fn changes_are_noticed() {
        let ours = get_action(SIGBUS).unwrap();
        let seen = on_engine_stack(|| {
            let before = are_caught();
            // A handler of the program's, by a raw call: kept is kept until the thread leaves, or somebody tells.
            super::super::set_action(SIGBUS, &super::super::KernelAction { handler: 4096, ..ours });
            let raw = are_caught();
            changed(SIGBUS);
            (before, raw, are_caught())
        });
        assert_eq!(seen, (true, true, false));
        assert!(!on_engine_stack(are_caught));
        super::super::set_action(SIGBUS, &ours);
        assert!(on_engine_stack(are_caught));
    }
}
