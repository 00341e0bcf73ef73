//! Copies within the program's memory that survive a bad address.
//!
//! process_vm_readv(2) pins every page that it reads: 1.36 µs for 4 KiB, of which the bytes take 0.07. So a copy is made by `uringlet_copy`, whose
//! loads and stores may fault, where somebody answers for faults: whoever attaches the engine to a program installs a handler of SIGSEGV and SIGBUS
//! which asks [`fixup_address`] where a faulting instruction goes on, and tells by [`set_fault_check`] how to ask whether that handler is in force on the
//! calling thread, now. Where nobody answers, or the answer is no, the kernel copies.
//!
//! `docs/decisions/0015` has what was measured and what was turned down.

use crate::user::UserPtr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};
use syscalls::{Sysno, raw_syscall};

/// Whether a fault of a copy on the calling thread is caught.
pub type FaultCheck = fn() -> bool;

/// A [`FaultCheck`], or null.
static FAULT_CHECK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// From now on `check` is asked before a copy.
pub fn set_fault_check(check: FaultCheck) {
    FAULT_CHECK.store(check as *mut (), Release);
}

fn faults_are_caught() -> bool {
    let check = FAULT_CHECK.load(Acquire);
    if check.is_null() {
        return false;
    }
    // SAFETY: only `set_fault_check` stores here.
    let check = unsafe { core::mem::transmute::<*mut (), FaultCheck>(check) };
    check()
}

core::arch::global_asm!(
    ".pushsection .text.uringlet_copy,\"ax\",@progbits",
    ".p2align 4",
    ".globl uringlet_copy, uringlet_copy_words, uringlet_copy_bytes, uringlet_copy_words_fault, uringlet_copy_bytes_fault",
    ".hidden uringlet_copy",
    ".hidden uringlet_copy_words",
    ".hidden uringlet_copy_bytes",
    ".hidden uringlet_copy_words_fault",
    ".hidden uringlet_copy_bytes_fault",
    // rdi to, rsi from, rdx length; rax: bytes that are not copied. Both instructions count rcx down as they go, also when they fault.
    "uringlet_copy:",
    "mov %rdx, %rcx",
    "shr $3, %rcx",
    "uringlet_copy_words:",
    "rep movsq",
    "mov %edx, %ecx",
    "and $7, %ecx",
    "uringlet_copy_bytes:",
    "rep movsb",
    "xor %eax, %eax",
    "ret",
    "uringlet_copy_words_fault:",
    "and $7, %edx",
    "lea (%rdx, %rcx, 8), %rax",
    "ret",
    "uringlet_copy_bytes_fault:",
    "mov %rcx, %rax",
    "ret",
    ".popsection",
    options(att_syntax)
);

unsafe extern "C" {
    fn uringlet_copy(to: usize, from: usize, len: usize) -> usize;
    fn uringlet_copy_words();
    fn uringlet_copy_bytes();
    fn uringlet_copy_words_fault();
    fn uringlet_copy_bytes_fault();
}

fn address(label: unsafe extern "C" fn()) -> usize {
    label as *const () as usize
}

/// Where the thread goes on whose instruction at `fault` has faulted. `None`: the fault is not a copy's.
#[must_use]
pub fn fixup_address(fault: usize) -> Option<usize> {
    if fault == address(uringlet_copy_words) {
        Some(address(uringlet_copy_words_fault))
    } else if fault == address(uringlet_copy_bytes) {
        Some(address(uringlet_copy_bytes_fault))
    } else {
        None
    }
}

/// Copies within the program's memory: bytes copied, fewer where an address is bad.
#[must_use]
pub fn copy_in_user(to: UserPtr, from: UserPtr, len: usize) -> usize {
    if !faults_are_caught() {
        return copy_by_kernel(to, from, len);
    }
    // SAFETY: both addresses are the program's. That they are buffers is what `AppPromise` stands for; where they are nothing at all the check's
    // handler ends the copy. Source and destination are not borrowed by the engine: no reference to them exists.
    len - unsafe { uringlet_copy(to.addr(), from.addr(), len) }
}

/// The same by process_vm_readv(2).
fn copy_by_kernel(to: UserPtr, from: UserPtr, len: usize) -> usize {
    let local = [to.addr(), len];
    let remote = [from.addr(), len];
    // SAFETY: both addresses are the program's, and checked by the kernel; that the first is a buffer it may write to is what
    // `AppPromise` stands for. The pid is our own.
    unsafe { raw_syscall!(Sysno::process_vm_readv, crate::process::pid(), local.as_ptr(), 1, remote.as_ptr(), 1, 0) }
        .cast_signed()
        .max(0)
        .cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io;

    #[test]
    fn copies_stop_at_a_bad_address() {
        let from = *b"some bytes";
        let mut to = [0_u8; 10];
        let (a, b) = (io::ptr_of_mut(&mut to), io::ptr_of(&from));
        assert_eq!(copy_in_user(a, b, 10), 10);
        assert_eq!(to, from);
        assert_eq!(copy_in_user(UserPtr::NULL, b, 10), 0);
        assert_eq!(copy_in_user(a, UserPtr::new(8), 10), 0);
    }

    #[test]
    fn the_copy_copies_all_lengths() {
        let from: [u8; 40] = core::array::from_fn(|i| i as u8 + 1);
        for at in 0..8 {
            for len in 0..=24 {
                let mut to = [0_u8; 40];
                // SAFETY: both ranges lie in the arrays.
                let left = unsafe { uringlet_copy(to.as_mut_ptr() as usize + 3, from.as_ptr() as usize + at, len) };
                assert_eq!((left, &to[3..3 + len], to[2], to[3 + len]), (0, &from[at..at + len], 0, 0));
            }
        }
    }

    #[test]
    fn only_the_copys_instructions_resume() {
        assert_eq!(fixup_address(address(uringlet_copy_words)), Some(address(uringlet_copy_words_fault)));
        assert_eq!(fixup_address(address(uringlet_copy_bytes)), Some(address(uringlet_copy_bytes_fault)));
        assert_eq!(fixup_address(address(uringlet_copy_words_fault)), None);
        assert_eq!(fixup_address(0), None);
    }
}
