//! Engine threads: raw clones on stacks of their own, all signals blocked, no libc behind them.
//!
//! A raw clone shares its creator's TLS register. So nothing that runs here may use thread-local storage, a libc's
//! allocator included: the engine needs the heap of `freestanding!`.

use alloc::boxed::Box;
use syscalls::{Errno, Sysno, raw_syscall};

/// The signal that interrupts an engine thread's blocking call: the last real-time one.
pub const INTERRUPT_SIGNAL: u32 = 64;

/// What a thread runs.
type Main = Box<dyn FnOnce() + Send>;

/// Starts a thread with `name` (at most 15 bytes, as ps shows it).
///
/// # Errors
/// `EAGAIN` (`RLIMIT_NPROC`, pids cgroup), `ENOMEM`.
pub fn spawn(name: &str, main: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    let mut comm = [0_u8; 16];
    let n = name.len().min(15);
    comm[..n].copy_from_slice(&name.as_bytes()[..n]);
    raw::start(Box::new(move || {
        const PR_SET_NAME: usize = 15;
        // SAFETY: a NUL-terminated name of 16 bytes.
        unsafe { raw_syscall!(Sysno::prctl, PR_SET_NAME, comm.as_ptr()) };
        main();
    }))
}

/// Interrupts a blocking system call of an engine thread.
pub fn interrupt(tid: u32) {
    // SAFETY: the signal has a handler that does nothing (`install_interrupt_handler`).
    unsafe { raw_syscall!(Sysno::tgkill, crate::process::pid(), tid, INTERRUPT_SIGNAL) };
}

const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;

/// Runs `f` with every signal blocked on this thread.
fn with_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    let all = u64::MAX;
    let mut old = 0_u64;
    // SAFETY: two live 8-byte masks.
    unsafe { raw_syscall!(Sysno::rt_sigprocmask, SIG_BLOCK, &raw const all, &raw mut old, 8) };
    let result = f();
    // SAFETY: as above.
    unsafe { raw_syscall!(Sysno::rt_sigprocmask, SIG_SETMASK, &raw const old, 0, 8) };
    result
}

/// On an engine thread: lets the interrupt signal through, and nothing else.
pub fn accept_interrupts() {
    let mask = !(1_u64 << (INTERRUPT_SIGNAL - 1));
    // SAFETY: a live 8-byte mask.
    unsafe { raw_syscall!(Sysno::rt_sigprocmask, SIG_SETMASK, &raw const mask, 0, 8) };
}

#[repr(C)]
struct KernelSigaction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

core::arch::global_asm!(
    ".pushsection .text.uringlet_interrupt,\"ax\",@progbits",
    ".p2align 4",
    ".hidden uringlet_interrupt_handler",
    "uringlet_interrupt_handler:",
    "ret",
    ".hidden uringlet_interrupt_restorer",
    "uringlet_interrupt_restorer:",
    "mov $15, %eax",
    "syscall",
    ".popsection",
    options(att_syntax)
);

unsafe extern "C" {
    fn uringlet_interrupt_handler();
    fn uringlet_interrupt_restorer();
}

/// Gives the interrupt signal a handler that does nothing, unless the program has one of its own: then its handler
/// runs on our thread's small stack, which is why the last real-time signal was chosen: nobody uses it.
pub fn install_interrupt_handler() {
    const SA_RESTORER: u64 = 0x0400_0000;
    let action = KernelSigaction {
        handler: uringlet_interrupt_handler as *const () as usize,
        flags: SA_RESTORER,
        restorer: uringlet_interrupt_restorer as *const () as usize,
        mask: u64::MAX,
    };
    let mut old = KernelSigaction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: live structures of the kernel's layout; the handler returns at once to a restorer that is rt_sigreturn.
    unsafe {
        raw_syscall!(Sysno::rt_sigaction, INTERRUPT_SIGNAL, 0, &raw mut old, 8);
        if old.handler == 0 {
            raw_syscall!(Sysno::rt_sigaction, INTERRUPT_SIGNAL, &raw const action, 0, 8);
        }
    }
}

mod raw {
    use super::{Main, with_signals_blocked};
    use alloc::boxed::Box;
    use syscalls::{Errno, Sysno, raw_syscall, syscall};

    /// Room for the deepest path of a worker; touched lazily.
    const STACK: usize = 256 << 10;
    const GUARD: usize = 4096;

    /// Runs on the new thread's stack, which it hands back when done.
    unsafe extern "C" fn run(main: *mut Main, stack: usize) -> ! {
        // SAFETY: `start` passed a leaked box to this thread alone.
        let main = unsafe { Box::from_raw(main) };
        main();
        // SAFETY: nothing touches the stack between its unmapping and the thread's end: both calls are made in one piece
        // of assembly that uses registers only.
        unsafe {
            core::arch::asm!(
                "syscall",
                "mov edi, 0",
                "mov eax, 60",
                "syscall",
                in("rax") 11_usize,
                in("rdi") stack,
                in("rsi") STACK + GUARD,
                options(noreturn)
            );
        }
    }

    pub(super) fn start(main: Main) -> Result<(), Errno> {
        const PROT_READ_WRITE: usize = 3;
        const MAP_PRIVATE_ANONYMOUS_NORESERVE_STACK: usize = 0x02 | 0x20 | 0x4000 | 0x2_0000;
        // SAFETY: a new anonymous mapping overlaps nothing.
        let stack =
            unsafe { syscall!(Sysno::mmap, 0, STACK + GUARD, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE_STACK, usize::MAX, 0) }?;
        // SAFETY: the lowest page of our own mapping becomes the guard.
        unsafe { raw_syscall!(Sysno::mprotect, stack, GUARD, 0) };
        let main = Box::into_raw(Box::new(main));
        let started = with_signals_blocked(|| {
            // SAFETY: the stack is fresh, `main` goes to the new thread alone.
            unsafe { clone(stack + STACK + GUARD, main, stack) }
        });
        if started.is_err() {
            // SAFETY: no thread was made: both are still ours.
            unsafe {
                drop(Box::from_raw(main));
                raw_syscall!(Sysno::munmap, stack, STACK + GUARD);
            }
        }
        started
    }

    /// # Safety
    /// `top` is the end of a fresh stack; `main` and `stack` are what `run` wants.
    unsafe fn clone(top: usize, main: *mut Main, stack: usize) -> Result<(), Errno> {
        // CLONE_VM | FS | FILES | SIGHAND | THREAD | SYSVSEM
        const FLAGS: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000;
        let ret: isize;
        // SAFETY: the parent's path changes only the clobbered registers; the child starts with a zero frame pointer on
        // its own stack, 16-byte aligned at the call, and never returns.
        unsafe {
            core::arch::asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "mov rdi, r12",
                "mov rsi, r13",
                "call {run}",
                "ud2",
                "2:",
                run = sym run,
                inlateout("rax") 56_usize => ret,
                in("rdi") FLAGS,
                in("rsi") top,
                in("rdx") 0,
                in("r10") 0,
                in("r8") 0,
                in("r12") main,
                in("r13") stack,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        if ret < 0 { Err(Errno::new(-ret as i32)) } else { Ok(()) }
    }
}

/// Binds a thread of this process (0: this one) to the CPUs of a mask.
pub fn set_affinity(tid: u32, mask: &[u64; 16]) {
    // SAFETY: a live mask of 128 bytes.
    unsafe { raw_syscall!(Sysno::sched_setaffinity, tid, size_of_val(mask), mask.as_ptr()) };
}
