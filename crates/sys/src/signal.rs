//! Signal masks and handlers by raw system calls, as the kernel defines them.

use crate::linux::general::{CLOCK_MONOTONIC, SIG_BLOCK, SIG_SETMASK, SIGEV_THREAD_ID};
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// Bytes of the kernel's `sigset_t`, which is 64 bits.
pub const SIGSET_BYTES: usize = 8;

/// `struct sigaction` as rt_sigaction(2) takes it. libc's has another layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KernelSigaction {
    /// Address of the handler, `SIG_DFL` or `SIG_IGN`.
    pub handler: usize,
    /// `SA_*`.
    pub flags: u64,
    /// Address that the handler returns to; needs `SA_RESTORER`.
    pub restorer: usize,
    /// Signals blocked while the handler runs: bit `n - 1` is signal `n`.
    pub mask: u64,
}

/// A signal's bit in a mask.
#[must_use]
pub const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// rt_sigaction(2): what `signal` does.
///
/// # Errors
/// `EINVAL` no such signal.
pub fn action(signal: u32) -> Result<KernelSigaction, Errno> {
    let mut action = KernelSigaction::default();
    // SAFETY: the kernel writes to a live structure of its own layout.
    unsafe { syscall!(Sysno::rt_sigaction, signal, 0, &raw mut action, SIGSET_BYTES) }?;
    Ok(action)
}

/// rt_sigaction(2): changes what `signal` does.
///
/// # Safety
/// Handler and restorer are code for that, and stay.
///
/// # Errors
/// `EINVAL` no such signal, or one that cannot be caught.
pub unsafe fn set_action(signal: u32, action: &KernelSigaction) -> Result<(), Errno> {
    // SAFETY: the caller's; the kernel reads a live structure of its own layout.
    unsafe { syscall!(Sysno::rt_sigaction, signal, core::ptr::from_ref(action), 0, SIGSET_BYTES) }.map(drop)
}

/// Blocks the signals of `mask` on this thread, besides those that are. Returns the mask before.
#[inline]
pub fn block(mask: u64) -> u64 {
    change_mask(SIG_BLOCK, mask)
}

/// Sets this thread's mask of blocked signals. Returns the mask before.
#[inline]
pub fn set_mask(mask: u64) -> u64 {
    change_mask(SIG_SETMASK, mask)
}

/// rt_sigprocmask(2): `how` is `SIG_*`. Returns the mask before.
#[inline]
pub fn change_mask(how: u32, mask: u64) -> u64 {
    let mut old = 0_u64;
    // SAFETY: two live masks of 8 bytes.
    unsafe { raw_syscall!(Sysno::rt_sigprocmask, how, &raw const mask, &raw mut old, SIGSET_BYTES) };
    old
}

/// This thread's mask of blocked signals.
#[inline]
#[must_use]
pub fn mask() -> u64 {
    block(0)
}

/// rt_tgsigqueueinfo(2): sends `signal` to a thread of this process with the siginfo at an address.
/// A siginfo that only the kernel or the thread itself may send goes without: tgkill(2).
///
/// # Safety
/// A siginfo_t of 128 bytes is at `info`.
///
/// # Errors
/// `EAGAIN` (`RLIMIT_SIGPENDING`), `EINVAL`, `EPERM`, `ESRCH`.
pub unsafe fn queue_to_thread(tid: u32, signal: u32, info: usize) -> Result<(), Errno> {
    let pid = crate::process::pid_now();
    // SAFETY: the caller's; tgkill has no addresses.
    let sent = unsafe {
        match syscall!(Sysno::rt_tgsigqueueinfo, pid, tid, signal, info) {
            Err(Errno::EPERM) => syscall!(Sysno::tgkill, pid, tid, signal),
            other => other,
        }
    };
    sent.map(drop)
}

/// A POSIX timer of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(pub u32);

/// Starts a timer that sends `signal` with a value to this thread every `period_ns`, which is below
/// one second, until timer_delete(2).
///
/// # Errors
/// Those of timer_create(2).
pub fn start_timer(signal: u32, value: u64, period_ns: u64) -> Result<TimerId, Errno> {
    // struct sigevent: the value, the signal and how, the thread.
    let mut event = [0_u64; 8];
    (event[0], event[1], event[2]) = (value, u64::from(SIGEV_THREAD_ID) << 32 | u64::from(signal), crate::process::tid().into());
    let mut id = 0_u32;
    let period = [0, period_ns, 0, period_ns];
    // SAFETY: live memory of the kernel's layouts: sigevent, timer_t, itimerspec.
    unsafe {
        syscall!(Sysno::timer_create, CLOCK_MONOTONIC, event.as_ptr(), &raw mut id)?;
        raw_syscall!(Sysno::timer_settime, id, 0, period.as_ptr(), 0);
    }
    Ok(TimerId(id))
}
