//! The functions of libc that the program finds here first.
//!
//! Where libc's function is a cancellation point or does more than the system call, libc's is
//! called: the one that comes next in the search order, as `dlsym(RTLD_NEXT)` finds it.

mod cancellation;
mod closers;
mod descriptors;
mod errno;
mod exec;
mod exit;
mod identity;
mod limits;
mod masks;
mod memory;
mod next;
mod open;
mod paths;
mod polling;
mod sanitizer;
mod signals;
mod sigsys_threads;
mod transfers;
mod unwind;

pub(crate) use cancellation::before_ring;
pub(crate) use errno::set_errno;
pub(crate) use masks::change_raw_mask;
pub(crate) use next::note_objects;
