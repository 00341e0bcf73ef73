//! The ring: all that is behind its lock.

use super::drain::DrainQueue;
use super::filters::Filters;
use super::metadata_pace::MetadataPace;
use super::napi::Napi;
use super::personalities::Personalities;
use super::ready::Ready;
use super::restrictions::Restrictions;
use super::transfer_reports::TransferReports;
use super::user_data_index::UserDataIndex;
use super::wait_args::WaitArgs;
use super::watched::Watched;
use super::worker_pool::WorkerPool;
use crate::identity::{self, Identity};
use crate::request::{Parked, ReqId};
use crate::ring::SubmitBaton;
use crate::ring_resources::RingResources;
use crate::slab::Slab;
use crate::uringlet::run_queue::RunQueue;
use crate::uringlet::workers::UringletWorkers;
use crate::virtual_file::CompleteCommand;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use uringlet_sys::aio::Aio;
use uringlet_sys::biased_lock::Held;
use uringlet_sys::fd::{EngineFd, EventFd, RingFd};
use uringlet_sys::lock::Mutex;
use uringlet_sys::process;
use uringlet_sys::ring_memory::RingMemory;
use uringlet_sys::sync::AtomicU32;

/// A slot of the ring table. It outlives the ring in it, and is used again.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Its index in the ring table.
    pub(crate) index: u32,
    pub(super) state: Mutex<RingState>,
    /// Counts wake-ups. Waiters that are not the driver sleep on it.
    pub(crate) cq_wait_seq: AtomicU32,
    /// The FIFO holds a byte for pollers.
    pub(crate) is_flagged: AtomicBool,
    /// The program polls the descriptor, so its readiness is kept up to date.
    pub(crate) is_polled: AtomicBool,
    /// Another ring of this process polls it.
    pub(super) is_polled_by_ring: AtomicBool,
    /// It has become readable since such rings were last looked at.
    pub(super) has_event_for_rings: AtomicBool,
    /// Changes when something is queued while a uringlet worker spins without the lock.
    pub(crate) event_seq: AtomicU32,
}

/// The completions that a program's eventfd counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventfdCounts {
    All,
    /// Those that are not inline (`IORING_REGISTER_EVENTFD_ASYNC`).
    Async,
}

/// The eventfd that a program registered.
#[derive(Debug)]
pub(crate) struct RegisteredEventfd {
    pub(crate) fd: Arc<EngineFd>,
    pub(crate) counts: EventfdCounts,
    /// The ring has signalled it since a multishot poll was armed.
    pub(crate) is_signalled: bool,
}

/// Threads that wait for CQEs.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// How many sleep, the driver included.
    pub(crate) sleeping: u32,
    /// The nearest CQ tail that satisfies one of them.
    pub(crate) wake_tail: u32,
    /// A thread of the program runs this ring's event loop.
    pub(crate) has_driver: bool,
    /// The driver was notified since it went to sleep.
    pub(crate) driver_notified: bool,
    /// Those of the others that wait with a signal mask of their own, which a futex cannot take.
    pub(crate) masked: Vec<Arc<EventFd>>,
    /// Threads that wait to submit.
    pub(crate) for_baton: u32,
    /// Threads inside enter() that have released the lock for a while.
    pub(crate) inside: u32,
}

/// All of a ring.
#[derive(Debug)]
pub(crate) struct RingState {
    /// The slot holds a ring.
    pub(super) is_open: bool,
    /// What an op may use while it is issued.
    pub(crate) res: RingResources,
    /// Distinguishes this ring from earlier and later ones in the same slot.
    pub(crate) generation: u64,
    pub(crate) baton: Option<SubmitBaton>,
    pub(crate) parked: Slab<Parked>,
    /// Of those, which have a certain user_data.
    pub(super) by_user_data: Option<UserDataIndex>,
    pub(super) next_generation: NonZeroU32,
    /// A multishot request has ended its turn: the epoll set has an event for it, behind those of
    /// other files.
    pub(crate) has_requeued: bool,
    /// Requests submitted and not completed, the queued ones included.
    pub(crate) in_flight: u32,
    /// To be done by the holder of the lock.
    pub(crate) ready: VecDeque<Ready>,
    pub(crate) drain: DrainQueue,
    pub(crate) aio: Option<Aio>,
    pub(crate) aio_in_flight: u32,
    pub(crate) transfer_reports: TransferReports,
    pub(crate) metadata_pace: MetadataPace,
    pub(crate) eventfd: Option<RegisteredEventfd>,
    pub(crate) waiters: Waiters,
    pub(crate) wait_args: WaitArgs,
    pub(crate) napi: Napi,
    /// In uringlet mode: what the ring's own workers have to run.
    pub(crate) run_queue: RunQueue<ReqId>,
    pub(crate) uringlet_workers: Option<UringletWorkers>,
    pub(crate) io_wq: WorkerPool,
    /// A request waits for a worker that the thread which queued it was not allowed to start.
    pub(crate) lacks_worker: bool,
    /// A request that depends on its submitter's identity was left behind at some time, to be
    /// issued by whichever thread.
    pub(crate) leaves_dependent: bool,
    /// Completes commands (`driver::command`).
    pub(crate) complete_command: CompleteCommand,
    /// The engine's end of the program's descriptor; none with `REGISTERED_FD_ONLY`.
    pub(crate) fd: Option<RingFd>,
    /// Numbers of this process that are known to be the ring's.
    pub(crate) known_fds: u32,
    pub(crate) is_disabled: bool,
    /// What it may be used for, if that is restricted.
    pub(crate) restrictions: Option<Box<Restrictions>>,
    /// Which requests are denied, if any are.
    pub(crate) filters: Option<Box<Filters>>,
    /// Identities that requests may act with.
    pub(crate) personalities: Personalities,
    /// Each SQE has to be checked, or is polled: none is executed directly.
    pub(crate) has_no_fast_path: bool,
    pub(crate) is_closing: bool,
    /// The one thread that may submit (`SINGLE_ISSUER`), once known.
    pub(crate) issuer: Option<u64>,
    /// Expired TIMEOUTs: each ends a wait.
    pub(crate) timeouts_fired: u32,
    /// The watcher's notes on this ring.
    pub(crate) watched: Watched,
    /// The process that made the ring.
    pub(super) maker: u32,
    /// A forked child has begun to use the ring: its lock is no longer biased to the maker.
    pub(super) has_revoked_bias: bool,
    /// The ring existed at a fork: a child may begin to use it at any time.
    pub(crate) was_forked: bool,
    /// How the holder of the ring's lock acquired the lock between processes.
    pub(super) held: Held,
}

/// Another thread holds the ring's lock.
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
            is_polled_by_ring: AtomicBool::new(false),
            has_event_for_rings: AtomicBool::new(false),
            event_seq: AtomicU32::new(0),
        }
    }

    /// Puts a new ring into the slot.
    pub(crate) fn open(&self, mut state: RingState) {
        state.res.ring_index = self.index;
        self.is_flagged.store(false, Relaxed);
        self.is_polled.store(false, Relaxed);
        self.is_polled_by_ring.store(false, Relaxed);
        self.has_event_for_rings.store(false, Relaxed);
        *self.state.lock() = state;
    }

    /// Whether rings that poll this one have an event since this was last asked.
    #[inline]
    pub(crate) fn take_event_for_rings(&self) -> bool {
        self.has_event_for_rings.load(Relaxed) && self.has_event_for_rings.swap(false, AcqRel)
    }

    /// For fork(2): keeps all other threads out of the ring.
    pub(crate) fn lock_for_fork(&'static self) {
        self.state.lock_for_fork();
    }

    /// After fork(2), in parent and child: undoes [`lock_for_fork`](Self::lock_for_fork).
    pub(crate) fn unlock_after_fork(&'static self) {
        self.state.unlock_after_fork();
    }

    /// In a copy of a process: a ring that another thread was changing keeps its memory and its
    /// descriptor, and loses its registered resources.
    pub(crate) fn recover_in_copy(&'static self) {
        self.state.recover_in_copy(RingState::rebuilt);
    }
}

impl RingState {
    /// A new ring.
    pub(crate) fn new(generation: u64, memory: RingMemory, setup: u32, io_wq: WorkerPool, fd: RingFd) -> Self {
        Self { is_open: true, ..Self::with(generation, memory, setup, io_wq, Some(fd)) }
    }

    /// No ring.
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
            by_user_data: None,
            next_generation: NonZeroU32::MIN,
            has_requeued: false,
            in_flight: 0,
            ready: VecDeque::new(),
            drain: DrainQueue::default(),
            aio: None,
            aio_in_flight: 0,
            transfer_reports: TransferReports::default(),
            metadata_pace: MetadataPace::default(),
            eventfd: None,
            waiters: Waiters::default(),
            wait_args: WaitArgs::default(),
            napi: Napi::default(),
            run_queue: RunQueue::default(),
            uringlet_workers: None,
            io_wq,
            lacks_worker: false,
            leaves_dependent: false,
            complete_command: |_, _| {},
            fd,
            known_fds: 0,
            is_disabled: false,
            restrictions: None,
            filters: None,
            personalities: Personalities::default(),
            has_no_fast_path: false,
            is_closing: false,
            issuer: None,
            timeouts_fired: 0,
            watched: Watched::default(),
            maker: process::pid(),
            has_revoked_bias: false,
            was_forked: false,
            held: Held::No,
        }
    }

    /// What does not change while a ring is open; the rest, which may be half changed, is leaked.
    fn rebuilt(mut torn: Self) -> Self {
        let memory = core::mem::replace(&mut torn.res.memory, RingMemory::none());
        let io_wq = WorkerPool::new(memory.geometry().sq_entries);
        let mut rebuilt = Self::with(torn.generation, memory, torn.res.setup, io_wq, torn.fd.take());
        rebuilt.is_open = torn.is_open;
        rebuilt.res.ring_index = torn.res.ring_index;
        rebuilt.res.mode = torn.res.mode;
        rebuilt.res.maker_wake = torn.res.maker_wake.take();
        rebuilt.res.wake_eventfd = torn.res.wake_eventfd.take();
        rebuilt.complete_command = torn.complete_command;
        rebuilt.known_fds = torn.known_fds;
        rebuilt.is_disabled = torn.is_disabled;
        rebuilt.restrictions = torn.restrictions.take();
        rebuilt.filters = torn.filters.take();
        rebuilt.has_no_fast_path = torn.has_no_fast_path;
        rebuilt.is_closing = torn.is_closing;
        rebuilt.maker = torn.maker;
        core::mem::forget(torn);
        rebuilt
    }

    /// In a forked child: drops what is the parent's, that is, requests in flight, workers, epoll
    /// set and AIO. The only thread had the identity `former` there.
    pub(crate) fn reset_in_child(&mut self, former: Identity) {
        self.parked.iter().for_each(|(_, parked)| parked.unmark(self.res.ring_index));
        self.parked.clear();
        self.by_user_data = None;
        if self.issuer.is_some() {
            // The issuer was a thread of the parent: no thread of this process matches.
            self.issuer = Some(u64::MAX);
        }
        self.ready.clear();
        self.drain = DrainQueue::default();
        self.in_flight = 0;
        self.res.reset_in_child();
        self.aio = None;
        self.aio_in_flight = 0;
        self.transfer_reports = TransferReports::default();
        self.waiters = Waiters::default();
        self.io_wq.forget();
        self.io_wq = WorkerPool::new(self.res.memory.geometry().sq_entries);
        if !self.personalities.is_empty() {
            self.personalities.reset_in_child(former, &self.io_wq.capture(identity::of_this_thread()));
        }
        if let Some(workers) = self.uringlet_workers.take() {
            workers.forget();
        }
        self.lacks_worker = false;
        self.run_queue = RunQueue::default();
        self.watched = Watched::default();
        self.has_revoked_bias = false;
        let flags = self.res.setup;
        self.baton.get_or_insert_with(|| SubmitBaton::new(flags));
    }

    /// Whether something is pending that only the ring's event loop can complete.
    pub(crate) fn needs_watch(&self) -> bool {
        self.aio_in_flight > 0
            || self.lacks_worker
            || self.res.timers.next_deadline().is_some()
            || self.res.poller.as_ref().is_some_and(|p| p.is_armed())
    }
}
