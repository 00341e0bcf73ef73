//! The ring: all that is behind its lock.

use super::drain::DrainQueue;
use super::punted::WorkerPool;
use super::watched::Watched;
use crate::request::{Parked, ReqId, Request};
use crate::ring::SubmitBaton;
use crate::ring_resources::RingResources;
use crate::slab::Slab;
use crate::uringlet::run_queue::RunQueue;
use crate::uringlet::workers::UringletWorkers;
use crate::virtual_file::CompleteCommand;
use alloc::collections::VecDeque;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::aio::Aio;
use uringlet_sys::biased_lock::Held;
use uringlet_sys::fd::{EngineFd, RingFd};
use uringlet_sys::lock::Mutex;
use uringlet_sys::process;
use uringlet_sys::ring_memory::RingMemory;
use uringlet_sys::sync::AtomicU32;

/// A place for a ring; it outlives the ring, and is used again.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Its place in the engine's table.
    pub(crate) index: u32,
    pub(super) state: Mutex<RingState>,
    /// Counts wake-ups; waiters that do not drive sleep on it.
    pub(crate) cq_wait_seq: AtomicU32,
    /// The FIFO holds a byte for pollers.
    pub(crate) is_flagged: AtomicBool,
    /// Somebody polls the descriptor: its readiness is kept.
    pub(crate) is_polled: AtomicBool,
    /// Changes when something is put in line while an attendant looks for it without the lock.
    pub(crate) event_seq: AtomicU32,
}

/// The eventfd that a program registered.
#[derive(Debug)]
pub(crate) struct RegisteredEventfd {
    pub(crate) fd: EngineFd,
    /// Only for what did not complete inline.
    pub(crate) async_only: bool,
}

/// Threads that wait for CQEs.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// How many sleep, the driver included.
    pub(crate) sleeping: u32,
    /// A CQ tail that satisfies one of them.
    pub(crate) wake_tail: u32,
    /// Somebody runs this ring's event loop.
    pub(crate) has_driver: bool,
    /// The driver's cq_wait_seq is being rung, or was, since it went to sleep.
    pub(crate) is_called: bool,
    /// Threads that wait to submit.
    pub(crate) for_baton: u32,
    /// Threads inside enter() that have let the lock go.
    pub(crate) inside: u32,
}

/// All that a ring is.
#[derive(Debug)]
pub(crate) struct RingState {
    /// Somebody has moved in and not yet out.
    pub(super) is_open: bool,
    /// What an op may use while it is issued.
    pub(crate) res: RingResources,
    /// Tells this ring from earlier and later ones in the same place.
    pub(crate) generation: u64,
    pub(crate) baton: Option<SubmitBaton>,
    pub(crate) parked: Slab<Parked>,
    pub(super) next_generation: NonZeroU32,
    /// Requests submitted and not completed, the queued ones included.
    pub(crate) in_flight: u32,
    /// Chains whose turn has come: whoever holds the lock issues them.
    pub(crate) ready: VecDeque<Request>,
    pub(crate) drain: DrainQueue,
    pub(crate) aio: Option<Aio>,
    pub(crate) aio_in_flight: u32,
    pub(crate) eventfd: Option<RegisteredEventfd>,
    pub(crate) waiters: Waiters,
    /// In uringlet mode: what the ring's own workers have to run.
    pub(crate) run_queue: RunQueue<ReqId>,
    pub(crate) uringlet_workers: Option<UringletWorkers>,
    pub(crate) io_wq: WorkerPool,
    /// Completes commands (`driver::command`).
    pub(crate) complete_command: CompleteCommand,
    /// The program's descriptor as the engine sees it; none with `REGISTERED_FD_ONLY`.
    pub(crate) fd: Option<RingFd>,
    /// Numbers of this process that are known to be the ring's.
    pub(crate) known_fds: u32,
    pub(crate) is_disabled: bool,
    pub(crate) is_closing: bool,
    /// The one thread that may submit (`SINGLE_ISSUER`), once known.
    pub(crate) issuer: Option<u64>,
    /// Completions of TIMEOUTs: each ends a wait.
    pub(crate) timeouts_fired: u32,
    /// How the watcher sees this ring.
    pub(crate) watched: Watched,
    /// The process that made the ring.
    pub(super) maker: u32,
    /// This process, not the maker, uses the ring too.
    pub(super) has_claimed: bool,
    /// The ring existed at a fork: a child may use it some day.
    pub(crate) was_forked: bool,
    /// Among the processes that share the ring: how whoever holds the lock got in.
    pub(super) inside: Held,
}

/// Somebody holds the ring's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy;

impl Ring {
    pub(crate) fn new(index: u32) -> Self {
        Self {
            index,
            state: Mutex::new(RingState::vacant()),
            cq_wait_seq: AtomicU32::new(0),
            is_flagged: AtomicBool::new(false),
            is_polled: AtomicBool::new(false),
            event_seq: AtomicU32::new(0),
        }
    }

    /// Moves a new ring in.
    pub(crate) fn open(&self, mut state: RingState) {
        state.res.ring_index = self.index;
        self.is_flagged.store(false, Relaxed);
        self.is_polled.store(false, Relaxed);
        *self.state.lock() = state;
    }

    /// Nobody is in this ring while the result lives: for fork(2).
    pub(crate) fn lock_for_fork(&'static self) {
        self.state.lock_for_fork();
    }

    /// After fork(2), in parent and child: undoes [`lock_for_fork`](Self::lock_for_fork).
    pub(crate) fn unlock_after_fork(&'static self) {
        self.state.unlock_after_fork();
    }
}

impl RingState {
    /// A new ring.
    pub(crate) fn new(generation: u64, memory: RingMemory, setup: u32, io_wq: WorkerPool, fd: RingFd) -> Self {
        Self { is_open: true, ..Self::with(generation, memory, setup, io_wq, Some(fd)) }
    }

    /// Nobody.
    pub(super) fn vacant() -> Self {
        Self::with(0, RingMemory::none(), 0, WorkerPool::with_limits([0, 0]), None)
    }

    fn with(generation: u64, memory: RingMemory, setup: u32, io_wq: WorkerPool, fd: Option<RingFd>) -> Self {
        Self {
            is_open: false,
            res: RingResources::new(memory, setup),
            generation,
            baton: None,
            parked: Slab::new(),
            next_generation: NonZeroU32::MIN,
            in_flight: 0,
            ready: VecDeque::new(),
            drain: DrainQueue::default(),
            aio: None,
            aio_in_flight: 0,
            eventfd: None,
            waiters: Waiters::default(),
            run_queue: RunQueue::default(),
            uringlet_workers: None,
            io_wq,
            complete_command: |_, _| {},
            fd,
            known_fds: 0,
            is_disabled: false,
            is_closing: false,
            issuer: None,
            timeouts_fired: 0,
            watched: Watched::default(),
            maker: process::pid(),
            has_claimed: false,
            was_forked: false,
            inside: Held::No,
        }
    }

    /// In a forked child: what is in flight is the parent's, and so are its workers, its epoll set and its AIO.
    pub(crate) fn forget_parents_requests(&mut self) {
        self.parked.iter().for_each(|(_, parked)| parked.unmark(self.res.ring_index));
        self.parked.clear();
        if self.issuer.is_some() {
            // A thread of the parent: none of this process, whatever its key.
            self.issuer = Some(u64::MAX);
        }
        self.ready.clear();
        self.drain = DrainQueue::default();
        self.in_flight = 0;
        self.res.forget_parents_requests();
        self.aio = None;
        self.aio_in_flight = 0;
        self.waiters = Waiters::default();
        self.io_wq.forget();
        self.io_wq = WorkerPool::new(self.res.memory.geometry().sq_entries);
        if let Some(workers) = self.uringlet_workers.take() {
            workers.forget();
        }
        self.run_queue = RunQueue::default();
        self.watched = Watched::default();
        self.has_claimed = false;
        self.baton.get_or_insert_with(SubmitBaton::new);
    }

    /// Whether something pends that only the ring's event loop can bring on.
    pub(crate) fn needs_watch(&self) -> bool {
        self.aio_in_flight > 0 || self.res.timers.next_deadline().is_some() || self.res.poller.as_ref().is_some_and(|p| p.is_armed())
    }
}
