//! Rust code onto an engine stack and back, and the signals that were deferred meanwhile.

use core::arch::naked_asm;

use super::asm::{BASE_MASK, TAG_MASK, give_stack, pop, push, take_stack, vector_registers};
use crate::signals::deliver_deferred;
use crate::stack::{self, POOL, STACK_TOP};

/// Delivers the signals that were deferred while the thread was in the engine. `r10`, `r11` and
/// `r9` are what `signals` stored at the top of the engine stack. The handlers run here, on the
/// program's stack, after the thread has left the engine.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn deliver_pending() {
    naked_asm!(
        ".cfi_startproc",
        push!("rbp"),
        ".cfi_rel_offset rbp, 0",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rdi",
        "push rsi",
        "sub rsp, 256",
        "and rsp, -16",
        vector_registers!("save"),
        "mov rdi, r10",
        "mov rsi, r11",
        "mov rdx, r9",
        "call {deliver_deferred}",
        vector_registers!("restore"),
        "mov rdi, [rbp - 8]",
        "mov rsi, [rbp - 16]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
        deliver_deferred = sym deliver_deferred,
    )
}

/// Calls `run(data)` on an engine stack; on the present one if there is no memory for another.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on_stack(run: unsafe extern "C" fn(*mut u8), data: *mut u8) {
    naked_asm!(
        ".cfi_startproc",
        push!("rbx"),
        ".cfi_rel_offset rbx, 0",
        push!("rdi" "rsi"),
        "mov rbx, rsp",
        ".cfi_def_cfa_register rbx",
        take_stack!(),
        "test rdx, rdx",
        "jz 60f",
        "61: lea rsp, [rdx + {top}]",
        "mov rdi, [rbx]",
        "call [rbx + 8]",
        "mov r8, rsp",
        "and r8, {mask}",
        "mov rsp, rbx",
        give_stack!(),
        "62: add rsp, 16",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 16",
        pop!("rbx"),
        ".cfi_restore rbx",
        "ret",
        ".cfi_restore_state",
        "60: call {grow}",
        "mov rdx, rax",
        "test rdx, rdx",
        "jnz 61b",
        "mov rdi, [rbx]",
        "call [rbx + 8]",
        "jmp 62b",
        ".cfi_endproc",
        pool = sym POOL,
        mask = const BASE_MASK,
        tag = const TAG_MASK,
        top = const STACK_TOP,
        grow = sym stack::grow,
        deliver_pending = sym deliver_pending,
    )
}
