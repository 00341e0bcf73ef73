//! All that depends on the processor. Nothing outside this folder has assembly or names an
//! architecture.
//!
//! A port is a folder beside `x86_64` with these items (the registers and instructions are its own
//! business):
//!
//! | item | what it is |
//! |---|---|
//! | `AUDIT_ARCH` | what a filter of system calls finds as the architecture |
//! | `ELF_MACHINE` | the architecture's number in the header of an executable |
//! | `PAGE_SIZE`, `USER_ADDRESS_BITS` | bytes of a page; bits of a program's addresses |
//! | `ticks()` | a counter of constant rate, equal on all CPUs, read without a system call |
//! | `thread_pointer()` | a word that differs between the living threads of a process, read without a system call |
//! | `read_thread_register(..)` | that word is from now on one that no libc is needed for |
//! | `start_thread(..)`, `unmap_and_exit(..)` | raw clone(2) onto a new stack; the end of a thread that unmaps that stack |
//! | `noop_sigaction(..)` | a signal handler that returns at once, with the restorer that the kernel wants |
//! | `copy_user(..)`, `copy_fixup(..)` | a copy that survives faults, and where it goes on after one |
//! | `poll(..)` | poll(2), or ppoll(2) where the kernel has no poll(2) |
//! | `client_request(..)` | a request to valgrind; without effect elsewhere |
//! | `stats_note!` | the ELF note that leads to the counters |
//! | `freestanding_memory!` | `memcpy`, `memmove`, `memset`, `memcmp`, `bcmp` and `strlen` of an object without libc |
//!
//! System call numbers, the system call instruction and errno come from the `syscalls` crate,
//! constants and C structures from `linux-raw-sys`; both have several architectures. `spawn` uses
//! open(2) and dup2(2), `io` uses readlink(2), which newer architectures lack.
#![cfg_attr(loom, allow(dead_code, unused_imports, unused_macros))]

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "uringlet runs on x86-64 only. A port supplies a folder in crates/sys/src/arch: AUDIT_ARCH, ELF_MACHINE, PAGE_SIZE, USER_ADDRESS_BITS, ticks, \
     thread_pointer, read_thread_register, start_thread, unmap_and_exit, noop_sigaction, copy_user, copy_fixup, poll, client_request, \
     stats_note!, freestanding_memory!"
);
