//! Where a trapped call goes on.

use core::arch::naked_asm;

use super::asm::{pop, push};
use super::entry::site_entry;

/// The trampoline of every trapped call: `rcx` = where the program continues, everything else is as
/// the program left it. A system call leaves that address in `rcx`, too.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn trap_entry() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_signal_frame",
        ".cfi_def_cfa rsp, 0",
        ".cfi_register rip, rcx",
        "lea rsp, [rsp - 128]",
        ".cfi_adjust_cfa_offset 128",
        push!("rcx"),
        ".cfi_rel_offset rip, 0",
        "lea r11, [rip + 70f]",
        "jmp {site_entry}",
        "70: syscall",
        pop!("rcx"),
        ".cfi_register rip, rcx",
        "lea rsp, [rsp + 128]",
        ".cfi_adjust_cfa_offset -128",
        "jmp rcx",
        ".cfi_endproc",
        site_entry = sym site_entry,
    )
}
