//! The fence: all unsafe code of the engine.
//!
//! Raw system calls on the program's addresses, the memory a ring shares with its program, locks on
//! futexes, threads without libc, descriptors. The exports are safe to call under one promise,
//! [`AppPromise`], made once a ring.
#![no_std]

extern crate alloc;
#[cfg(loom)]
extern crate std;

pub mod aio;
#[cfg_attr(loom, path = "model/alarm.rs")]
pub mod alarm;
mod arch;
pub mod biased_lock;
mod c_main;
pub mod clock;
pub mod code_memory;
pub mod directory;
pub mod engine_calls;
pub mod exec_file;
pub mod fault_plan;
pub mod fd;
pub mod fd_table;
pub mod freestanding;
#[cfg_attr(loom, path = "model/futex.rs")]
mod futex;
pub mod heap;
pub mod io;
#[cfg(not(loom))]
pub mod kernel_ring;
pub mod left_timeouts;
pub mod linkage;
pub mod lock;
pub mod loop_device;
pub mod mm;
#[cfg(loom)]
pub mod model;
pub mod own_program;
pub mod passthrough;
pub mod pinning;
pub mod proc_mem;
mod proc_path;
pub mod process;
pub mod process_image;
mod process_shared;
pub mod program_tid;
pub mod range_lock;
#[cfg(any(test, not(loom)))]
mod raw_lock;
pub mod refusal;
pub mod remote_cancel;
pub mod required_calls;
pub mod reserve;
pub mod ring_backend;
pub mod ring_memory;
pub mod sealed_file;
pub mod seccomp;
pub mod seccomp_notify;
#[cfg(not(loom))]
pub mod seqpacket;
#[cfg(not(loom))]
pub mod shared_file;
pub mod shm_channel;
#[cfg_attr(loom, path = "model/shm_mapping.rs")]
mod shm_mapping;
pub mod signal;
#[cfg(not(loom))]
pub mod spawn;
pub mod static_ref;
pub mod static_table;
pub mod stats;
pub mod sync;
pub mod text_file;
#[cfg_attr(loom, path = "model/thread.rs")]
pub mod thread;
pub mod trace;
#[cfg(not(loom))]
pub mod traced_ring;
#[cfg(not(loom))]
pub mod uaccess;
pub mod user;
pub mod user_futex;
mod user_ptr;
pub mod valgrind;
pub mod vmstat;

#[doc(hidden)]
pub use c_main::program_arguments;
/// Linux's constants and C structures, generated from the headers of the kernel.
pub use linux_raw_sys as linux;
/// System calls by number, for what has no function here.
pub use syscalls::raw;
pub use syscalls::{Errno, Sysno, raw_syscall, syscall};
pub use user::{AppPromise, UserPtr};
