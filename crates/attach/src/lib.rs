//! `liburinglet.so`: the object that `uringlet run` preloads into a program.
//!
//! The program enters the engine in two ways. Calls of libc's functions reach the symbols exported
//! here (`symbols`), because a preloaded object comes first in the search order. System calls that
//! a program or library issues itself are rewritten at load time (`rewrite`), before the program's
//! threads run. Both end in `dispatch`, on a stack of the engine's own (`stack`, `entry`).
//!
//! The object has no libc and no thread-local storage: it runs under glibc and musl alike.
//! Everything that depends on the processor is in `arch`.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(test, allow(dead_code, unused_imports, reason = "tests take the parts that need no process of their own"))]

extern crate alloc;

mod arch;
mod backend;
mod before_ring;
mod bindings;
mod convert;
mod diagnose;
mod dispatch;
mod disposition;
mod dl_hook;
mod doctor;
mod dup;
mod engine_calls;
mod entry;
mod environ;
mod exec;
mod exec_hook;
mod explain;
mod fork;
mod in_use;
mod intercepted;
mod kernel_call;
mod kernel_ring_calls;
mod kernel_rings;
mod libc_symbols;
mod link_map;
mod mistakes;
mod notice;
mod path_call_table;
mod path_calls;
mod polled_fds;
mod rewrite;
mod ring_fd;
mod safe_read;
mod signals;
mod stack;
mod start;
mod static_file;
mod static_program;
mod symbol_table;
mod symbols;
mod trap;
mod virtual_paths;

#[cfg(not(test))]
uringlet_sys::freestanding!("liburinglet.so");

/// Tells the drop-in liburing that an engine is in the process already: it then calls that one.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub static uringlet_attached: u8 = 1;
