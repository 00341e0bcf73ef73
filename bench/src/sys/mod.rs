//! The unsafe code of the benchmarks: liburing's functions, asynchronous I/O of libc and of the
//! kernel, and the few system calls that no safe wrapper covers.
#![allow(unsafe_code, reason = "everything else in this crate is safe")]

pub(crate) mod aio;
pub(crate) mod enter;
pub(crate) mod iod_map;
pub(crate) mod liburing;
pub(crate) mod process;
