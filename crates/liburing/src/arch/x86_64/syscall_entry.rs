//! What precedes libc's `syscall`.

use core::arch::naked_asm;

use crate::identity::{MAY_CHANGE, NUMBERS, identity_syscall};

/// Jumps to libc's `syscall`, or to [`identity_syscall`]: no frame lies between, because a call may
/// return twice, or on another stack (clone, vfork).
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn syscall_entry() {
    naked_asm!(
        ".weak syscall",
        "cmp rdi, {count}",
        "jae 2f",
        "lea r11, [rip + {may_change}]",
        "cmp byte ptr [r11 + rdi], 0",
        "jne {identity_syscall}",
        "2: jmp qword ptr [rip + syscall@GOTPCREL]",
        count = const NUMBERS,
        may_change = sym MAY_CHANGE,
        identity_syscall = sym identity_syscall,
    )
}
