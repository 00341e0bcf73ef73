//! Who we are: process and thread ids, time, limits.

use crate::arch;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use syscalls::{Sysno, raw_syscall};

/// The process id, cached; [`forget_pid`] empties the cache in a forked child.
static PID: AtomicU32 = AtomicU32::new(0);

/// This process' id. A child of a raw vfork or clone sees its parent's until [`forget_pid`]; ask [`pid_now`] where that matters.
#[must_use]
pub fn pid() -> u32 {
    match PID.load(Relaxed) {
        0 => {
            let pid = pid_now();
            PID.store(pid, Relaxed);
            pid
        }
        pid => pid,
    }
}

/// This process' id, asked anew.
#[must_use]
pub fn pid_now() -> u32 {
    // SAFETY: getpid has no arguments and no effects.
    unsafe { raw_syscall!(Sysno::getpid) as u32 }
}

/// In a forked child: the pid is another one now.
pub fn forget_pid() {
    PID.store(0, Relaxed);
}

/// This thread's id.
#[must_use]
pub fn tid() -> u32 {
    // SAFETY: gettid has no arguments and no effects.
    unsafe { raw_syscall!(Sysno::gettid) as u32 }
}

/// A clock of clock_gettime(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockId {
    /// `CLOCK_REALTIME`
    Realtime = 0,
    /// `CLOCK_MONOTONIC`
    Monotonic = 1,
    /// `CLOCK_BOOTTIME`
    Boottime = 7,
}

/// The time of a clock, nanoseconds.
#[must_use]
pub fn now_ns(clock: ClockId) -> u64 {
    let mut ts = [0_i64; 2];
    // SAFETY: the kernel writes 16 bytes to `ts`.
    unsafe { raw_syscall!(Sysno::clock_gettime, clock as u32, ts.as_mut_ptr()) };
    (ts[0] as u64).saturating_mul(1_000_000_000).saturating_add(ts[1] as u64)
}

/// `CLOCK_MONOTONIC`, nanoseconds.
#[cfg(not(loom))]
#[must_use]
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

#[cfg(loom)]
pub use crate::model::{monotonic_ns, sleep_ns, yield_now};

/// The user and group of the calling thread (the real ones).
#[must_use]
pub fn user_and_group() -> (u32, u32) {
    // SAFETY: no addresses.
    unsafe { (raw_syscall!(Sysno::getuid) as u32, raw_syscall!(Sysno::getgid) as u32) }
}

/// The effective user of the calling thread.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: no addresses.
    unsafe { raw_syscall!(Sysno::geteuid) as u32 }
}

/// Number of CPUs this process may run on (at least 1).
#[must_use]
pub fn cpu_count() -> u32 {
    let mut mask = [0_u64; 16];
    // SAFETY: the kernel writes at most 128 bytes to `mask`.
    let n = unsafe { raw_syscall!(Sysno::sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    let bytes = (n as isize).clamp(0, 128) as usize;
    mask[..bytes / 8].iter().map(|w| w.count_ones()).sum::<u32>().max(1)
}

/// `RLIMIT_NPROC` (soft).
#[must_use]
pub fn rlimit_nproc() -> u64 {
    let mut lim = [0_u64; 2];
    // SAFETY: the kernel writes 16 bytes to `lim`.
    unsafe { raw_syscall!(Sysno::prlimit64, 0, 6, 0, lim.as_mut_ptr()) };
    lim[0]
}

/// `RLIMIT_NOFILE` (soft).
#[must_use]
pub fn rlimit_nofile() -> u64 {
    let mut lim = [0_u64; 2];
    // SAFETY: the kernel writes 16 bytes to `lim`.
    unsafe { raw_syscall!(Sysno::prlimit64, 0, 7, 0, lim.as_mut_ptr()) };
    lim[0]
}

/// Raises the soft limit on open files by `more` if it is below `more`.
pub fn raise_nofile_limit(more: u32) {
    const RLIMIT_NOFILE: u32 = 7;
    let mut limit = [0_u64; 2];
    // SAFETY: prlimit64 writes two words to `limit`.
    let result = unsafe { raw_syscall!(Sysno::prlimit64, 0, RLIMIT_NOFILE, 0, limit.as_mut_ptr()) };
    if result == 0 && limit[0] < u64::from(more) {
        limit[0] += u64::from(more);
        // SAFETY: prlimit64 reads two words from `limit`.
        unsafe { raw_syscall!(Sysno::prlimit64, 0, RLIMIT_NOFILE, limit.as_ptr(), 0) };
    }
}

/// A siginfo_t as waitid(2) fills it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Siginfo {
    /// Signal, errno, code.
    head: [u32; 3],
    pad: u32,
    /// Process, user, status.
    child: [u32; 3],
    rest: [u32; 25],
}

impl Siginfo {
    /// Where the child's part stands, bytes.
    pub const CHILD: usize = 16;

    /// Whether nobody's state is told.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.head[0] == 0
    }

    /// What is told: the signal's part, and the child's.
    #[must_use]
    pub const fn parts(&self) -> (&[u32; 3], &[u32; 3]) {
        (&self.head, &self.child)
    }
}

/// waitid(2).
///
/// # Errors
/// `ECHILD`, `EINVAL`, `EBADF`, `EINTR`.
pub fn waitid(which: u32, id: i32, options: u32, info: &mut Siginfo) -> Result<(), syscalls::Errno> {
    // SAFETY: the kernel writes at most the 128 bytes of a live siginfo_t.
    let r = unsafe { raw_syscall!(Sysno::waitid, which, id, core::ptr::from_mut(info), options, 0) };
    syscalls::Errno::from_ret(r).map(drop)
}

/// Whether a process runs: one that has ended and waits to be reaped does not.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    const POLLIN: u64 = 1;
    // SAFETY: signal 0 only asks.
    if unsafe { raw_syscall!(Sysno::kill, pid, 0) } as isize == -(syscalls::Errno::ESRCH.into_raw() as isize) {
        return false;
    }
    // SAFETY: no addresses.
    let fd = unsafe { raw_syscall!(Sysno::pidfd_open, pid, 0) };
    if (fd as isize) < 0 {
        return true;
    }
    // struct pollfd, POLLIN asked for. A pidfd is readable when its process has ended.
    let mut pollfd = fd as u64 | POLLIN << 32;
    // SAFETY: one live pollfd and no waiting; the descriptor is ours.
    unsafe {
        raw_syscall!(Sysno::poll, &raw mut pollfd, 1, 0);
        raw_syscall!(Sysno::close, fd);
    }
    pollfd >> 48 & POLLIN == 0
}

/// Whether files may only grow so far (`RLIMIT_FSIZE`): as last asked.
static IS_FILE_SIZE_LIMITED: AtomicBool = AtomicBool::new(false);

/// Asks whether files may only grow so far.
pub fn refresh_file_size_limit() {
    let mut lim = [0_u64; 2];
    // SAFETY: the kernel writes 16 bytes to `lim`.
    let r = unsafe { raw_syscall!(Sysno::prlimit64, 0, 1, 0, lim.as_mut_ptr()) };
    IS_FILE_SIZE_LIMITED.store(r == 0 && lim[0] != u64::MAX, Relaxed);
}

/// Whether files may only grow so far: then what makes them grow raises `SIGXFSZ`, and must be done by a thread that
/// blocks it.
#[inline]
#[must_use]
pub fn is_file_size_limited() -> bool {
    IS_FILE_SIZE_LIMITED.load(Relaxed)
}

/// Sleeps, at most this long.
#[cfg(not(loom))]
pub fn sleep_ns(ns: u64) {
    let ts = [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64];
    // SAFETY: the kernel reads 16 bytes of `ts`.
    unsafe { raw_syscall!(Sysno::nanosleep, ts.as_ptr(), 0) };
}

/// Offers the CPU to others that want it.
#[cfg(not(loom))]
pub fn yield_now() {
    // SAFETY: no addresses.
    unsafe { raw_syscall!(Sysno::sched_yield) };
}

/// Whether this thread has `CAP_SYS_ADMIN` or another capability, by its number.
#[must_use]
pub fn has_capability(cap: u32) -> bool {
    let header = [0x2008_0522_u32, 0];
    let mut data = [0_u32; 6];
    // SAFETY: version 3 writes two sets of three words.
    let r = unsafe { raw_syscall!(Sysno::capget, header.as_ptr(), data.as_mut_ptr()) };
    let effective = u64::from(data[0]) | u64::from(data[3]) << 32;
    r == 0 && effective >> cap & 1 == 1
}

/// Ends the process with a message on stderr: for broken invariants of our own only.
pub fn die(message: &[u8]) -> ! {
    // SAFETY: writes a live buffer, then kills the process by SIGABRT.
    unsafe {
        raw_syscall!(Sysno::write, 2, message.as_ptr(), message.len());
        raw_syscall!(Sysno::tgkill, pid_now(), tid(), 6);
        raw_syscall!(Sysno::exit_group, 134);
    }
    loop {
        core::hint::spin_loop();
    }
}

/// A number that differs between the living threads of the process: its TLS register's self pointer, read without a
/// system call.
#[inline]
#[must_use]
pub fn thread_key() -> u64 {
    arch::thread_pointer()
}
