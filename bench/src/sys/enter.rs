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

/// A function of the signature of [`enter_via_immediate`] in code that is made at run time: `mov
/// $426, %eax; zeroes for the other arguments; syscall; ret`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn made_enter() -> anyhow::Result<extern "C" fn(i32) -> i64> {
    const CODE: [u8; 22] =
        [0xb8, 0xaa, 1, 0, 0, 0x31, 0xf6, 0x31, 0xd2, 0x4d, 0x31, 0xd2, 0x4d, 0x31, 0xc0, 0x4d, 0x31, 0xc9, 0x0f, 0x05, 0xc3, 0xcc];
    // SAFETY: a new mapping, which holds the code before it is executable, and stays.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        ensure!(page != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        page.cast::<[u8; CODE.len()]>().write(CODE);
        let made = libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC);
        ensure!(made == 0, "mprotect: {}", io::Error::last_os_error());
        Ok(std::mem::transmute::<*mut libc::c_void, extern "C" fn(i32) -> i64>(page))
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn made_enter() -> anyhow::Result<extern "C" fn(i32) -> i64> {
    anyhow::bail!("code is made for x86-64 only")
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn enter_via_immediate(_: i32) -> i64 {
    -i64::from(libc::ENOSYS)
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn enter_via_register(_: i32) -> i64 {
    -i64::from(libc::ENOSYS)
}
