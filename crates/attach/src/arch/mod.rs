//! What depends on the processor, one folder for each architecture.
//!
//! Only this file asks for the target. The rest of the crate uses the names re-exported here, and
//! those are the interface that a port has to supply:
//!
//! | name | what it is |
//! |---|---|
//! | [`CallFrame`] | registers of an intercepted call, as saved by the entries: `nr`, `args()` |
//! | [`site_entry`] | where the trampolines of rewritten sites jump; saves all registers |
//! | [`trap_entry`] | where a trapped call goes on, with the address behind it in a register |
//! | `syscall` | the exported replacement of libc's function, not named by Rust code |
//! | [`call_on_exec_stack`] | switches to a stack of `exec::stack` and back |
//! | [`r_brk_entry`] | replaces the dynamic linker's empty `r_brk`; saves all registers |
//! | [`call_on_stack`] | switches to a stack of `stack::POOL` and back, then delivers signals |
//! | [`SignalContext`] | program counter, stack pointer, signal mask and system call of a `ucontext` |
//! | [`own_span`] | where this object is, without a list of objects |
//! | [`weak_address`] | the address of a symbol that may be missing, without a libc |
//! | [`DecodedFunction`], [`classify`], [`plan_constant`] | decides how a site is rewritten |
//! | [`trampoline`], [`frame_table`] | the code bytes of a trampoline and of the jumps to it; their unwind tables |
//! | [`for_each_syscall`], [`for_each_far_target`], [`FarTarget`], [`find_number_load`], [`calls_of`] | search in code |
//! | [`for_each_function_pointer`], [`for_each_constant`], [`for_each_called_word`] | addresses in code |
//! | [`copies_a_number`], [`offset_tables`] | evidence that bytes are code; what computed jumps go by |
//! | [`call`] | the bytes of a direct call |
//! | [`is_empty_function`], [`is_relocatable`] | checks of code bytes |
//! | [`begins_insn`] | whether bytes are an instruction, without a decoder |
//! | [`variadic_exec`] | `execl` and its kin: a call before, then a jump to libc's |
//! | `program_entry` | where the kernel starts this object when it is executed as a program |
//! | [`SYSCALL_INSN`], [`PATCH_BYTES`], [`BRANCH_REACH`], [`SHORT_JUMP_REACH`], [`PAGE`] | encodings and sizes |
//! | [`ELF_MACHINE`], [`AUDIT_ARCH`], [`RELATIVE_RELOCATION`] | the architecture's names and numbers |
//!
//! A port also meets assumptions that its compiler reports or that hold on every 64-bit Linux:
//! numbers of old system calls that newer architectures lack (`Sysno::open`, `dup2`, `poll`,
//! `select`, `epoll_wait`, `stat`) do not compile there; the C calling convention passes six
//! integer arguments in the same registers whether the function is variadic or not
//! (`symbols::next`); the unwind tables in `.eh_frame_hdr` have the same layout
//! (`rewrite::unwind`).

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{
    AUDIT_ARCH, BRANCH_REACH, CallFrame, DecodedFunction, ELF_MACHINE, FarTarget, PAGE, PATCH_BYTES, RELATIVE_RELOCATION, SHORT_JUMP_REACH,
    SYSCALL_INSN, SignalContext, begins_insn, call, call_on_exec_stack, call_on_stack, calls_of, classify, copies_a_number,
    find_number_load, for_each_called_word, for_each_constant, for_each_far_target, for_each_function_pointer, for_each_syscall,
    frame_table, is_empty_function, is_relocatable, offset_tables, own_span, plan_constant, r_brk_entry, site_entry, trampoline,
    trap_entry, variadic_exec, weak_address,
};

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "uringlet-attach supports x86-64 only. A port supplies a folder beside src/arch/x86_64 with the names that src/arch/mod.rs lists: \
     entries and stack switch in assembly, signal context, disassembly and classification of system call sites, trampolines."
);
