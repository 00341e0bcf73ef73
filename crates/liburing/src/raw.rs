//! The three system calls by name. They return -errno, as all of liburing does, and leave `errno`
//! alone.

use uringlet_abi::UringParams;

use crate::c_types::{EnterArg, SigSet, Void};
use crate::syscall::{self, user};

/// Bytes of the kernel's `sigset_t`.
const SIGSET_BYTES: usize = 8;

/// io_uring_setup(2)
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_setup(entries: u32, p: *mut UringParams) -> i32 {
    syscall::setup(entries, p)
}

/// io_uring_enter(2)
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_enter(fd: u32, to_submit: u32, min_complete: u32, flags: u32, sig: *mut SigSet) -> i32 {
    syscall::enter(fd.cast_signed(), to_submit, min_complete, flags, user(sig), SIGSET_BYTES)
}

/// io_uring_enter(2) with an extended argument
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_enter2(fd: u32, to_submit: u32, min_complete: u32, flags: u32, arg: *mut EnterArg, sz: usize) -> i32 {
    syscall::enter(fd.cast_signed(), to_submit, min_complete, flags, user(arg), sz)
}

/// io_uring_register(2)
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register(fd: u32, opcode: u32, arg: *const Void, nr_args: u32) -> i32 {
    syscall::register(fd.cast_signed(), opcode, user(arg), nr_args)
}
