//! Rust code onto an engine stack and back, and the signals that were deferred meanwhile.

use core::arch::naked_asm;

use uringlet_sys::Sysno;
use uringlet_sys::linux::general::SIG_SETMASK;

use super::asm::{BASE_MASK, TAG_MASK, give_stack, onto_stack, pop, push, take_stack};
use crate::signals::NO_TIMER;
use crate::stack::{self, POOL, STACK_TOP};

/// Delivers the signals that were deferred while the thread was in the engine. `r10`, `r11` and the
/// word above the return address are what `signals` stored at the top of the engine stack: timer,
/// mask, signals. The handlers run here, on the program's stack, after the thread has left the
/// engine.
///
/// The signals that came are unblocked once although the thread's own mask blocks them (see
/// `signals`). Compiled code would use more of the stack. Keeps `rdi`, `rsi` and the vector
/// registers.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn deliver_pending() {
    naked_asm!(
        ".cfi_startproc",
        push!("rdi" "rsi"),
        "mov r9, r11",
        "cmp r10, {no_timer}",
        "je 70f",
        "lea rdi, [r10 - 1]",
        "mov eax, {timer_delete}",
        "syscall",
        "70: mov rax, [rsp + 24]",
        "not rax",
        "and rax, r9",
        push!("rax"),
        "71: mov edi, {set_mask}",
        "mov rsi, rsp",
        "xor edx, edx",
        "mov r10d, 8",
        "mov eax, {rt_sigprocmask}",
        "syscall",
        "cmp [rsp], r9",
        "je 72f",
        "mov [rsp], r9",
        "jmp 71b",
        "72:",
        pop!("rax" "rsi" "rdi"),
        "ret",
        ".cfi_endproc",
        no_timer = const NO_TIMER.cast_signed(),
        timer_delete = const Sysno::timer_delete as i32,
        set_mask = const SIG_SETMASK,
        rt_sigprocmask = const Sysno::rt_sigprocmask as i32,
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
        concat!("61: ", onto_stack!()),
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
