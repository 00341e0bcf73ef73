//! The hook in the dynamic linker's `r_brk`.

use core::arch::naked_asm;

use super::asm::{push, vector_registers};
use crate::link_map::on_list_change;

/// Called in place of the empty function that was there. Saves all registers: the linker's code
/// need not expect that an empty function touches one.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn r_brk_entry() {
    naked_asm!(
        ".cfi_startproc",
        push!("rbp"),
        ".cfi_rel_offset rbp, 0",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 256",
        "and rsp, -16",
        vector_registers!("save"),
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "call {on_list_change}",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        vector_registers!("restore"),
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
        on_list_change = sym on_list_change,
    )
}
