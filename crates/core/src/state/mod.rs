//! A ring: its resources, the requests in flight, who waits and who works for it, and the lock over it all.
//!
//! What is here is held here; what is done with it is `submit`'s and `driver`'s. An op that is issued gets the [`RingResources`] and
//! sees nothing else.
//!
//! One lock a ring, held for short: never over a system call that may sleep. Submission itself is serialised by the
//! [`SubmitBaton`], a value that whoever submits has taken out of the state: it may let the lock go (to run a write,
//! say) and nobody else can submit meanwhile, but everybody can post and cancel.
//!
//! What was posted under the lock becomes visible when the lock is released ([`UringGuard`]'s drop): CQ tail first, then
//! the wake-ups, each at most once.

pub(crate) mod drain;
mod guard;
pub(crate) mod line;
mod ring_table;
pub(crate) mod sharing;
mod watched;
mod workers;

use crate::request::{Outcome, Parked, ReqId, Request, Stage};
use crate::ring::SubmitBaton;
use crate::ring::cq::CqNotify;
pub(crate) use crate::ring_resources::LockOwner;
use crate::ring_resources::RingResources;
use crate::slab::Slab;
use alloc::collections::VecDeque;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use drain::DrainQueue;
pub(crate) use guard::UringGuard;
use guard::Wakes;
use line::Line;
pub(crate) use ring_table::RINGS;
use uringlet_abi::{Cqe, cq_flags, cqe, sqe};
use uringlet_sys::aio::Aio;
use uringlet_sys::biased_lock::Held;
use uringlet_sys::fd::{EngineFd, RingFd};
use uringlet_sys::lock::Mutex;
use uringlet_sys::process;
use uringlet_sys::ring_memory::{RingField, RingMemory};
use uringlet_sys::sync::AtomicU32;
pub(crate) use watched::Watched;
pub(crate) use workers::{Attendance, Attendants, Punted, Role, WorkerPool};

/// Some ring that is polled may be flagged readable.
pub(crate) static ANY_READABLE: AtomicBool = AtomicBool::new(false);

/// A place for a ring; it outlives the ring, and is used again.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Its place in the engine's table.
    pub(crate) index: u32,
    state: Mutex<RingState>,
    /// Counts wake-ups; waiters that do not drive sleep on it.
    pub(crate) bell: AtomicU32,
    /// The FIFO holds a byte for pollers.
    pub(crate) is_flagged: AtomicBool,
    /// Somebody polls the descriptor: its readiness is kept.
    pub(crate) is_polled: AtomicBool,
    /// Changes when something is put in line while an attendant looks for it without the lock.
    pub(crate) news: AtomicU32,
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
    /// The driver's bell is being rung, or was, since it went to sleep.
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
    is_open: bool,
    /// What an op may use while it is issued.
    pub(crate) res: RingResources,
    /// Tells this ring from earlier and later ones in the same place.
    pub(crate) generation: u64,
    pub(crate) baton: Option<SubmitBaton>,
    pub(crate) parked: Slab<Parked>,
    next_generation: NonZeroU32,
    /// Requests submitted and not completed, the queued ones included.
    pub(crate) in_flight: u32,
    /// Chains whose turn has come: whoever holds the lock issues them.
    pub(crate) ready: VecDeque<Request>,
    pub(crate) drain: DrainQueue,
    pub(crate) aio: Option<Aio>,
    pub(crate) aio_in_flight: u32,
    pub(crate) eventfd: Option<RegisteredEventfd>,
    pub(crate) waiters: Waiters,
    /// In uringlet mode: what attendants have to issue.
    pub(crate) line: Line<ReqId>,
    pub(crate) attendants: Option<Attendants>,
    pub(crate) io_wq: WorkerPool,
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
    maker: u32,
    /// This process, not the maker, uses the ring too.
    has_claimed: bool,
    /// The ring existed at a fork: a child may use it some day.
    pub(crate) was_forked: bool,
    /// Among the processes that share the ring: how whoever holds the lock got in.
    inside: Held,
}

/// Somebody holds the ring's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy;

impl Ring {
    pub(crate) fn new(index: u32) -> Self {
        Self {
            index,
            state: Mutex::new(RingState::vacant()),
            bell: AtomicU32::new(0),
            is_flagged: AtomicBool::new(false),
            is_polled: AtomicBool::new(false),
            news: AtomicU32::new(0),
        }
    }

    /// Moves a new ring in.
    pub(crate) fn open(&self, mut state: RingState) {
        state.res.ring_index = self.index;
        self.is_flagged.store(false, Relaxed);
        self.is_polled.store(false, Relaxed);
        *self.state.lock() = state;
    }

    /// The ring, locked; `None` when it has been closed.
    #[inline]
    pub(crate) fn lock(&'static self, lock_owner: LockOwner) -> Option<UringGuard> {
        UringGuard::new(self, self.state.lock(), lock_owner)
    }

    /// As [`lock`](Self::lock), if nobody holds it.
    pub(crate) fn try_lock(&'static self, lock_owner: LockOwner) -> Result<Option<UringGuard>, Busy> {
        self.state.try_lock().map(|state| UringGuard::new(self, state, lock_owner)).ok_or(Busy)
    }

    /// Nobody is in this ring while the result lives: for fork(2).
    pub(crate) fn lock_for_fork(&'static self) {
        self.state.lock_for_fork();
    }

    /// After fork(2), in parent and child: undoes [`hold`](Self::lock_for_fork).
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
    fn vacant() -> Self {
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
            line: Line::default(),
            attendants: None,
            io_wq,
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
        if let Some(attendants) = self.attendants.take() {
            attendants.forget();
        }
        self.line = Line::default();
        self.watched = Watched::default();
        self.has_claimed = false;
        self.baton.get_or_insert_with(SubmitBaton::new);
    }

    /// Makes what was posted visible, and says whom to wake.
    #[inline]
    fn commit(&mut self, ring: &Ring, wakes: &mut Wakes) {
        let posted = self.res.cq.publish(&self.res.memory);
        if !posted.is_empty() {
            self.tell(ring, posted, wakes);
        }
    }

    fn tell(&mut self, ring: &Ring, posted: CqNotify, wakes: &mut Wakes) {
        if self.is_shared() {
            wakes.others = Some(self.res.memory.biased_lock().notify());
        }
        if self.waiters.sleeping > 0 && (posted.must_wake || self.res.reaches(self.waiters.wake_tail)) {
            wakes.waiters = self.waiters.sleeping > u32::from(self.waiters.has_driver);
            // Once a sleep: whoever called it before is on the way to the bell.
            if self.waiters.has_driver && !core::mem::replace(&mut self.waiters.is_called, true) {
                wakes.driver = self.res.poller.as_ref().map(|p| p.wake_eventfd.number());
            }
        }
        if !posted.any && !posted.deferred {
            return;
        }
        let wants_event = self.res.memory.word(RingField::CqFlags).load(Relaxed) & cq_flags::EVENTFD_DISABLED == 0;
        if let Some(eventfd) = &self.eventfd
            && wants_event
            && (!eventfd.async_only || self.res.lock_owner == LockOwner::Worker || posted.is_async)
        {
            wakes.eventfd = Some(eventfd.fd.number());
        }
        self.flag_readable(ring);
    }

    /// Pollers of the ring's descriptor see it readable.
    pub(crate) fn flag_readable(&self, ring: &Ring) {
        if ring.is_polled.load(Relaxed)
            && let Some(fd) = &self.fd
        {
            // Noted first: the poller that the byte wakes settles it if it was for nothing, and must not spin until we are
            // scheduled again.
            ring.is_flagged.store(true, Relaxed);
            ANY_READABLE.store(true, Release);
            fd.set_readable();
        }
    }

    /// Takes the readiness back if the CQ is empty (again).
    pub(crate) fn settle_readable(&self, ring: &Ring) {
        let Some(fd) = &self.fd else { return };
        if self.res.is_drained() && ring.is_flagged.swap(false, AcqRel) {
            fd.clear_readable();
            // A CQE posted since is posted under this lock, and flags anew. One the program has not taken is still there.
            if self.res.cq.ready(&self.res.memory) > 0 {
                fd.set_readable();
                ring.is_flagged.store(true, Relaxed);
            }
        }
    }

    /// Posts what a request's end says, unless it asked for silence.
    pub(crate) fn post_outcome(&mut self, req: &Request, outcome: Outcome) {
        if req.is_silent || (req.has(sqe::CQE_SKIP_SUCCESS) && !outcome.is_failure && outcome.flags & cqe::MORE == 0) {
            return;
        }
        self.res.post(Cqe { user_data: req.user_data, res: outcome.res, flags: outcome.flags });
    }

    /// Keeps a request until its stage ends.
    pub(crate) fn park(&mut self, req: Request, stage: Stage) -> ReqId {
        let generation = self.next_generation;
        self.next_generation = generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let parked = Parked { req, stage, generation };
        parked.mark(self.res.ring_index);
        if let Some((fd, throttled)) = parked.throttled() {
            self.res.throttle.add(fd, throttled);
        }
        let key = self.parked.insert(parked) as u32;
        ReqId { key, generation }
    }

    /// The parked request, if it is still there.
    pub(crate) fn parked(&mut self, id: ReqId) -> Option<&mut Parked> {
        self.parked.get_mut(id.key as usize).filter(|p| p.generation == id.generation)
    }

    /// Takes a parked request: the taker completes it.
    pub(crate) fn unpark(&mut self, id: ReqId) -> Option<Parked> {
        self.parked(id)?;
        let parked = self.parked.remove(id.key as usize);
        parked.unmark(self.res.ring_index);
        if let Some((fd, throttled)) = parked.throttled() {
            self.res.throttle.remove(fd, throttled);
        }
        Some(parked)
    }

    /// Whether something pends that only the ring's event loop can bring on.
    pub(crate) fn needs_watch(&self) -> bool {
        self.aio_in_flight > 0 || self.res.timers.next_deadline().is_some() || self.res.poller.as_ref().is_some_and(|p| p.is_armed())
    }
}
