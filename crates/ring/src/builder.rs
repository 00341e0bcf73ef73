//! How a ring is made.

use std::time::Duration;

use uringlet_abi::{UringParams, setup};
use uringlet_sys::ring_backend::RingBackend;

use crate::backend::RingCalls;
use crate::error::RingError;
use crate::queues::Queues;
use crate::ring::Ring;

impl Ring {
    /// A ring whose SQ has this many entries, rounded up to a power of two.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn new(entries: u32) -> Result<Self, RingError> {
        Self::builder().build(entries)
    }

    /// For a ring with other properties.
    #[must_use]
    pub fn builder() -> RingBuilder {
        RingBuilder::default()
    }
}

/// Makes a [`Ring`]: see [`Ring::builder`].
#[derive(Clone, Debug, Default)]
pub struct RingBuilder {
    params: UringParams,
    backend: Option<RingBackend>,
}

impl RingBuilder {
    /// What answers the ring's calls. Without this `URINGLET` decides, and without that it is
    /// [`RingBackend::WhenBlocked`]. In an attached process all rings are the engine's.
    pub fn backend(&mut self, backend: RingBackend) -> &mut Self {
        self.backend = Some(backend);
        self
    }

    /// The CQ has this many entries, rounded up to a power of two. Default: twice those of the SQ.
    pub fn cq_entries(&mut self, entries: u32) -> &mut Self {
        self.params.cq_entries = entries;
        self.flag(setup::CQSIZE)
    }

    /// More entries than there can be are as many as there can be, and no error.
    pub fn clamp(&mut self) -> &mut Self {
        self.flag(setup::CLAMP)
    }

    /// A request that is refused does not end the submission of those behind it.
    pub fn submit_all(&mut self) -> &mut Self {
        self.flag(setup::SUBMIT_ALL)
    }

    /// One thread only submits, the one that makes the ring.
    pub fn single_issuer(&mut self) -> &mut Self {
        self.flag(setup::SINGLE_ISSUER)
    }

    /// Completions do not interrupt the program: it finds them when it makes a system call. The
    /// ring says when it should.
    pub fn coop_taskrun(&mut self) -> &mut Self {
        self.flag(setup::COOP_TASKRUN | setup::TASKRUN_FLAG)
    }

    /// Completions are made while the program waits for them, only. Implies
    /// [`single_issuer`](Self::single_issuer).
    pub fn defer_taskrun(&mut self) -> &mut Self {
        self.flag(setup::DEFER_TASKRUN | setup::SINGLE_ISSUER | setup::TASKRUN_FLAG)
    }

    /// A thread of the kernel's submits, which sleeps after `idle` (milliseconds) without work. The
    /// engine has no such thread: a submission that the program does not wait for costs a call.
    pub fn sqpoll(&mut self, idle: Duration) -> &mut Self {
        self.params.sq_thread_idle = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
        self.flag(setup::SQPOLL)
    }

    /// Completions are looked for, instead of waited for: direct reads and writes of devices that
    /// can do it.
    pub fn iopoll(&mut self) -> &mut Self {
        self.flag(setup::IOPOLL)
    }

    fn flag(&mut self, flag: u32) -> &mut Self {
        self.params.flags |= flag;
        self
    }

    /// Makes a ring whose SQ has this many entries, rounded up to a power of two.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn build(&self, entries: u32) -> Result<Ring, RingError> {
        let calls = RingCalls::choose(self.backend)?;
        let mut params = self.params;
        // SAFETY: `Ring::push` demands it of its caller.
        let fd = unsafe { calls.setup(entries, &mut params) }.map_err(RingError::Setup)?;
        match Queues::map(calls, fd, params) {
            Ok(queues) => Ok(Ring::new_of(calls, fd, queues)),
            Err(error) => {
                calls.close(fd);
                Err(RingError::Setup(error))
            }
        }
    }
}
