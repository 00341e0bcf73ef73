//! A stack of the reserve, for a thread that finds none in its list.

use core::arch::naked_asm;

use uringlet_sys::Sysno;
use uringlet_sys::linux::general::{FUTEX_PRIVATE_FLAG, FUTEX_WAIT};

use super::asm::{BASE_MASK, TAG_MASK, take_from_list};
use crate::stack::{PAUSE, RESERVE, STACK_TOP};

/// How often a thread tries: so often after it has yielded, then so often after it has slept.
const YIELDS: u32 = 100;
const SLEEPS: u32 = 5_000;

/// `rdx` = the base of a stack, or 0 if none comes. While other threads have all of them, this one
/// yields, and then sleeps for milliseconds: one that was preempted gives its stack back only when
/// it runs again. Uses 8 bytes of stack, which `rbx` points to the top of. Keeps `r8`. Clobbers
/// `rax`, `rcx`, `rsi`, `rdi`, `r9`, `r10`, `r11`.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn take_reserved() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa rbx, 0",
        "mov r9d, {attempts}",
        "26: lea rdi, [rip + {reserve}]",
        take_from_list!(),
        "test rdx, rdx",
        "jnz 27f",
        "dec r9d",
        "jz 27f",
        "cmp r9d, {sleeps}",
        "jb 28f",
        "mov eax, {sched_yield}",
        "syscall",
        "jmp 26b",
        // While the list's head is what it was. No thread wakes this one: the time ends it.
        "28: mov edx, eax",
        "mov esi, {futex_wait}",
        "lea r10, [rip + {pause}]",
        "mov eax, {futex}",
        "syscall",
        "jmp 26b",
        "27: ret",
        ".cfi_endproc",
        reserve = sym RESERVE,
        pause = sym PAUSE,
        mask = const BASE_MASK,
        tag = const TAG_MASK,
        top = const STACK_TOP,
        attempts = const YIELDS + SLEEPS,
        sleeps = const SLEEPS,
        sched_yield = const Sysno::sched_yield as i32,
        futex = const Sysno::futex as i32,
        futex_wait = const FUTEX_WAIT | FUTEX_PRIVATE_FLAG,
    )
}
