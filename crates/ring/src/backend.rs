//! What answers the calls of a ring.

use std::io;
use std::sync::OnceLock;

use uringlet_abi::UringParams;
use uringlet_reexec::ActiveBackend;
use uringlet_sys::engine_calls::EngineCalls;
use uringlet_sys::io::number_of;
use uringlet_sys::kernel_ring::{self, AskIn};
use uringlet_sys::linux::general::MAP_POPULATE;
use uringlet_sys::ring_backend::{RingBackend, is_attached};
use uringlet_sys::{Errno, Sysno, mm, syscall};

use crate::engine;
use crate::error::RingError;

/// What answers the calls of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RingCalls {
    /// The kernel: the program's own system calls. In an attached process the engine, which gets
    /// those calls.
    System(ActiveBackend),
    /// The engine in this process.
    Engine(&'static EngineCalls),
}

impl RingCalls {
    /// As `wanted`, or as `URINGLET` says, or the kernel's where it works.
    pub(crate) fn choose(wanted: Option<RingBackend>) -> Result<Self, RingError> {
        if is_attached() {
            return Ok(Self::System(ActiveBackend::Engine));
        }
        match wanted.map_or_else(by_environment, Ok)? {
            RingBackend::WhenBlocked if !kernel_works() => engine::calls().map(Self::Engine),
            RingBackend::Engine => engine::calls().map(Self::Engine),
            RingBackend::WhenBlocked | RingBackend::Kernel | RingBackend::KernelTraced => Ok(Self::System(ActiveBackend::Kernel)),
        }
    }

    pub(crate) fn active(self) -> ActiveBackend {
        match self {
            Self::System(backend) => backend,
            Self::Engine(_) => ActiveBackend::Engine,
        }
    }

    /// io_uring_setup(2): a new ring's fd.
    ///
    /// # Safety
    /// Buffers of the ring's requests stay valid until their CQE.
    pub(crate) unsafe fn setup(self, entries: u32, params: &mut UringParams) -> io::Result<i32> {
        let params = (&raw mut *params).expose_provenance();
        let made = match self {
            // SAFETY: live parameters.
            Self::System(_) => by_system(unsafe { syscall!(Sysno::io_uring_setup, entries, params) }),
            // SAFETY: the caller's promise.
            Self::Engine(engine) => by_engine(unsafe { (engine.setup)(entries, params) }),
        };
        made.map(number_of)
    }

    /// io_uring_enter(2): SQEs consumed.
    ///
    /// # Safety
    /// With arguments, `arg` is the address of live ones.
    pub(crate) unsafe fn enter(self, fd: i32, to_submit: u32, want: u32, flags: u32, arg: usize, arg_len: usize) -> io::Result<usize> {
        match self {
            // SAFETY: the caller's promise; the ring's requests are covered by that of `setup`.
            Self::System(_) => by_system(unsafe { syscall!(Sysno::io_uring_enter, fd, to_submit, want, flags, arg, arg_len) }),
            Self::Engine(engine) => by_engine((engine.enter)(fd, to_submit, want, flags, arg, arg_len)),
        }
    }

    /// io_uring_register(2).
    ///
    /// # Safety
    /// `arg` is what the operation takes.
    pub(crate) unsafe fn register(self, fd: i32, opcode: u32, arg: usize, nr_args: u32) -> io::Result<usize> {
        match self {
            // SAFETY: the caller's promise.
            Self::System(_) => by_system(unsafe { syscall!(Sysno::io_uring_register, fd, opcode, arg, nr_args) }),
            Self::Engine(engine) => by_engine((engine.register)(fd, opcode, arg, nr_args)),
        }
    }

    /// mmap(2) of a part of the ring: its address.
    pub(crate) fn map(self, fd: i32, len: usize, offset: u64) -> io::Result<usize> {
        match self {
            Self::System(_) => by_system(mm::map_file(fd, len, offset, MAP_POPULATE)),
            Self::Engine(engine) => by_engine((engine.map_ring)(fd, len, offset)),
        }
    }

    /// Ends the ring.
    pub(crate) fn close(self, fd: i32) {
        // There is nothing to do about an error.
        let _ = match self {
            // SAFETY: the ring's own number.
            Self::System(_) => by_system(unsafe { syscall!(Sysno::close, fd) }),
            Self::Engine(engine) => by_engine((engine.close)(fd)),
        };
    }

    /// The program may wait for the fd from now on, by poll(2) or the like.
    pub(crate) fn note_polled(self, fd: i32) {
        if let Self::Engine(engine) = self {
            (engine.note_polled)(fd);
        }
    }

    /// The program has found the CQ empty.
    pub(crate) fn settle_readiness(self) {
        if let Self::Engine(engine) = self {
            (engine.settle_readiness)();
        }
    }
}

fn by_environment() -> Result<RingBackend, RingError> {
    use std::os::unix::ffi::OsStrExt;
    match engine::variable(RingBackend::VARIABLE) {
        Some(name) => RingBackend::named(name.as_bytes()).ok_or(RingError::Variable),
        None => Ok(RingBackend::WhenBlocked),
    }
}

/// Asked once: other threads may use descriptor numbers meanwhile, so a copy of the process asks.
fn kernel_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| kernel_ring::works(AskIn::Copy))
}

fn by_system(result: Result<usize, Errno>) -> io::Result<usize> {
    result.map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))
}

fn by_engine(result: isize) -> io::Result<usize> {
    const MIN: i32 = -4095;
    // An address is a number beyond.
    match i32::try_from(result) {
        Ok(errno @ MIN..0) => Err(io::Error::from_raw_os_error(-errno)),
        _ => Ok(result.cast_unsigned()),
    }
}
