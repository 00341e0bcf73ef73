//! Engine threads: raw clones on stacks of their own, all signals blocked, no libc behind them.
//!
//! A raw clone shares its creator's TLS register. So nothing that runs here may use thread-local
//! storage, a libc's allocator included: the engine needs the heap of `freestanding!`.

use crate::arch::{self, PAGE_SIZE};
use crate::linux::general::{
    CLONE_FILES, CLONE_FS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM, MAP_NORESERVE, MAP_STACK, PROT_NONE,
};
use crate::linux::prctl::PR_SET_NAME;
use crate::{mm, process, signal};
use alloc::boxed::Box;
use syscalls::{Errno, Sysno, raw_syscall};

/// The signal that interrupts an engine thread's blocking call: the last real-time one.
pub const INTERRUPT_SIGNAL: u32 = 64;

/// Bytes of a thread's stack: the deepest path of a worker fits. Pages are touched lazily.
const STACK: usize = 256 << 10;
/// Bytes without access below the stack.
const GUARD: usize = PAGE_SIZE;

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
    start(Box::new(move || {
        // SAFETY: a NUL-terminated name of 16 bytes.
        unsafe { raw_syscall!(Sysno::prctl, PR_SET_NAME, comm.as_ptr()) };
        main();
    }))
}

fn start(main: Main) -> Result<(), Errno> {
    const FLAGS: u32 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    let stack = mm::map_anonymous(STACK + GUARD, MAP_NORESERVE | MAP_STACK)?;
    // SAFETY: the lowest page of our own mapping becomes the guard. Without it the thread runs all
    // the same.
    let _ = unsafe { mm::protect(stack, GUARD, PROT_NONE) };
    let main = Box::into_raw(Box::new(main));
    // A new thread inherits its creator's mask: all signals blocked.
    let mask = signal::block(u64::MAX);
    // SAFETY: the stack is fresh, `main` goes to the new thread alone.
    let started = unsafe { arch::start_thread(FLAGS, stack + STACK + GUARD, run, [main as usize, stack]) };
    signal::set_mask(mask);
    if started.is_err() {
        // SAFETY: no thread was made: both are still ours.
        unsafe {
            drop(Box::from_raw(main));
            let _ = mm::unmap(stack, STACK + GUARD);
        }
    }
    started
}

/// Runs on the new thread's stack, and unmaps it at the end.
unsafe extern "C" fn run(main: usize, stack: usize) -> ! {
    // SAFETY: `start` passed a leaked box to this thread alone.
    let main = unsafe { Box::from_raw(main as *mut Main) };
    main();
    // SAFETY: the stack is this thread's own.
    unsafe { arch::unmap_and_exit(stack, STACK + GUARD) }
}

/// Interrupts a blocking system call of an engine thread.
pub fn interrupt(tid: u32) {
    // SAFETY: the signal has a handler that does nothing (`install_interrupt_handler`).
    unsafe { raw_syscall!(Sysno::tgkill, process::pid(), tid, INTERRUPT_SIGNAL) };
}

/// On an engine thread: unblocks the interrupt signal, and no other.
pub fn accept_interrupts() {
    signal::set_mask(!(1_u64 << (INTERRUPT_SIGNAL - 1)));
}

/// Gives the interrupt signal a handler that does nothing, unless the program has one of its own.
///
/// The program's handler would run on our thread's small stack. The last real-time signal was
/// chosen because programs do not use it.
pub fn install_interrupt_handler() {
    let is_free = signal::action(INTERRUPT_SIGNAL).map_or(true, |old| old.handler == 0);
    if is_free {
        // SAFETY: the handler returns at once to a restorer that is rt_sigreturn(2); both are code
        // of this object.
        let _ = unsafe { signal::set_action(INTERRUPT_SIGNAL, &arch::noop_sigaction(u64::MAX)) };
    }
}

/// Binds a thread of this process (0: this one) to the CPUs of a mask.
pub fn set_affinity(tid: u32, mask: &[u64; 16]) {
    // SAFETY: a live mask of 128 bytes.
    unsafe { raw_syscall!(Sysno::sched_setaffinity, tid, size_of_val(mask), mask.as_ptr()) };
}
