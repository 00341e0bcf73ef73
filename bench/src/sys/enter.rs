//! io_uring_enter(2) through each way in which programs make a system call.

use anyhow::ensure;
use std::io;

/// The descriptor of a small ring.
pub(crate) fn setup() -> anyhow::Result<i32> {
    // struct io_uring_params
    let mut params = [0_u32; 30];
    // SAFETY: the kernel writes the 120 bytes of the parameters.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, params.as_mut_ptr()) };
    ensure!(fd >= 0, "io_uring_setup: {}", io::Error::last_os_error());
    Ok(i32::try_from(fd)?)
}

pub(crate) fn probe() -> anyhow::Result<()> {
    setup().map(drop)
}

/// libc's `syscall()`.
pub(crate) fn enter_via_libc(fd: i32) -> i64 {
    // SAFETY: nothing to submit, nothing to wait for, no address.
    unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, 0, 0, 0, 0, 0) }
}

/// The number in the instruction before the `syscall`, as liburing has it.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
pub(crate) fn enter_via_immediate(fd: i32) -> i64 {
    let ret: i64;
    // SAFETY: as above; `syscall` changes rcx and r11.
    unsafe {
        std::arch::asm!(
            "mov eax, {number}",
            "syscall",
            number = const libc::SYS_io_uring_enter,
            out("rax") ret,
            in("rdi") i64::from(fd), in("rsi") 0_i64, in("rdx") 0_i64, in("r10") 0_i64, in("r8") 0_i64, in("r9") 0_i64,
            out("rcx") _, out("r11") _,
        );
    }
    ret
}

/// One instruction for every call, its number in a register, as Go, musl and rustix have it.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn syscall_by_register(number: i64, a: i64) -> i64 {
    let ret: i64;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "syscall",
            inout("rax") number => ret,
            in("rdi") a, in("rsi") 0_i64, in("rdx") 0_i64, in("r10") 0_i64, in("r8") 0_i64, in("r9") 0_i64,
            out("rcx") _, out("r11") _,
        );
    }
    ret
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn enter_via_register(fd: i32) -> i64 {
    syscall_by_register(std::hint::black_box(libc::SYS_io_uring_enter), i64::from(fd))
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn enter_via_immediate(_: i32) -> i64 {
    -i64::from(libc::ENOSYS)
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn enter_via_register(_: i32) -> i64 {
    -i64::from(libc::ENOSYS)
}
