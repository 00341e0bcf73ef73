//! x86-64, System V ABI.
//!
//! | module | holds |
//! |---|---|
//! | `asm` | pieces of assembly that several entries share |
//! | `call_frame` | the registers of an intercepted call |
//! | `entry` | rewritten sites and `syscall(2)` into the engine |
//! | `stack_switch` | Rust code onto an engine stack and back; deferred signals |
//! | `exec_entry`, `r_brk_entry` | the two hooks in libc and the dynamic linker |
//! | `signal_context` | the kernel's `ucontext` |
//! | `encoding` | instruction bytes: sizes, targets, searches |
//! | `disasm`, `classify` | decoding a function; how a site in it is rewritten |
//! | `trampoline` | the code that a rewritten site jumps to |
//! | `frame_table` | unwind tables of that code |
//! | `insn_len` | whether bytes are an instruction, without the decoder |
//! | `variadic_exec` | `execl` and its kin |
//! | `weak` | weak symbols |

mod asm;
mod call_frame;
mod classify;
mod disasm;
mod encoding;
mod entry;
mod exec_entry;
pub(crate) mod frame_table;
mod insn_len;
mod r_brk_entry;
mod signal_context;
mod stack_switch;
pub(crate) mod trampoline;
mod variadic_exec;
mod weak;

pub(crate) use call_frame::CallFrame;
pub(crate) use classify::{classify, plan_constant};
pub(crate) use disasm::DecodedFunction;
pub(crate) use encoding::{
    BRANCH_REACH, PATCH_BYTES, SYSCALL_INSN, find_number_load, for_each_far_target, for_each_syscall, is_empty_function, is_relocatable,
};
pub(crate) use entry::site_entry;
pub(crate) use exec_entry::exec_entry;
pub(crate) use insn_len::begins_insn;
pub(crate) use r_brk_entry::r_brk_entry;
pub(crate) use signal_context::SignalContext;
pub(crate) use stack_switch::call_on_stack;
pub(crate) use variadic_exec::variadic_exec;
pub(crate) use weak::weak_address;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
