//! The process and its threads: ids, time, limits, capabilities.

use crate::arch;
use crate::clock::{SECOND_NS, timespec};
use crate::linux::general::{
    __user_cap_data_struct, __user_cap_header_struct, _LINUX_CAPABILITY_VERSION_3, CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME,
    MADV_WIPEONFORK, POLLIN, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC, SIGABRT, STDERR_FILENO, pollfd, rlimit64,
};
use crate::linux::prctl::PR_GET_NAME;
use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// The id of the process that this memory is of, alone on a page that every forked child finds
/// zeroed (`MADV_WIPEONFORK`), whichever call made the child. 0: not known, or in such a child.
///
/// Stored by [`claim`] only. A child that shares its parent's memory (vfork, `CLONE_VM`) stores
/// nothing here, so the parent never sees the child's id.
#[repr(C, align(4096))]
struct OwnerPage {
    pid: AtomicU32,
    /// A thread of a forked child is about to [`claim`].
    is_claiming: AtomicBool,
}

static OWNER: OwnerPage = OwnerPage { pid: AtomicU32::new(0), is_claiming: AtomicBool::new(false) };

/// [`claim`] was called, in this process or in one that it was copied from.
static IS_CLAIMED: AtomicBool = AtomicBool::new(false);

/// This process' id, cached after [`claim`]. A child that shares its parent's memory sees its
/// parent's; use [`pid_now`] where that matters.
#[inline]
#[must_use]
pub fn pid() -> u32 {
    match OWNER.pid.load(Relaxed) {
        0 => pid_now(),
        pid => pid,
    }
}

/// This process' id, by a system call.
#[cold]
#[must_use]
pub fn pid_now() -> u32 {
    // SAFETY: getpid has no arguments and no effects.
    unsafe { raw_syscall!(Sysno::getpid) as u32 }
}

/// The calling process is the one that this memory is of: at its start, and in a forked child.
/// Never in a vfork child.
pub fn claim() {
    // SAFETY: a page of this object's zeroed data, which is private anonymous memory and used by
    // nothing else. Before Linux 4.14 the call fails: a child of a raw fork then counts as a vfork
    // child.
    let _ = unsafe { crate::mm::advise((&raw const OWNER).addr(), size_of::<OwnerPage>(), MADV_WIPEONFORK) };
    OWNER.pid.store(pid_now(), Release);
    IS_CLAIMED.store(true, Relaxed);
}

/// In a child of fork(2), by its handler: the child is an [unclaimed copy](is_unclaimed_copy) also
/// where the page was not wiped.
pub fn disown() {
    if OWNER.pid.load(Relaxed) != 0 {
        OWNER.pid.store(0, Relaxed);
    }
}

/// Whether [`claim`] was called, in this process or in one that it was copied from.
#[must_use]
pub fn is_claimed() -> bool {
    IS_CLAIMED.load(Relaxed)
}

/// Whether the calling process is another one than this memory is of: a vfork child.
#[must_use]
pub fn is_foreign() -> bool {
    pid_now() != pid()
}

/// In an [unclaimed copy](is_unclaimed_copy): true in the one thread that shall prepare it and then
/// [`claim`] it. In the others false, once that thread has done so or given up.
#[must_use]
pub fn begin_claim() -> bool {
    if !OWNER.is_claiming.swap(true, Acquire) {
        return true;
    }
    while is_unclaimed_copy() && OWNER.is_claiming.load(Acquire) {
        yield_now();
    }
    false
}

/// The thread of [`begin_claim`] cannot claim the copy.
pub fn give_up_claim() {
    OWNER.is_claiming.store(false, Release);
}

/// Whether this process is a copy of one that has called [`claim`], and has not done so itself: a
/// forked child in which no fork handler has run (`_Fork`, clone(2), fork(2) by a raw call).
#[inline]
#[must_use]
pub fn is_unclaimed_copy() -> bool {
    OWNER.pid.load(Relaxed) == 0 && IS_CLAIMED.load(Relaxed)
}

/// Calls process_vm_readv(2) or process_vm_writev(2) with an id of this process' memory.
///
/// Mostly that is the process' id. But that id stands for its first thread, which has no memory any
/// more once it has ended (`pthread_exit` in `main`): then it is the calling thread's.
///
/// # Errors
/// Those of the call.
pub(crate) fn with_memory_id(copy: impl Fn(u32) -> Result<usize, Errno>) -> Result<usize, Errno> {
    match copy(pid()) {
        Err(Errno::ESRCH) => copy(tid()),
        result => result,
    }
}

/// This thread's id.
#[must_use]
pub fn tid() -> u32 {
    // SAFETY: gettid has no arguments and no effects.
    unsafe { raw_syscall!(Sysno::gettid) as u32 }
}

/// The calling thread's name, up to 15 bytes, as two words.
#[must_use]
pub fn name_words() -> [u64; 2] {
    let mut words = [0; 2];
    // SAFETY: the kernel writes 16 bytes to a live array of as many.
    unsafe { raw_syscall!(Sysno::prctl, PR_GET_NAME, words.as_mut_ptr()) };
    words
}

/// A clock of clock_gettime(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockId {
    /// `CLOCK_REALTIME`
    Realtime = CLOCK_REALTIME,
    /// `CLOCK_MONOTONIC`
    Monotonic = CLOCK_MONOTONIC,
    /// `CLOCK_BOOTTIME`
    Boottime = CLOCK_BOOTTIME,
}

/// The time of a clock, nanoseconds.
#[must_use]
pub fn now_ns(clock: ClockId) -> u64 {
    let mut ts = timespec(0);
    // SAFETY: the kernel writes to a live timespec.
    unsafe { raw_syscall!(Sysno::clock_gettime, clock as u32, &raw mut ts) };
    ts.tv_sec.cast_unsigned().saturating_mul(SECOND_NS).saturating_add(ts.tv_nsec.cast_unsigned())
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
    effective_user_and_group().0
}

/// The effective user and group of the calling thread.
#[must_use]
pub fn effective_user_and_group() -> (u32, u32) {
    // SAFETY: no addresses.
    unsafe { (raw_syscall!(Sysno::geteuid) as u32, raw_syscall!(Sysno::getegid) as u32) }
}

/// Number of CPUs this process may run on (at least 1).
#[must_use]
pub fn cpu_count() -> u32 {
    let (mask, bytes) = affinity();
    mask[..bytes / 8].iter().map(|w| w.count_ones()).sum::<u32>().max(1)
}

/// Bytes of a set of CPUs in this kernel; as many as may be if it does not say.
#[must_use]
pub fn cpu_set_len() -> usize {
    match affinity().1 {
        0 => 128,
        bytes => bytes,
    }
}

/// The CPUs that this process may run on, and how many bytes of it the kernel has.
fn affinity() -> ([u64; 16], usize) {
    let mut mask = [0_u64; 16];
    // SAFETY: the kernel writes at most 128 bytes to `mask`.
    let n = unsafe { raw_syscall!(Sysno::sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    (mask, (n as isize).clamp(0, 128) as usize)
}

/// `RLIMIT_NPROC` (soft).
#[must_use]
pub fn rlimit_nproc() -> u64 {
    soft_limit(RLIMIT_NPROC).unwrap_or(u64::MAX)
}

/// `RLIMIT_NOFILE` (soft).
#[must_use]
pub fn rlimit_nofile() -> u64 {
    soft_limit(RLIMIT_NOFILE).unwrap_or(u64::MAX)
}

/// A soft limit of this process; `u64::MAX`: unlimited.
fn soft_limit(resource: u32) -> Result<u64, Errno> {
    limits(resource).map(|limit| limit.rlim_cur)
}

fn limits(resource: u32) -> Result<rlimit64, Errno> {
    let mut limit = rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to a live structure.
    unsafe { syscall!(Sysno::prlimit64, 0, resource, 0, &raw mut limit) }?;
    Ok(limit)
}

/// Calls `use_it` with the soft limit on open files, which is the hard one meanwhile.
///
/// # Errors
/// `EMFILE` it is the hard one already; those of prlimit(2).
pub fn with_hard_nofile_limit<R>(use_it: impl FnOnce(u32) -> R) -> Result<R, Errno> {
    let former = limits(RLIMIT_NOFILE)?;
    let soft = u32::try_from(former.rlim_cur).ok().filter(|_| former.rlim_cur < former.rlim_max).ok_or(Errno::EMFILE)?;
    let raised = rlimit64 { rlim_cur: former.rlim_max, ..former };
    // SAFETY: the kernel reads a live structure.
    unsafe { syscall!(Sysno::prlimit64, 0, RLIMIT_NOFILE, &raw const raised, 0) }?;
    let used = use_it(soft);
    // SAFETY: as above. What was the limit a moment ago is allowed.
    unsafe { raw_syscall!(Sysno::prlimit64, 0, RLIMIT_NOFILE, &raw const former, 0) };
    Ok(used)
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
    /// Offset of the child's part, bytes.
    pub const CHILD: usize = 16;

    /// Whether it reports no process.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.head[0] == 0
    }

    /// The signal's part, and the child's.
    #[must_use]
    pub const fn parts(&self) -> (&[u32; 3], &[u32; 3]) {
        (&self.head, &self.child)
    }
}

/// waitid(2).
///
/// # Errors
/// `ECHILD`, `EINVAL`, `EBADF`, `EINTR`.
pub fn waitid(which: u32, id: i32, options: u32, info: &mut Siginfo) -> Result<(), Errno> {
    // SAFETY: the kernel writes at most the 128 bytes of a live siginfo_t.
    let r = unsafe { raw_syscall!(Sysno::waitid, which, id, core::ptr::from_mut(info), options, 0) };
    Errno::from_ret(r).map(drop)
}

/// Whether a process runs. A zombie does not.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    // SAFETY: signal 0 only checks.
    if unsafe { syscall!(Sysno::kill, pid, 0) } == Err(Errno::ESRCH) {
        return false;
    }
    // SAFETY: no addresses.
    let Ok(fd) = (unsafe { syscall!(Sysno::pidfd_open, pid, 0) }) else { return true };
    // A pidfd is readable when its process has ended.
    let mut file = pollfd { fd: fd as i32, events: POLLIN as i16, revents: 0 };
    let _ = arch::poll(&mut file, 0);
    // SAFETY: the descriptor is ours.
    unsafe { raw_syscall!(Sysno::close, fd) };
    file.revents & POLLIN as i16 == 0
}

/// Whether the size of files is limited (`RLIMIT_FSIZE`), as of the last
/// [`refresh_file_size_limit`].
static IS_FILE_SIZE_LIMITED: AtomicBool = AtomicBool::new(false);

/// Reads `RLIMIT_FSIZE`, for [`is_file_size_limited`].
pub fn refresh_file_size_limit() {
    let is_limited = soft_limit(RLIMIT_FSIZE).is_ok_and(|limit| limit != u64::MAX);
    IS_FILE_SIZE_LIMITED.store(is_limited, Relaxed);
}

/// Whether the size of files is limited. Then a write beyond the limit raises `SIGXFSZ`, so a
/// thread that blocks the signal must execute it.
#[inline]
#[must_use]
pub fn is_file_size_limited() -> bool {
    IS_FILE_SIZE_LIMITED.load(Relaxed)
}

/// Sleeps `ns` nanoseconds, less if a signal comes.
#[cfg(not(loom))]
pub fn sleep_ns(ns: u64) {
    let ts = timespec(ns);
    // SAFETY: the kernel reads a live timespec.
    unsafe { raw_syscall!(Sysno::nanosleep, &raw const ts, 0) };
}

/// Yields the CPU (sched_yield(2)).
#[cfg(not(loom))]
pub fn yield_now() {
    // SAFETY: no addresses.
    unsafe { raw_syscall!(Sysno::sched_yield) };
}

/// Whether this thread has a capability in effect: `cap` is its number, `CAP_*`.
#[must_use]
pub fn has_capability(cap: u32) -> bool {
    let header = __user_cap_header_struct { version: _LINUX_CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [__user_cap_data_struct { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 writes two structures.
    let r = unsafe { raw_syscall!(Sysno::capget, &raw const header, data.as_mut_ptr()) };
    let effective = u64::from(data[0].effective) | u64::from(data[1].effective) << 32;
    r == 0 && effective >> cap & 1 == 1
}

/// Ends the process, without handlers of libc's.
pub fn exit(status: i32) -> ! {
    // SAFETY: no addresses.
    unsafe { raw_syscall!(Sysno::exit_group, status) };
    die(b"uringlet: a process that does not end\n")
}

/// Ends the process with a message on stderr. Only for broken invariants of the engine.
pub fn die(message: &[u8]) -> ! {
    // SAFETY: writes a live buffer, then kills the process by SIGABRT.
    unsafe {
        raw_syscall!(Sysno::write, STDERR_FILENO, message.as_ptr(), message.len());
        raw_syscall!(Sysno::tgkill, pid_now(), tid(), SIGABRT);
        raw_syscall!(Sysno::exit_group, 128 + SIGABRT);
    }
    loop {
        core::hint::spin_loop();
    }
}

/// Of a program that may keep its threads' data otherwise than the C libraries do, before it
/// starts: [`thread_key`] asks for nothing in its memory. `features`: the word of `AT_HWCAP2`.
pub fn prepare_thread_keys(features: usize) {
    arch::read_thread_register(features);
}

/// A number that differs between the living threads of the process: its TLS register's self
/// pointer, read without a system call.
#[inline]
#[must_use]
pub fn thread_key() -> u64 {
    arch::thread_pointer()
}
