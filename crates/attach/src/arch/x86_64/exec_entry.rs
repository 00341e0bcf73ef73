//! C code onto a stack of `exec::stack` and back.

use core::arch::naked_asm;

use uringlet_sys::Sysno;

use super::asm::{pop, push, take_exec_stack};
use crate::exec;

/// Calls `run(data, word)` on such a stack, whose word is passed. Returns 0 if none becomes free.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on_exec_stack(run: unsafe extern "C" fn(*mut u8, *const u32), data: *mut u8) -> usize {
    naked_asm!(
        ".cfi_startproc",
        push!("rbx"),
        ".cfi_rel_offset rbx, 0",
        push!("rdi" "rsi"),
        "mov rbx, rsp",
        ".cfi_def_cfa_register rbx",
        take_exec_stack!(),
        "xor eax, eax",
        "test rdx, rdx",
        "jz 60f",
        "lea rsp, [rdx - 16]",
        "mov [rsp], rdi",
        "mov rsi, rdi",
        "mov rdi, [rbx]",
        "call [rbx + 8]",
        "mov rcx, [rsp]",
        "mov rsp, rbx",
        "mov dword ptr [rcx], 0",
        "mov eax, 1",
        "60: add rsp, 16",
        ".cfi_def_cfa rsp, 16",
        pop!("rbx"),
        ".cfi_restore rbx",
        "ret",
        ".cfi_endproc",
        sched_yield = const Sysno::sched_yield as i32,
        exec_words = sym exec::WORDS,
        exec_stacks = sym exec::STACKS,
        exec_count = const exec::EXEC_STACKS,
        exec_bytes = const exec::EXEC_STACK_BYTES,
    )
}
