//! What depends on the processor, one folder for each architecture.
//!
//! Only this file asks for the target. The rest of the crate uses the names re-exported here, and
//! those are the interface that a port has to supply:
//!
//! | name | what it is |
//! |---|---|
//! | [`CallFrame`] | registers of an intercepted call, as saved by the entries: `nr`, `args()` |
//! | [`site_entry`] | where the trampolines of rewritten sites jump; saves all registers |
//! | `syscall` | the exported replacement of libc's function, not named by Rust code |
//! | [`exec_entry`] | where the trampolines of libc's exec functions jump; no engine stack |
//! | [`r_brk_entry`] | replaces the dynamic linker's empty `r_brk`; saves all registers |
//! | [`call_on_stack`] | switches to a stack of `stack::POOL` and back, then delivers signals |
//! | [`SignalContext`] | program counter, stack pointer and signal mask of a `ucontext` |
//! | [`weak_address`] | the address of a symbol that may be missing, without a libc |
//! | [`DecodedFunction`], [`classify`], [`plan_constant`] | decides how a site is rewritten |
//! | [`trampoline`], [`frame_table`] | the code bytes of a trampoline and of the jumps to it; their unwind tables |
//! | [`for_each_syscall`], [`for_each_far_target`], [`find_number_load`] | search in code |
//! | [`is_empty_function`], [`is_relocatable`] | checks of code bytes |
//! | [`begins_insn`] | whether bytes are an instruction, without a decoder |
//! | [`variadic_exec`] | `execl` and its kin: a call before, then a jump to libc's |
//! | [`SYSCALL_INSN`], [`PATCH_BYTES`], [`BRANCH_REACH`], [`PAGE`] | encodings and sizes |
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
    BRANCH_REACH, CallFrame, DecodedFunction, PAGE, PATCH_BYTES, SYSCALL_INSN, SignalContext, begins_insn, call_on_stack, classify,
    exec_entry, find_number_load, for_each_far_target, for_each_syscall, frame_table, is_empty_function, is_relocatable, plan_constant,
    r_brk_entry, site_entry, trampoline, variadic_exec, weak_address,
};

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "uringlet-attach supports x86-64 only. A port supplies a folder beside src/arch/x86_64 with the names that src/arch/mod.rs lists: \
     entries and stack switch in assembly, signal context, disassembly and classification of system call sites, trampolines."
);
