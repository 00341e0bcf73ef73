//! The engine's entry points as a table, for a program that has loaded `liburinglet.so` itself and
//! is not attached (`uringlet::Ring`).
//!
//! The object exports it under the name [`EngineCalls::SYMBOL`]. Program and object may be of
//! different builds: the first word says which table it is.

/// The entry points. Results are those of system calls: a number, or -errno. Addresses are the
/// program's.
#[derive(Debug)]
#[repr(C)]
pub struct EngineCalls {
    /// [`EngineCalls::LAYOUT`].
    pub layout: usize,
    /// Before all others, once: reads the `URINGLET_*` variables.
    pub start: extern "C" fn(),
    /// io_uring_setup(2): entries, parameters.
    ///
    /// Its caller answers for the ring's requests: their buffers stay valid until their CQE.
    pub setup: unsafe extern "C" fn(u32, usize) -> isize,
    /// io_uring_enter(2): fd, to_submit, min_complete, flags, argument, its length.
    pub enter: extern "C" fn(i32, u32, u32, u32, usize, usize) -> isize,
    /// io_uring_register(2): fd, opcode, argument, nr_args.
    pub register: extern "C" fn(i32, u32, usize, u32) -> isize,
    /// mmap(2) of a ring's fd: length, offset.
    pub map_ring: extern "C" fn(i32, usize, u64) -> isize,
    /// close(2) of a ring's fd.
    pub close: extern "C" fn(i32) -> isize,
    /// The program is about to wait for the ring's fd, by poll(2) or the like.
    pub note_polled: extern "C" fn(i32),
    /// The program has found a CQ empty.
    pub settle_readiness: extern "C" fn(),
    /// For pthread_atfork(3).
    pub before_fork: unsafe extern "C" fn(),
    /// For pthread_atfork(3).
    pub after_fork_in_parent: unsafe extern "C" fn(),
    /// For pthread_atfork(3).
    pub after_fork_in_child: unsafe extern "C" fn(),
}

impl EngineCalls {
    /// The name of the object's symbol.
    pub const SYMBOL: &str = "uringlet_engine_calls";

    /// Changes with this structure.
    pub const LAYOUT: usize = 2;
}
