//! Pieces of assembly that the entries share.
//!
//! Unwind information goes with all of it: an exception or a thread's cancellation may leave a
//! signal handler that runs on the way out of the engine, and debuggers show who waits.
//!
//! Operands of the templates: `{pool}` = `stack::POOL`, `{mask}` = [`BASE_MASK`], `{tag}` =
//! [`TAG_MASK`], `{top}` = `stack::STACK_TOP`, `{deliver_pending}` = the function of that name.

use crate::stack::STACK_BYTES;

/// Clears the stack pointer's low bits: the base of the engine stack it lies in.
pub(super) const BASE_MASK: i32 = -(STACK_BYTES as i32);
/// The counter bits of a list head.
pub(super) const TAG_MASK: u32 = (STACK_BYTES - 1) as u32;

/// `rdi` = the list that a hash of the stack pointer selects. Clobbers `rcx`.
macro_rules! select_list {
    () => {
        concat!(
            "mov ecx, esp\n",
            "shr ecx, 17\n",
            "imul ecx, ecx, 0x9E3779B1\n",
            "shr ecx, 28\n",
            "shl ecx, 6\n",
            "lea rdi, [rip + {pool}]\n",
            "add rdi, rcx\n",
        )
    };
}

/// Pops an engine stack from the list at `rdi`. `rdx` = its base, or 0 if the list is empty.
/// Clobbers `rax`, `rcx`.
macro_rules! take_from_list {
    () => {
        concat!(
            "mov rax, [rdi]\n",
            "22: mov rdx, rax\n",
            "and rdx, {mask}\n",
            "jz 23f\n",
            "lea rcx, [rax + 1]\n",
            "and ecx, {tag}\n",
            "or rcx, [rdx + {top}]\n",
            "lock cmpxchg [rdi], rcx\n",
            "jne 22b\n",
            "23:\n",
        )
    };
}

/// Both.
macro_rules! take_stack {
    () => {
        concat!($crate::arch::x86_64::asm::select_list!(), $crate::arch::x86_64::asm::take_from_list!())
    };
}

/// Onto the empty engine stack with base `rdx`. Clobbers `rdi`. The load is for valgrind: what a
/// stack has grown by is memory to it, and it looks at the stack pointer only at such an access.
macro_rules! onto_stack {
    () => {
        concat!("lea rsp, [rdx + {top}]\n", "mov rdi, [rsp]\n")
    };
}

/// Pushes the engine stack with base `r8` back onto its list, then delivers the signals that were
/// deferred while it was in use. Must run on another stack, so that no further signal is deferred.
/// Preserves `rdi`, `rsi` and the vector registers.
macro_rules! give_stack {
    () => {
        concat!(
            "mov r10, [r8 + {top} + 16]\n",
            "mov r11, [r8 + {top} + 24]\n",
            "push qword ptr [r8 + {top} + 32]\n",
            "mov qword ptr [r8 + {top} + 16], 0\n",
            "mov qword ptr [r8 + {top} + 40], 0\n",
            "mov r9, [r8 + {top} + 8]\n",
            "mov rax, [r9]\n",
            "24: mov rcx, rax\n",
            "and rcx, {mask}\n",
            "mov [r8 + {top}], rcx\n",
            "lea rdx, [rax + 1]\n",
            "and edx, {tag}\n",
            "or rdx, r8\n",
            "lock cmpxchg [r9], rdx\n",
            "jne 24b\n",
            "test r10, r10\n",
            "jz 25f\n",
            "call {deliver_pending}\n",
            "25: add rsp, 8\n",
        )
    };
}

/// Moves the arguments of libc's syscall(2) to where the kernel takes them: the number to `rax`.
macro_rules! arguments_of_syscall {
    () => {
        concat!(
            "mov rax, rdi\n",
            "mov rdi, rsi\n",
            "mov rsi, rdx\n",
            "mov rdx, rcx\n",
            "mov r10, r8\n",
            "mov r8, r9\n",
            "mov r9, [rsp + 8]\n",
        )
    };
}

/// Jumps to the label if the number in this register is that of a call that starts a program: these
/// are prepared on a stack that the kernel gives back. Operands: `{execve}`, `{execveat}`.
macro_rules! jump_if_exec {
    ($register:literal, $label:literal) => {
        concat!("cmp ", $register, ", {execve}\nje ", $label, "\ncmp ", $register, ", {execveat}\nje ", $label, "\n")
    };
}

/// Takes a stack of `exec::stack`: `rdx` = its top, `rdi` = the address of its word. Waits for one,
/// but not for ever: then `rdx` is 0. Clobbers `rax`, `rcx`, `rsi`, `r10`, `r11`.
///
/// Operands: `{exec_words}`, `{exec_stacks}`, `{exec_count}`, `{exec_bytes}`, `{sched_yield}`.
macro_rules! take_exec_stack {
    () => {
        concat!(
            "mov r10d, 1 << 14\n",
            "26: lea rdi, [rip + {exec_words}]\n",
            "lea rdx, [rip + {exec_stacks}]\n",
            "mov ecx, {exec_count}\n",
            "mov esi, 1\n",
            "27: add rdx, {exec_bytes}\n",
            "xor eax, eax\n",
            "lock cmpxchg [rdi], esi\n",
            "je 29f\n",
            "add rdi, 4\n",
            "dec ecx\n",
            "jnz 27b\n",
            "dec r10d\n",
            "jz 28f\n",
            "mov eax, {sched_yield}\n",
            "syscall\n",
            "jmp 26b\n",
            "28: xor edx, edx\n",
            "29:\n",
        )
    };
}

/// Stores or loads all vector registers at the stack pointer, which is aligned to 16.
macro_rules! vector_registers {
    ("save") => { vector_registers!(@store 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    ("restore") => { vector_registers!(@load 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    (@store $($n:literal)*) => { concat!($("movaps [rsp + 16 * ", $n, "], xmm", $n, "\n",)*) };
    (@load $($n:literal)*) => { concat!($("movaps xmm", $n, ", [rsp + 16 * ", $n, "]\n",)*) };
}

/// Pushes registers, for frames that are found by the stack pointer.
macro_rules! push {
    ($($register:literal)*) => { concat!($("push ", $register, "\n.cfi_adjust_cfa_offset 8\n",)*) };
}

/// Pops registers that the unwinder need not restore.
macro_rules! pop {
    ($($register:literal)*) => { concat!($("pop ", $register, "\n.cfi_adjust_cfa_offset -8\n",)*) };
}

/// Pushes what [`CallFrame`](super::CallFrame) holds below the number; leaves its address in `rbx`,
/// by which the frame is found from there on: the stack pointer may leave the program's stack.
macro_rules! push_call {
    () => {
        concat!(
            $crate::arch::x86_64::asm::push!("rax" "r9" "r8" "r10" "rdx" "rsi" "rdi" "rbx"),
            ".cfi_rel_offset rbx, 0\n",
            "mov rbx, rsp\n",
            ".cfi_def_cfa_register rbx\n",
        )
    };
}

/// Pops what [`push_call`] pushed: the flags end up in `rax`.
macro_rules! pop_call {
    () => {
        concat!(
            ".cfi_def_cfa_register rsp\n",
            $crate::arch::x86_64::asm::pop!("rbx"),
            ".cfi_restore rbx\n",
            $crate::arch::x86_64::asm::pop!("rdi" "rsi" "rdx" "r10" "r8" "r9" "rax"),
        )
    };
}

/// The beginning of an entry that trampolines jump to: `r11`, where to continue, is saved below the
/// red zone. The trampoline is where a thread is interrupted, not where it called. `lea` leaves the
/// flags alone.
macro_rules! begin_site {
    () => {
        concat!(
            ".cfi_startproc\n",
            ".cfi_signal_frame\n",
            ".cfi_def_cfa rsp, 0\n",
            ".cfi_register rip, r11\n",
            "lea rsp, [rsp - 128]\n",
            ".cfi_adjust_cfa_offset 128\n",
            $crate::arch::x86_64::asm::push!("r11"),
            ".cfi_rel_offset rip, 0\n",
        )
    };
}

/// Undoes [`begin_site`].
macro_rules! end_site {
    () => {
        concat!(
            $crate::arch::x86_64::asm::pop!("r11"),
            ".cfi_register rip, r11\n",
            "lea rsp, [rsp + 128]\n",
            ".cfi_adjust_cfa_offset -128\n",
        )
    };
}

/// Back from `dispatch` to the program's stack: `rsi` = the tag of the result, `rdi` its value.
macro_rules! leave_engine {
    () => {
        concat!(
            "mov r8, rsp\n",
            "and r8, {mask}\n",
            "mov rsp, rbx\n",
            "mov rdi, rdx\n",
            "mov rsi, rax\n",
            $crate::arch::x86_64::asm::give_stack!(),
        )
    };
}

/// Makes an engine stack for the list at `r8`, on the program's stack. `rdx` = its base, or 0
/// without memory. `grow` is compiled code and may use vector registers.
macro_rules! grow_here {
    () => {
        concat!(
            "mov rdi, r8\n",
            "sub rsp, 256\n",
            "and rsp, -16\n",
            $crate::arch::x86_64::asm::vector_registers!("save"),
            "call {grow}\n",
            $crate::arch::x86_64::asm::vector_registers!("restore"),
            "mov rsp, rbx\n",
            "mov rdx, rax\n",
        )
    };
}

pub(super) use {
    arguments_of_syscall, begin_site, end_site, give_stack, grow_here, jump_if_exec, leave_engine, onto_stack, pop, pop_call, push,
    push_call, select_list, take_exec_stack, take_from_list, take_stack, vector_registers,
};
