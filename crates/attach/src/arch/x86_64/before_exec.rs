//! Calls that start a program, at rewritten sites and in `syscall(2)`.

use core::arch::naked_asm;

use uringlet_sys::Sysno;

use super::asm::{take_exec_stack, vector_registers};
use crate::exec;

/// Calls `execute_at_site` on a stack of `exec::stack` for the call at `rbx`, where the stack
/// pointer was before this was called. Returns if the program's own call follows.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn before_exec() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa rbx, 0",
        take_exec_stack!(),
        "test rdx, rdx",
        "jz 61f",
        "lea rsp, [rdx - 256 - 16]",
        vector_registers!("save"),
        "mov [rsp + 256], rdi",
        "mov rsi, rdi",
        "mov rdi, rbx",
        "call {execute_at_site}",
        vector_registers!("restore"),
        "mov rcx, [rsp + 256]",
        "lea rsp, [rbx - 8]",
        "mov dword ptr [rcx], 0",
        "61: ret",
        ".cfi_endproc",
        sched_yield = const Sysno::sched_yield as i32,
        exec_words = sym exec::WORDS,
        exec_stacks = sym exec::STACKS,
        exec_count = const exec::EXEC_STACKS,
        exec_bytes = const exec::EXEC_STACK_BYTES,
        execute_at_site = sym exec::execute_at_site,
    )
}
