//! Faults of the engine's own copies (`uringlet_sys::uaccess`): a bad buffer ends a copy, not the
//! program.
//!
//! Our handler has to be the kernel's for SIGSEGV and SIGBUS, and the thread's mask must not block
//! them: a blocked fault kills. The kernel is asked for both, once for each time that a thread
//! enters the engine, before its first copy: three system calls, 0.55 µs. The result is cached on
//! the engine stack that the thread is on (`stack::FAULT_CHECK`), and cleared with it.
//!
//! What can change it meanwhile:
//! ```text
//!   the thread's mask           not while the thread is in the engine: handlers of the program are
//!                               deferred until it leaves, and the mask of a waiting
//!                               io_uring_enter(2) is in force in the kernel's wait only
//!   sigaction() of a thread     `action_changed` puts ours before the new handler, and counts: a
//!                               cached result of another count is not used
//!   rt_sigaction(2), raw        as sigaction(), at a rewritten site. Elsewhere it is not seen: the
//!                               next enter finds it, and the kernel copies then
//! ```
//! So a bad buffer meets a handler that is not ours only if another thread called rt_sigaction(2)
//! directly since this one entered. The program then gets the signal, as from a copy of its own.
//!
//! Where the program has the default, ours replaces it from the first copy on: a program
//! without a ublk device never has it. A fault outside a copy restores the default, and the signal
//! comes again: the process dies of it as it would have, with the registers of the faulting
//! instruction.

use core::sync::atomic::{AtomicUsize, Ordering};

use uringlet_sys::linux::general::{SIGBUS, SIGSEGV};
use uringlet_sys::signal::{self, bit};
use uringlet_sys::uaccess;

use super::file_size;
use super::handlers::{SIG_DFL, replace};
use super::on_signal::our_handler;
use crate::stack::{self, FAULT_CHECK};

/// Bits of the cached result: it is valid for the count of changes that the other bits hold.
/// Neither bit: nothing is cached.
const GUARDED: usize = 1;
const UNGUARDED: usize = 2;

/// Counts changes of the two handlers.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// Copies may fault from now on, where [`is_copy_guarded`] says so.
pub(super) fn enable() {
    const CHECK: uaccess::FaultCheck = is_copy_guarded;
    uaccess::set_fault_check(&CHECK);
}

/// After the program has set an action.
pub(super) fn action_changed(signal: u32) {
    if signal == SIGSEGV || signal == SIGBUS {
        CHANGES.fetch_add(1, Ordering::AcqRel);
    }
}

/// Whether a fault of a copy on this thread ends only the copy.
fn is_copy_guarded() -> bool {
    let local = 0_u8;
    // Engine threads have all signals blocked, and none of these stacks.
    let Some(base) = stack::containing(&raw const local as usize) else { return false };
    let changes = CHANGES.load(Ordering::Acquire) << 2;
    let cache = (base + FAULT_CHECK) as *mut usize;
    // SAFETY: this thread runs on the stack with this base, so nothing else uses its top.
    let cached = unsafe { cache.read() };
    if cached & (GUARDED | UNGUARDED) != 0 && cached & !(GUARDED | UNGUARDED) == changes {
        return cached & GUARDED != 0;
    }
    let is_guarded = are_faults_unblocked() && has_our_handler(SIGSEGV) && has_our_handler(SIGBUS);
    // SAFETY: as above.
    unsafe { cache.write(changes | if is_guarded { GUARDED } else { UNGUARDED }) };
    is_guarded
}

/// Whether the thread's mask blocks neither signal.
fn are_faults_unblocked() -> bool {
    signal::mask() & (bit(SIGSEGV) | bit(SIGBUS)) == 0
}

/// Whether the kernel's handler is ours; puts it in the place of a default action. A program that
/// ignores the signal dies of a fault: its action is not replaced.
fn has_our_handler(signal: u32) -> bool {
    match signal::action(signal) {
        Ok(action) if action.handler == our_handler() => true,
        Ok(action) if action.handler == SIG_DFL => {
            replace(signal, &action, &file_size::default_stand_in(our_handler()));
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::on_engine_stack;
    use crate::signals::intercept;
    use uringlet_sys::signal::{KernelSigaction, set_action};
    use uringlet_sys::user::copy_in_user;
    use uringlet_sys::{Sysno, UserPtr, raw};

    const PAGE: usize = 4096;

    /// The signal that the second of two pages raises.
    #[derive(Clone, Copy)]
    enum Fault {
        Segv,
        /// A mapping beyond the end of its file.
        Bus,
    }

    /// Two pages, of which the second faults.
    fn half_mapped(fault: Fault) -> usize {
        // SAFETY: new mappings at addresses of the kernel's choice, and a part of them.
        unsafe {
            let fd = raw::syscall2(Sysno::memfd_create as usize, c"half".as_ptr() as usize, 0);
            raw::syscall2(Sysno::ftruncate as usize, fd, PAGE);
            let at = raw::syscall6(Sysno::mmap as usize, 0, 2 * PAGE, 3, 1, fd, 0);
            if matches!(fault, Fault::Segv) {
                raw::syscall3(Sysno::mprotect as usize, at + PAGE, PAGE, 0);
            }
            at
        }
    }

    /// Whether a copy of 2 pages was guarded, and how much of it was done.
    fn copied(to: usize, from: usize) -> (bool, usize) {
        on_engine_stack(|| (is_copy_guarded(), copy_in_user(UserPtr::new(to), UserPtr::new(from), 2 * PAGE)))
    }

    #[test]
    fn fault_ends_a_copy_and_nothing_else() {
        // Rust's own handlers of the two are the program's here.
        intercept();
        let whole = vec![7_u8; 2 * PAGE];
        for fault in [Fault::Segv, Fault::Bus] {
            let half = half_mapped(fault);
            assert_eq!(copied(half, whole.as_ptr() as usize), (true, PAGE));
            assert_eq!(copied(whole.as_ptr() as usize, half), (true, PAGE));
        }
        assert_eq!(copied(8, whole.as_ptr() as usize), (true, 0));
        // Not canonical: no page fault, but a general protection fault.
        assert_eq!(copied(1 << 63, whole.as_ptr() as usize), (true, 0));
        // Outside an engine stack the kernel copies.
        assert!(!is_copy_guarded());
        kernel_copies_while_faults_are_blocked(half_mapped(Fault::Segv), &whole);
        changed_actions_are_noticed();
    }

    fn kernel_copies_while_faults_are_blocked(half: usize, whole: &[u8]) {
        let before = signal::block(bit(SIGBUS));
        assert_eq!(copied(half, whole.as_ptr() as usize), (false, PAGE));
        signal::set_mask(before);
        assert_eq!(copied(half, whole.as_ptr() as usize), (true, PAGE));
    }

    fn changed_actions_are_noticed() {
        let ours = signal::action(SIGBUS).unwrap();
        let guarded = on_engine_stack(|| {
            let before = is_copy_guarded();
            // The program sets a handler by a raw call: the cached result stays until the thread
            // leaves or a change is counted.
            // SAFETY: no SIGBUS arrives while this handler is set.
            unsafe { set_action(SIGBUS, &KernelSigaction { handler: 4096, ..ours }) }.unwrap();
            let uncounted = is_copy_guarded();
            action_changed(SIGBUS);
            (before, uncounted, is_copy_guarded())
        });
        assert_eq!(guarded, (true, true, false));
        assert!(!on_engine_stack(is_copy_guarded));
        // SAFETY: the handler of before.
        unsafe { set_action(SIGBUS, &ours) }.unwrap();
        assert!(on_engine_stack(is_copy_guarded));
    }
}
