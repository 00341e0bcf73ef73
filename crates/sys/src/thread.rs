//! Engine threads: raw clones on stacks of their own, all signals blocked, no libc behind them.
//!
//! A raw clone shares its creator's TLS register. So nothing that runs here may use thread-local
//! storage, a libc's allocator included: the engine needs the heap of `freestanding!`.

use crate::arch::{self, PAGE_SIZE};
use crate::linux::general::{
    AT_FDCWD, CLONE_FILES, CLONE_FS, CLONE_SIGHAND, CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM, MAP_NORESERVE, MAP_STACK, PROT_NONE, SIGKILL,
    SIGSTOP, STATX_NLINK, statx,
};
use crate::linux::prctl::PR_SET_NAME;
use crate::proc_path::ProcPath;
use crate::signal::KernelSigaction;
use crate::static_ref::StaticRef;
use crate::{io, mm, process, signal};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use syscalls::{Errno, Sysno, raw_syscall};

/// The signal that interrupts an engine thread's blocking call: the last real-time one but one,
/// because programs do not use it. The last is valgrind's own.
pub const INTERRUPT_SIGNAL: u32 = 63;
/// What an interrupt of the engine's carries as its value. The program's own signals have others.
pub const INTERRUPT_MARK: u64 = u64::from_be_bytes(*b"uringlet");

/// What [`install_interrupt_handler`] calls; none: the signal gets a handler that does nothing.
static INTERRUPT_HOOK: StaticRef<fn()> = StaticRef::new();

/// Bytes of a thread's stack: the deepest path of a worker fits. Pages are touched lazily.
const STACK: usize = 256 << 10;
/// Of the stack pointer, bytes.
const STACK_ALIGN: usize = 16;
/// Bytes without access below the stack.
const GUARD: usize = PAGE_SIZE;

/// The engine's threads that run. Counted after a thread's start and before its end, so that it is
/// never more than there are.
static RUNNING: AtomicU32 = AtomicU32::new(0);
/// When the last of them ended, and how long one may be among the process' threads afterwards.
static END_NS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
static ENDS: AtomicU32 = AtomicU32::new(0);
const ENDING_NS: u64 = 2_000_000;

/// Blocked on an engine thread: all signals but the interrupt.
const ENGINE_THREAD_MASK: u64 = !signal::bit(INTERRUPT_SIGNAL);

/// Whether a thread with this mask of blocked signals, as the kernel reports it, is one of the
/// engine's.
#[must_use]
pub const fn is_engine_mask(mask: u64) -> bool {
    mask | signal::bit(SIGKILL) | signal::bit(SIGSTOP) == ENGINE_THREAD_MASK
}

/// What a thread runs.
type Main = Box<dyn FnOnce() + Send>;

/// Starts a thread with `name` (at most 15 bytes, as ps shows it).
///
/// # Errors
/// `EAGAIN` (`RLIMIT_NPROC`, pids cgroup; in a vfork child, whose thread would end with it),
/// `ENOMEM`.
pub fn spawn(name: &str, main: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    if process::is_foreign() {
        return Err(Errno::EAGAIN);
    }
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
    // The first stack pointer lies in the mapping: valgrind finds the stack by it.
    let top = stack + STACK + GUARD - STACK_ALIGN;
    // SAFETY: the stack is fresh, `main` goes to the new thread alone.
    let started = unsafe { arch::start_thread(FLAGS, top, run, [main as usize, stack]) };
    signal::set_mask(mask);
    if started.is_ok() {
        RUNNING.fetch_add(1, Relaxed);
    } else {
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
    END_NS[ENDS.fetch_add(1, Relaxed) as usize % END_NS.len()].store(process::monotonic_ns(), Relaxed);
    RUNNING.fetch_sub(1, Relaxed);
    // SAFETY: the stack is this thread's own.
    unsafe { arch::unmap_and_exit(stack, STACK + GUARD) }
}

/// Whether the program has one thread. False where that is not known: /proc is not mounted.
///
/// An engine thread that is about to end looks like one of the program's: a second look tells
/// them apart, unless fewer threads have ended lately.
#[must_use]
pub fn is_program_alone() -> bool {
    const STEP_NS: u64 = 50_000;
    loop {
        // Read first: a thread that starts meanwhile is counted as the program's.
        let engine = RUNNING.load(Relaxed);
        let others = count().map_or(u32::MAX, |all| all.wrapping_sub(engine).wrapping_sub(1));
        if others == 0 {
            return true;
        }
        let now = process::monotonic_ns();
        let ending = END_NS.iter().filter(|at| now < at.load(Relaxed) + ENDING_NS).count();
        if ending < END_NS.len() && others as usize > ending || ending == 0 {
            return false;
        }
        process::sleep_ns(STEP_NS);
    }
}

/// How many threads the engine has. One that has just started or is about to end may be missing.
#[must_use]
pub fn count_of_engine() -> u32 {
    RUNNING.load(Relaxed)
}

/// Number of threads of this process; `None` where /proc is not mounted.
#[must_use]
pub fn count() -> Option<u32> {
    let mut stat = [0_u32; size_of::<statx>() / size_of::<u32>()];
    let path = io::ptr_of_slice(c"/proc/self/task".to_bytes_with_nul());
    io::statx(AT_FDCWD, path, 0, STATX_NLINK, io::ptr_of_mut(&mut stat)).ok()?;
    // A folder has two links, and one for each folder in it.
    let links = stat[core::mem::offset_of!(statx, stx_nlink) / size_of::<u32>()];
    links.checked_sub(2).filter(|&threads| threads > 0)
}

/// In a forked child, which has none of the engine's threads.
pub fn forget_all() {
    RUNNING.store(0, Relaxed);
}

/// Whether a thread of this process runs.
#[must_use]
pub fn is_alive(tid: u32) -> bool {
    // Signal 0 only checks.
    queue_signal(tid, 0) != Err(Errno::ESRCH)
}

/// Whether a thread of this process sleeps in a system call other than futex(2), which locks make.
/// False where /proc does not tell.
#[must_use]
pub fn is_in_system_call(tid: u32) -> bool {
    let path = ProcPath::of_task(tid);
    let Ok(file) = io::openat(AT_FDCWD, io::ptr_of_slice(path.bytes()), io::O_RDONLY | io::O_CLOEXEC, 0) else { return false };
    let file = io::number_of(file);
    let mut text = [0_u8; 8];
    let n = io::read(file, io::ptr_of_mut(&mut text), text.len());
    let _ = io::close(file);
    n.is_ok_and(|n| system_call(&text[..n]).is_some_and(|call| call != Sysno::futex as usize))
}

/// The number of a system call at the start of a line of `/proc/self/task/N/syscall`. `None`:
/// "running", or "-1 ..." in a page fault.
fn system_call(line: &[u8]) -> Option<usize> {
    core::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Interrupts a blocking system call of an engine thread.
pub fn interrupt(tid: u32) {
    // A program that resets every signal would die of this one.
    install_interrupt_handler();
    let _ = queue_signal(tid, INTERRUPT_SIGNAL);
}

/// The interrupt signal, or 0.
fn queue_signal(tid: u32, signal: u32) -> Result<(), Errno> {
    // A siginfo_t: signal, errno, code, sender, user, value. Of other codes than negative ones the
    // kernel lets a thread send itself only.
    const SI_QUEUE: i32 = -1;
    let mut info = [0_u64; 16];
    info[0] = signal.into();
    info[1] = SI_QUEUE.cast_unsigned().into();
    (info[2], info[3]) = (process::pid().into(), INTERRUPT_MARK);
    // SAFETY: a live siginfo_t; the signal has a handler.
    unsafe { signal::queue_to_thread(tid, signal, info.as_ptr().addr()) }
}

/// On an engine thread: unblocks the interrupt signal, and no other.
pub fn accept_interrupts() {
    signal::set_mask(ENGINE_THREAD_MASK);
}

/// Sees to it that the interrupt signal neither kills nor is ignored.
pub fn install_interrupt_handler() {
    const SIG_IGN: usize = 1;
    if let Some(hook) = INTERRUPT_HOOK.get() {
        return hook();
    }
    let is_free = signal::action(INTERRUPT_SIGNAL).map_or(true, |old| old.handler <= SIG_IGN);
    if is_free {
        // SAFETY: the handler returns at once to a restorer that is rt_sigreturn(2); both are code
        // of this object.
        let _ = unsafe { signal::set_action(INTERRUPT_SIGNAL, &noop_interrupt_action()) };
    }
}

/// An action of the interrupt signal that does nothing.
#[must_use]
pub fn noop_interrupt_action() -> KernelSigaction {
    arch::noop_sigaction(u64::MAX)
}

/// From now on `hook` gives the interrupt signal its handler.
pub fn set_interrupt_hook(hook: &'static fn()) {
    INTERRUPT_HOOK.set(hook);
}

/// Binds a thread of this process (0: this one) to the CPUs of a mask.
pub fn set_affinity(tid: u32, mask: &[u64; 16]) {
    // SAFETY: a live mask of 128 bytes.
    unsafe { raw_syscall!(Sysno::sched_setaffinity, tid, size_of_val(mask), mask.as_ptr()) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_alive_until_it_ends() {
        static TID: AtomicU32 = AtomicU32::new(0);
        static MAY_END: AtomicU32 = AtomicU32::new(0);
        spawn("short", || {
            TID.store(process::tid(), Relaxed);
            while MAY_END.load(Relaxed) == 0 {
                process::sleep_ns(1_000_000);
            }
        })
        .unwrap();
        let pause_while = |is_so: &dyn Fn() -> bool| (0..5_000).take_while(|_| is_so()).for_each(|_| process::sleep_ns(1_000_000));
        pause_while(&|| TID.load(Relaxed) == 0);
        let tid = TID.load(Relaxed);
        assert!(tid != 0 && is_alive(tid));
        MAY_END.store(1, Relaxed);
        pause_while(&|| is_alive(tid));
        assert!(!is_alive(tid));
    }

    #[test]
    fn an_interrupt_reaches_the_thread_that_it_is_for() {
        install_interrupt_handler();
        static TID: AtomicU32 = AtomicU32::new(0);
        static WAS_CUT_SHORT: AtomicU32 = AtomicU32::new(0);
        spawn("sleeper", || {
            accept_interrupts();
            TID.store(process::tid(), Relaxed);
            let began = process::monotonic_ns();
            process::sleep_ns(60_000_000_000);
            WAS_CUT_SHORT.store(u32::from(process::monotonic_ns() - began < 60_000_000_000), Relaxed);
        })
        .unwrap();
        for _ in 0..5_000 {
            if WAS_CUT_SHORT.load(Relaxed) != 0 {
                return;
            }
            if TID.load(Relaxed) != 0 {
                interrupt(TID.load(Relaxed));
            }
            process::sleep_ns(1_000_000);
        }
        panic!("no interrupt has come");
    }

    #[test]
    fn a_line_of_proc_names_the_call() {
        assert_eq!(system_call(b"0 0x3 0x"), Some(0));
        assert_eq!(system_call(b"202 0x7"), Some(Sysno::futex as usize));
        assert_eq!(system_call(b"running\n"), None);
        assert_eq!(system_call(b"-1 0x7ff"), None);
    }
}
