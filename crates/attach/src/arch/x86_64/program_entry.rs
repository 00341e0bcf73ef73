//! Where the kernel starts this object when it is executed as a program, to load a static one.

use core::arch::naked_asm;

use crate::static_program::{relocate, start_program};

/// The object's entry point (`-e` in `build.rs`). Its addresses are relocated first, by code that
/// uses none of them; then `start_program` returns a `ProgramStart` in `rax` and `rdx`.
///
/// The program finds the registers as after execve(2): `rdx`, which libc takes for a function to
/// call at the end, and all others are zero.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn uringlet_program_entry() -> ! {
    naked_asm!(
        ".cfi_startproc",
        // The outermost frame.
        ".cfi_undefined rip",
        ".hidden _DYNAMIC",
        ".hidden __ehdr_start",
        "mov rbx, rsp",
        "and rsp, -16",
        "lea rdi, [rip + __ehdr_start]",
        "lea rsi, [rip + _DYNAMIC]",
        "call {relocate}",
        "mov rdi, rbx",
        "call {start_program}",
        "mov rsp, rdx",
        "push rax",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ecx, ecx",
        "xor edx, edx",
        "xor esi, esi",
        "xor edi, edi",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "pxor xmm0, xmm0",
        "ret",
        ".cfi_endproc",
        relocate = sym relocate,
        start_program = sym start_program,
    )
}
