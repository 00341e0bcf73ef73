//! The hook in libc's exec functions.

use core::arch::naked_asm;

use uringlet_sys::Sysno;

use super::asm::{begin_site, end_site, pop, push};

use crate::exec_env::{EnvEdit, build_env, measure_env};

/// Where the trampolines in libc's exec functions jump: makes the system call here, with the
/// environment that the child shall have. If the call fails, the trampoline continues behind it.
///
/// The new environment lies between the stack pointer's old value and its present one until the
/// kernel has read it. It takes no more room than it needs.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn exec_entry() {
    naked_asm!(
        begin_site!(),
        push!("r9" "r8" "r10" "rdx" "rsi" "rdi" "rax" "rbx"),
        ".cfi_rel_offset rbx, 0",
        "mov rbx, rsp",
        ".cfi_def_cfa_register rbx",
        // Room for the structure, two callee-saved registers below it.
        "sub rsp, {edit} + 8",
        "and rsp, -16",
        "push r12",
        "push r13",
        "mov r12, rdx",
        "cmp eax, {execveat}",
        "cmove r12, r10",
        "lea r13, [rsp + 16]",
        "mov rdi, r12",
        "mov rsi, r13",
        "call {measure_env}",
        "mov rcx, r12",
        "test rax, rax",
        "jz 70f",
        "mov rdi, r12",
        "mov rsi, r13",
        "sub rsp, rax",
        "and rsp, -16",
        "mov rdx, rsp",
        "call {build_env}",
        "mov rcx, rax",
        "70: mov r12, [r13 - 8]",
        "mov r13, [r13 - 16]",
        "mov rax, [rbx + 8]",
        "mov rdi, [rbx + 16]",
        "mov rsi, [rbx + 24]",
        "mov rdx, [rbx + 32]",
        "mov r10, [rbx + 40]",
        "mov r8, [rbx + 48]",
        "mov r9, [rbx + 56]",
        "cmp eax, {execveat}",
        "cmove r10, rcx",
        "cmovne rdx, rcx",
        "syscall",
        "mov rsp, rbx",
        ".cfi_def_cfa_register rsp",
        pop!("rbx"),
        ".cfi_restore rbx",
        pop!("rdi" "rdi" "rsi" "rdx" "r10" "r8" "r9"),
        end_site!(),
        "add r11, 2",
        "jmp r11",
        ".cfi_endproc",
        edit = const size_of::<EnvEdit>(),
        execveat = const Sysno::execveat as i32,
        measure_env = sym measure_env,
        build_env = sym build_env,
    )
}
