//! Push, submit, wait, register.

use std::ffi::c_void;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use io_uring::{cqueue, squeue};
use uringlet_abi::{GeteventsArg, Timespec, enter, register, setup};
use uringlet_reexec::ActiveBackend;

use crate::backend::RingCalls;
use crate::queues::{QueueFull, Queues};

/// Bytes of the kernel's `sigset_t`.
const SIGSET_BYTES: u32 = 8;

/// A ring. SQEs and CQEs are those of the `io-uring` crate.
///
/// Dropping it ends it: what is in flight is cancelled, which may take a moment.
pub struct Ring {
    calls: RingCalls,
    fd: RawFd,
    queues: Queues,
}

impl Ring {
    pub(crate) fn new_of(calls: RingCalls, fd: RawFd, queues: Queues) -> Self {
        Self { calls, fd, queues }
    }

    /// What answers this ring's calls.
    #[must_use]
    pub fn backend(&self) -> ActiveBackend {
        self.calls.active()
    }

    /// `IORING_FEAT_*`, as io_uring_setup(2) gave them.
    #[must_use]
    pub fn features(&self) -> u32 {
        self.queues.params().features
    }

    /// Puts a request into the SQ. It begins with the next [`submit`](Self::submit).
    ///
    /// # Safety
    /// What the request points to stays valid until its CQE, also when the ring is dropped before;
    /// what it writes to is not used meanwhile.
    ///
    /// # Errors
    /// The SQ is full.
    pub unsafe fn push(&mut self, entry: &squeue::Entry) -> Result<(), QueueFull> {
        self.queues.push(entry)
    }

    /// As [`push`](Self::push), for all of the requests or none: what is linked has to be submitted
    /// at once.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    ///
    /// # Errors
    /// The SQ has no room for all.
    pub unsafe fn push_all(&mut self, entries: &[squeue::Entry]) -> Result<(), QueueFull> {
        if self.sq_room() < entries.len() {
            return Err(QueueFull);
        }
        entries.iter().try_for_each(|entry| self.queues.push(entry))
    }

    /// How many requests the SQ has room for.
    #[must_use]
    pub fn sq_room(&self) -> usize {
        self.queues.sq_room() as usize
    }

    /// Submits what was pushed. Returns how many requests were taken.
    ///
    /// # Errors
    /// Those of io_uring_enter(2).
    pub fn submit(&mut self) -> io::Result<usize> {
        self.submit_and_wait(0)
    }

    /// Submits, and waits until `want` completions are there.
    ///
    /// # Errors
    /// Those of io_uring_enter(2): [`io::ErrorKind::Interrupted`] when a signal came.
    pub fn submit_and_wait(&mut self, want: usize) -> io::Result<usize> {
        self.enter(want, None)
    }

    /// As [`submit_and_wait`](Self::submit_and_wait), for this long at most.
    ///
    /// # Errors
    /// As there; `ETIME` when the time is over and nothing was submitted.
    pub fn submit_and_wait_timeout(&mut self, want: usize, timeout: Duration) -> io::Result<usize> {
        let time = Timespec { tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(timeout.subsec_nanos()) };
        let ts = (&raw const time).expose_provenance() as u64;
        self.enter(want, Some(GeteventsArg { sigmask: 0, sigmask_sz: SIGSET_BYTES, min_wait_usec: 0, ts }))
    }

    fn enter(&mut self, want: usize, arg: Option<GeteventsArg>) -> io::Result<usize> {
        let want = u32::try_from(want).unwrap_or(u32::MAX);
        let to_submit = self.queues.publish();
        let is_sqpoll = self.queues.has_flag(setup::SQPOLL);
        let wakes = is_sqpoll && to_submit > 0 && self.queues.needs_wakeup();
        let gets = want > 0 || self.queues.needs_flush() || self.queues.has_flag(setup::IOPOLL);
        if !(gets || wakes || (to_submit > 0 && !is_sqpoll)) {
            return Ok(to_submit as usize);
        }
        let timed = if arg.is_some() { enter::EXT_ARG } else { 0 };
        let flags = if gets { enter::GETEVENTS | timed } else { 0 } | if wakes { enter::SQ_WAKEUP } else { 0 };
        let (at, len) = match &arg {
            Some(arg) if gets => ((&raw const *arg).expose_provenance(), size_of::<GeteventsArg>()),
            _ => (0, SIGSET_BYTES as usize),
        };
        // SAFETY: live arguments.
        unsafe { self.calls.enter(self.fd, to_submit, want, flags, at, len) }
    }

    /// The completions that are there, which are taken one by one. It ends when there is none; ones
    /// that come meanwhile are found.
    pub fn completions(&mut self) -> Completions<'_> {
        Completions { ring: self }
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        if let Some(entry) = self.queues.pop() {
            return Some(entry);
        }
        if self.queues.needs_flush() {
            // SAFETY: no arguments. An error leaves the completions where they are, and the next
            // submission tells it.
            let _ = unsafe { self.calls.enter(self.fd, 0, 0, enter::GETEVENTS, 0, SIGSET_BYTES as usize) };
        }
        let entry = self.queues.pop();
        if entry.is_none() {
            self.calls.settle_readiness();
        }
        entry
    }

    /// Registers buffers, for `opcode::ReadFixed` and the like.
    ///
    /// # Safety
    /// The buffers stay valid until they are unregistered or the ring has ended. Requests that read
    /// into one are covered by [`push`](Self::push).
    ///
    /// # Errors
    /// Those of io_uring_register(2): `EBUSY` when there are some already.
    pub unsafe fn register_buffers(&mut self, buffers: &[IoSliceMut<'_>]) -> io::Result<()> {
        // SAFETY: an array of iovecs, which is what an `IoSliceMut` is.
        unsafe { self.register_array(register::BUFFERS, buffers) }
    }

    /// Unregisters all buffers.
    ///
    /// # Errors
    /// Those of io_uring_register(2): `ENXIO` when there are none.
    pub fn unregister_buffers(&mut self) -> io::Result<()> {
        // SAFETY: no arguments.
        unsafe { self.register(register::UNREGISTER_BUFFERS, std::ptr::null(), 0) }.map(drop)
    }

    /// Registers files, for `types::Fixed`. -1 is an empty slot.
    ///
    /// # Errors
    /// Those of io_uring_register(2): `EBADF`, `EBUSY` when there are some already.
    pub fn register_files(&mut self, files: &[RawFd]) -> io::Result<()> {
        // SAFETY: an array of numbers.
        unsafe { self.register_array(register::FILES, files) }
    }

    /// Unregisters all files.
    ///
    /// # Errors
    /// Those of io_uring_register(2): `ENXIO` when there are none.
    pub fn unregister_files(&mut self) -> io::Result<()> {
        // SAFETY: no arguments.
        unsafe { self.register(register::UNREGISTER_FILES, std::ptr::null(), 0) }.map(drop)
    }

    /// From now on completions are counted in this eventfd.
    ///
    /// # Errors
    /// Those of io_uring_register(2): `EBUSY` when there is one already.
    pub fn register_eventfd(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: one number.
        unsafe { self.register_array(register::EVENTFD, &[eventfd.as_raw_fd()]) }
    }

    /// Completions are counted in no eventfd any more.
    ///
    /// # Errors
    /// Those of io_uring_register(2): `ENXIO` when there was none.
    pub fn unregister_eventfd(&mut self) -> io::Result<()> {
        // SAFETY: no arguments.
        unsafe { self.register(register::UNREGISTER_EVENTFD, std::ptr::null(), 0) }.map(drop)
    }

    /// Which opcodes this ring has.
    ///
    /// # Errors
    /// Those of io_uring_register(2).
    pub fn probe(&self) -> io::Result<OpProbe> {
        let mut probe = OpProbe { words: [0; OpProbe::WORDS] };
        let at = probe.words.as_mut_ptr().expose_provenance();
        // SAFETY: room for what the operation writes.
        unsafe { self.calls.register(self.fd, register::PROBE, at, OpProbe::OPS) }?;
        Ok(probe)
    }

    /// io_uring_register(2), for what has no method here: `opcode` is `IORING_REGISTER_*`.
    ///
    /// # Safety
    /// `arg` points to what the operation takes, for as long as it says.
    /// `IORING_REGISTER_RESIZE_RINGS` is not for a `Ring`: it would go on using the former memory.
    ///
    /// # Errors
    /// Those of io_uring_register(2).
    pub unsafe fn register(&mut self, opcode: u32, arg: *const c_void, nr_args: u32) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe { self.calls.register(self.fd, opcode, arg.expose_provenance(), nr_args) }
    }

    /// # Safety
    /// The operation takes an array of these.
    unsafe fn register_array<T>(&mut self, opcode: u32, array: &[T]) -> io::Result<()> {
        let count = u32::try_from(array.len()).unwrap_or(u32::MAX);
        // SAFETY: the caller's promise.
        unsafe { self.register(opcode, array.as_ptr().cast(), count) }.map(drop)
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("fd", &self.fd).field("backend", &self.backend()).finish_non_exhaustive()
    }
}

/// The descriptor is readable while there are completions: for poll(2) and epoll(7).
impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.calls.note_polled(self.fd);
        self.fd
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the ring is there.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl Drop for Ring {
    // Before its memory is unmapped.
    fn drop(&mut self) {
        self.calls.close(self.fd);
    }
}

/// See [`Ring::completions`].
#[derive(Debug)]
pub struct Completions<'r> {
    ring: &'r mut Ring,
}

impl Iterator for Completions<'_> {
    type Item = cqueue::Entry;

    fn next(&mut self) -> Option<Self::Item> {
        self.ring.next_completion()
    }
}

/// The opcodes of a ring: see [`Ring::probe`].
pub struct OpProbe {
    /// `struct io_uring_probe`: two words, and one for each opcode.
    words: [u64; Self::WORDS],
}

impl OpProbe {
    const OPS: u32 = 256;
    const HEAD: usize = 2;
    const WORDS: usize = Self::HEAD + Self::OPS as usize;
    /// `IO_URING_OP_SUPPORTED`, in the upper half of an opcode's word.
    const SUPPORTED: u64 = 1 << 16;

    /// Whether the ring has this opcode: `opcode::Read::CODE`.
    #[must_use]
    pub fn is_supported(&self, opcode: u8) -> bool {
        // `struct io_uring_probe_op`: the opcode, a byte, 16 flags, 32 bits.
        self.words[Self::HEAD + usize::from(opcode)] & Self::SUPPORTED != 0
    }
}

impl fmt::Debug for OpProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..=u8::MAX).filter(|&opcode| self.is_supported(opcode))).finish()
    }
}
