//! x86-64, System V ABI.
//!
//! | module | holds |
//! |---|---|
//! | `asm` | pieces of assembly that several entries share |
//! | `call_frame` | the registers of an intercepted call |
//! | `entry` | rewritten sites and `syscall(2)` into the engine |
//! | `reserved_stack` | a stack where the thread's list has none |
//! | `stack_switch` | Rust code onto an engine stack and back; deferred signals |
//! | `before_exec`, `exec_entry` | calls that start a program, and C code, onto a stack of `exec` |
//! | `r_brk_entry` | the hook in the dynamic linker |
//! | `trap_entry` | calls that a filter has trapped into the engine |
//! | `signal_context` | the kernel's `ucontext` |
//! | `own_object` | where this object is |
//! | `encoding` | instruction bytes: sizes, targets, searches |
//! | `disasm`, `classify` | decoding a function; how a site in it is rewritten |
//! | `computed_jumps` | where computed jumps take their targets from |
//! | `number_source` | evidence that bytes are code: where a number comes from |
//! | `trampoline` | the code that a rewritten site jumps to |
//! | `frame_table` | unwind tables of that code |
//! | `program_entry` | where the kernel starts this object when it is executed; the jump to a program |
//! | `insn_len` | whether bytes are an instruction, without the decoder |
//! | `variadic_exec` | `execl` and its kin |
//! | `weak` | weak symbols |

mod asm;
mod before_exec;
mod call_frame;
mod classify;
mod computed_jumps;
mod disasm;
mod encoding;
mod entry;
mod exec_entry;
pub(crate) mod frame_table;
mod insn_len;
mod number_source;
mod own_object;
mod program_entry;
mod r_brk_entry;
mod reserved_stack;
mod signal_context;
mod stack_switch;
pub(crate) mod trampoline;
mod trap_entry;
mod variadic_exec;
mod weak;

pub(crate) use call_frame::CallFrame;
pub(crate) use classify::{classify, plan_constant};
pub(crate) use computed_jumps::offset_tables;
pub(crate) use disasm::DecodedFunction;
pub(crate) use encoding::{
    BRANCH_REACH, FarTarget, PATCH_BYTES, SHORT_JUMP_REACH, SYSCALL_INSN, call, calls_of, find_number_load, for_each_called_word,
    for_each_constant, for_each_far_target, for_each_function_pointer, for_each_syscall, is_empty_function, is_relocatable,
};
pub(crate) use entry::site_entry;
pub(crate) use exec_entry::call_on_exec_stack;
pub(crate) use insn_len::begins_insn;
pub(crate) use number_source::copies_a_number;
pub(crate) use own_object::own_span;
pub(crate) use r_brk_entry::r_brk_entry;
pub(crate) use signal_context::SignalContext;
pub(crate) use stack_switch::call_on_stack;
pub(crate) use trap_entry::trap_entry;
pub(crate) use variadic_exec::variadic_exec;
pub(crate) use weak::weak_address;

pub(crate) use uringlet_sys::linkage::ELF_MACHINE;
/// The relocation that stores the load address plus the addend (`R_X86_64_RELATIVE`).
pub(crate) const RELATIVE_RELOCATION: u64 = 8;
/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// The architecture as seccomp filters see it (`AUDIT_ARCH_*`).
pub(crate) const AUDIT_ARCH: u32 = 0xc000_003e;
