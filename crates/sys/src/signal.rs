//! Signal masks and handlers by raw system calls, as the kernel defines them.

use crate::linux::general::{SIG_BLOCK, SIG_SETMASK};
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

#[inline]
fn change_mask(how: u32, mask: u64) -> u64 {
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
///
/// # Safety
/// A siginfo_t of 128 bytes is at `info`.
///
/// # Errors
/// `EAGAIN` (`RLIMIT_SIGPENDING`), `EINVAL`, `EPERM`, `ESRCH`.
pub unsafe fn queue_to_thread(tid: u32, signal: u32, info: usize) -> Result<(), Errno> {
    // SAFETY: the caller's.
    unsafe { syscall!(Sysno::rt_tgsigqueueinfo, crate::process::pid_now(), tid, signal, info) }.map(drop)
}
