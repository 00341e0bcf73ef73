//! `liburing.so.2`: liburing's C interface over the engine, for programs that cannot be preloaded
//! into.
//!
//! A program linked to liburing gets this library by `LD_LIBRARY_PATH` alone. Every function that
//! would enter the kernel enters the engine instead. The rest (filling SQEs, reading CQEs) is
//! inlined into the program from liburing's own header and works on the ring memory of the engine.
//! Hence the two contracts of this crate: [`ring::IoUring`] has liburing's layout to the byte, and
//! `liburing.map` its symbols with their versions.
//!
//! | module | holds |
//! |---|---|
//! | [`ring`] | `struct io_uring` and the words it points to |
//! | [`syscall`] | calls of the engine, or system calls if the program is attached as well |
//! | [`backend`] | whether the engine answers, or the kernel |
//! | [`setup`], [`mapping`], [`sizes`] | making and unmaking rings; their memory and how much it is |
//! | [`queue`] | submit, wait, peek |
//! | [`register`], [`ring_fd`], [`buf_ring`] | `io_uring_register_*` |
//! | [`probe`], [`raw`], [`version`] | supported opcodes; raw system calls; version |
//! | [`weak`], [`fork`] | symbols of libc that may be missing; fork(2) |
//! | [`closers`] | close(2), dup2(2), fclose(3) and the like |
//! | [`hooks`], [`elf`] | functions of ours that precede libc's; the slots they are called through |
//! | [`readiness`], [`identity`] | poll(2) and the like; setuid(2) and the like |
//! | [`arch`] | what depends on the processor |
//!
//! Exports are safe functions over types that carry the C caller's promise: a `&IoUring` is a ring
//! set up by [`setup`] and not yet exited. Pointers that are only passed on to the engine stay raw
//! and are never dereferenced here.
#![no_std]

#[cfg(not(panic = "abort"))]
compile_error!("liburing.so.2 must not unwind into C: build it with panic = \"abort\"");

pub mod arch;
pub mod backend;
pub mod buf_ring;
pub mod c_types;
pub mod closers;
pub mod elf;
pub mod fork;
pub mod hooks;
pub mod identity;
pub mod mapping;
pub mod probe;
pub mod queue;
pub mod raw;
pub mod readiness;
pub mod register;
pub mod ring;
pub mod ring_fd;
pub mod setup;
pub mod sizes;
pub mod syscall;
pub mod version;
pub mod weak;

uringlet_sys::freestanding!("liburing.so.2");
