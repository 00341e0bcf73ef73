//! Start and end of a thread without libc, and a signal handler without one.

use crate::linux::general::SA_RESTORER;
use crate::signal::KernelSigaction;
use syscalls::{Errno, Sysno};

/// What a thread runs: its two arguments are those of [`start_thread`].
pub(crate) type ThreadEntry = unsafe extern "C" fn(usize, usize) -> !;

/// clone(2): a thread with `flags` (`CLONE_*`) that calls `entry` on the stack that ends at
/// `stack_top`.
///
/// # Errors
/// Those of clone(2).
///
/// # Safety
/// `stack_top` is the end of a fresh stack, a multiple of 16, and `entry` may run there with these
/// arguments.
pub(crate) unsafe fn start_thread(flags: u32, stack_top: usize, entry: ThreadEntry, arguments: [usize; 2]) -> Result<(), Errno> {
    let ret: isize;
    // SAFETY: the parent's path changes only the clobbered registers. The child starts with a zero
    // frame pointer on its own stack, 16-byte aligned at the call, and never returns.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "mov rsi, r13",
            "call r14",
            "ud2",
            "2:",
            inlateout("rax") Sysno::clone as usize => ret,
            in("rdi") u64::from(flags),
            in("rsi") stack_top,
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            in("r12") arguments[0],
            in("r13") arguments[1],
            in("r14") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    Errno::from_ret(ret.cast_unsigned()).map(drop)
}

/// Unmaps the stack that the calling thread runs on, and ends the thread.
///
/// # Safety
/// Nothing else uses the `len` bytes at `stack`.
pub(crate) unsafe fn unmap_and_exit(stack: usize, len: usize) -> ! {
    // SAFETY: nothing touches the stack between its unmapping and the thread's end: both calls are
    // made in one piece of assembly that uses registers only.
    unsafe {
        core::arch::asm!(
            "syscall",
            "mov edi, 0",
            "mov eax, {exit}",
            "syscall",
            exit = const Sysno::exit as i32,
            in("rax") Sysno::munmap as usize,
            in("rdi") stack,
            in("rsi") len,
            options(noreturn)
        );
    }
}

#[unsafe(naked)]
extern "C" fn interrupt_handler() {
    core::arch::naked_asm!("ret");
}

/// The bytes are those by which debuggers know the end of a signal handler.
#[unsafe(naked)]
extern "C" fn interrupt_restorer() {
    core::arch::naked_asm!("mov eax, {sigreturn}", "syscall", sigreturn = const Sysno::rt_sigreturn as i32);
}

/// A handler that does nothing: its signal only interrupts a system call. `mask`: blocked while it
/// runs.
pub(crate) fn noop_sigaction(mask: u64) -> KernelSigaction {
    KernelSigaction {
        handler: interrupt_handler as *const () as usize,
        flags: u64::from(SA_RESTORER),
        restorer: interrupt_restorer as *const () as usize,
        mask,
    }
}
