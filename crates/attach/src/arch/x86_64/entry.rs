//! System calls of the program into the engine: [`site_entry`] for rewritten sites, [`syscall`] for
//! libc's function of that name.
//!
//! At a rewritten site every register but `rax`, `rcx` and `r11` must come back unchanged, as after
//! a system call. There is no C calling convention there, so [`site_entry`] saves the vector
//! registers; [`syscall`] is a C function and need not.
//!
//! Not saved anywhere: the upper halves of the vector registers and the AVX-512 state (this object
//! contains no instruction that touches them, which a test checks), and the direction flag (clear
//! at every call by the ABI).

use core::arch::naked_asm;

use uringlet_sys::Sysno;

use super::asm::{
    BASE_MASK, TAG_MASK, arguments_of_syscall, begin_site, end_site, grow_here, jump_if_exec, leave_engine, onto_stack, pop, pop_call,
    push, push_call, take_stack, vector_registers,
};
use super::before_exec::before_exec;
use super::call_frame::CallFrame;
use super::reserved_stack::take_reserved;
use super::stack_switch::deliver_pending;
use crate::dispatch::dispatch;
use crate::intercepted::INTERCEPTED;
use crate::stack::{self, POOL, STACK_TOP};
use crate::symbols::set_errno;

const ENOMEM: isize = -12;

/// Where trampolines jump, with `r11` = where to continue.
///
/// Of the program's stack it takes 216 bytes, the red zone included, and 248 where signals were
/// deferred: a goroutine may have a few hundred left. So if there is no stack in the list, the call
/// is handled on one of the reserve, where another is made. If there is none either, other threads
/// are doing that just now, and may be preempted while they do. Should none come back for seconds
/// (a debugger has stopped those threads, or there is no memory), `grow` runs on the program's
/// stack.
///
/// At `r11` lies the two-byte instruction that performs (or jumps to) the plain system call; behind
/// it the trampoline continues as if the call had returned. `rcx` is free (the system call
/// instruction destroys it), everything else is as the program left it. `dispatch` returns a
/// `Disposition`: its tag in `rax`, its value in `rdx`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn site_entry() {
    naked_asm!(
        begin_site!(),
        push!("rax"),
        "lahf",
        "seto al",
        push_call!(),
        "cld",
        jump_if_exec!("dword ptr [rbx + {nr}]", "34f"),
        take_stack!(),
        "test rdx, rdx",
        "jz 30f",
        concat!("31: ", onto_stack!()),
        "sub rsp, 256",
        vector_registers!("save"),
        "32: mov rdi, rbx",
        "call {dispatch}",
        vector_registers!("restore"),
        leave_engine!(),
        // Passthrough: the number stays in its slot. Handled: the result replaces it, and the
        // trampoline continues two bytes further on.
        "test rsi, rsi",
        "jnz 33f",
        "mov [rbx + {nr}], rdi",
        "add qword ptr [rbx + {resume}], 2",
        "33:",
        ".cfi_remember_state",
        pop_call!(),
        "add al, 127",
        "sahf",
        pop!("rax"),
        end_site!(),
        "jmp r11",
        ".cfi_restore_state",
        // Compiled code may use vector registers: they are saved before.
        "30: mov r8, rdi",
        "call {take_reserved}",
        "test rdx, rdx",
        "jz 35f",
        onto_stack!(),
        "sub rsp, 256",
        vector_registers!("save"),
        "mov rdi, rdx",
        "mov rsi, r8",
        "call {adopt}",
        "jmp 32b",
        concat!("35: ", grow_here!()),
        "test rdx, rdx",
        "jnz 31b",
        "mov rdi, {enomem}",
        "xor esi, esi",
        "mov [rbx + {nr}], rdi",
        "add qword ptr [rbx + {resume}], 2",
        "jmp 33b",
        "34: call {before_exec}\njmp 33b",
        ".cfi_endproc",
        pool = sym POOL,
        mask = const BASE_MASK,
        tag = const TAG_MASK,
        top = const STACK_TOP,
        dispatch = sym dispatch,
        grow = sym stack::grow,
        adopt = sym stack::adopt,
        take_reserved = sym take_reserved,
        deliver_pending = sym deliver_pending,
        nr = const core::mem::offset_of!(CallFrame, nr),
        resume = const core::mem::offset_of!(CallFrame, resume),
        enomem = const ENOMEM,
        execve = const Sysno::execve as i32,
        execveat = const Sysno::execveat as i32,
        before_exec = sym before_exec,
    )
}

/// `syscall(2)` of libc: arguments shifted by one register, `errno` set. A call that is not
/// intercepted takes eleven instructions more than in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        arguments_of_syscall!(),
        "movzx ecx, ax",
        "lea r11, [rip + {intercepted}]",
        "cmp byte ptr [r11 + rcx], 0",
        "jne 40f",
        "41: syscall",
        "42: cmp rax, -4095",
        "jae 43f",
        "ret",
        "43: mov rdi, rax",
        "jmp {set_errno}",
        "40: sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        push!("rax" "rax"),
        push_call!(),
        jump_if_exec!("eax", "45f"),
        take_stack!(),
        "test rdx, rdx",
        "jz 50f",
        concat!("51: ", onto_stack!()),
        "mov rdi, rbx",
        "call {dispatch}",
        leave_engine!(),
        "test rsi, rsi",
        "jnz 44f",
        "mov rax, rdi",
        "52: mov rbx, [rsp]",
        ".cfi_remember_state",
        ".cfi_def_cfa_register rsp",
        ".cfi_restore rbx",
        "add rsp, {frame}",
        ".cfi_adjust_cfa_offset -{frame}",
        "jmp 42b",
        ".cfi_restore_state",
        "44:",
        ".cfi_remember_state",
        pop_call!(),
        pop!("rax"),
        "add rsp, 16",
        ".cfi_adjust_cfa_offset -16",
        "jmp 41b",
        ".cfi_restore_state",
        "45: call {before_exec}\njmp 44b",
        "50: call {grow}",
        "mov rdx, rax",
        "test rdx, rdx",
        "jnz 51b",
        "mov rax, {enomem}",
        "jmp 52b",
        ".cfi_endproc",
        intercepted = sym INTERCEPTED,
        set_errno = sym set_errno,
        pool = sym POOL,
        mask = const BASE_MASK,
        tag = const TAG_MASK,
        top = const STACK_TOP,
        dispatch = sym dispatch,
        grow = sym stack::grow,
        deliver_pending = sym deliver_pending,
        frame = const size_of::<CallFrame>() + 8,
        enomem = const ENOMEM,
        execve = const Sysno::execve as i32,
        execveat = const Sysno::execveat as i32,
        before_exec = sym before_exec,
    )
}
