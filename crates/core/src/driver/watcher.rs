//! The watcher: one thread per process, started when first needed. It drives rings while no thread
//! of the program is inside enter().
//!
//! Rule: while something of a ring is armed (a poll, a timer, AIO), either a thread of the program
//! drives the ring or the watcher does. Notifying the watcher at each return from enter() would
//! cost two system calls a request. Instead:
//!
//! ```text
//!   thread leaving enter(), ring locked          watcher
//!   seq += 1                                     TICKING: scans each listed ring every millisecond
//!   ring not listed: list it, wake the watcher     seq moved: active, scan again next tick
//!   else watcher ASLEEP and the ring not           seq still, no driver: arm the ring's epoll set in ours
//!     covered by it: wake the watcher            no ring moved for TICKS ticks: ASLEEP, then scan once more
//! ```
//!
//! No wake-up is lost: the watcher becomes ASLEEP and then scans every ring under its lock. It sees
//! a thread that left before that scan; a thread that leaves after it sees ASLEEP, by the same
//! lock.
//!
//! A ring is covered by an armed epoll set, and by no timer sooner than the end of the watcher's
//! sleep (`until_ns`). That time is known only after the last scan. During that scan no timer is
//! covered, since the earliest timer so far may just be removed. Checked by `driver::model`.
//!
//! The watcher does not drive a `DEFER_TASKRUN` ring. It notifies the program once, and the program
//! handles the events when it enters for them. Receives into incrementally filled buffers rely on
//! that: their CQEs come in the order of the filling.
//!
//! A ring's epoll set is armed in ours one-shot. If it fires while a thread drives the ring, the
//! wake-up was for nothing: the ring stays disarmed until the next scan finds its seq unchanged. If
//! it fires without a driver, the program polls the CQ without system calls, and the ring is armed
//! again at once. A new ring counts as one whose program does.
//!
//! A thread may change its identity by a call that the engine does not see, right after it has left
//! a ring. So a ring with links that act as their submitter is neither armed nor driven before a
//! tick has passed since. Nor is a `DEFER_TASKRUN` ring armed: its notification could come while
//! the program is about to enter.

use super::closing;
use super::events::{drive, fire_timers, run_requeued};
use crate::identity::{self, Identity};
use crate::state::{Busy, LockOwner, RINGS, Ring, UringGuard};
use crate::submit::identity::start_missing_workers;
use crate::submit::{Depth, run_ready};
use crate::uringlet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use uringlet_abi::setup;
use uringlet_sys::fd::{EPOLLET, EPOLLIN, EPOLLONESHOT, Epoll, EpollOp, EventFd, NO_EVENT};
use uringlet_sys::lock::{Mutex, futex_wait, futex_wake};
use uringlet_sys::process::monotonic_ns;
use uringlet_sys::sync::{AtomicBool, AtomicU32, AtomicU64};
use uringlet_sys::{Errno, UserPtr, process, thread};

pub(super) const TICK_NS: u64 = 1_000_000;
/// Quiet ticks before the watcher sleeps.
const TICKS: u32 = if cfg!(loom) { 1 } else { 16 };
const WAKE_EVENT: u64 = u64::MAX;
/// With a ring's index: no process holds the ring's descriptor any more.
const ORPHANED: u64 = 1 << 32;

const TICKING: u32 = 0;
const ASLEEP: u32 = 1;

/// The one watcher of this process.
#[cfg(not(loom))]
pub(crate) static WATCHER: Watcher = Watcher::new();

#[cfg(loom)]
loom::lazy_static! {
    /// The watcher of a model's run.
    pub(crate) static ref WATCHER: Watcher = Watcher::new();
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Watcher {
    mode: AtomicU32,
    /// While ASLEEP: when it wakes by itself, ns.
    until_ns: AtomicU64,
    is_started: AtomicBool,
    /// The number of the thread that is the watcher, or is about to be.
    term: AtomicU32,
    /// The last one that has ended: a futex on which its successor waits.
    ended: AtomicU32,
    /// One that ends without a successor.
    paused: AtomicU32,
    state: Mutex<WatcherState>,
}

#[derive(Debug)]
struct WatcherState {
    fds: Option<WatcherFds>,
    /// Rings to scan from now on.
    new: Vec<&'static Ring>,
    /// The identity of its thread.
    identity: Option<Identity>,
}

#[derive(Clone, Debug)]
struct WatcherFds {
    epoll: Arc<Epoll>,
    wake_eventfd: Arc<EventFd>,
}

/// The result of a scan of the rings.
#[derive(Clone, Copy, Debug)]
struct ScanResult {
    is_active: bool,
    until_ns: u64,
}

impl Default for ScanResult {
    fn default() -> Self {
        Self { is_active: false, until_ns: u64::MAX }
    }
}

impl Watcher {
    uringlet_sys::const_unless_loom! {
        fn new() -> Self {
            Self {
                mode: AtomicU32::new(TICKING),
                until_ns: AtomicU64::new(0),
                is_started: AtomicBool::new(false),
                term: AtomicU32::new(0),
                ended: AtomicU32::new(0),
                paused: AtomicU32::new(0),
                state: Mutex::new(WatcherState { fds: None, new: Vec::new(), identity: None }),
            }
        }
    }

    /// Scans `ring` from now on.
    fn list(&'static self, ring: &'static Ring, starter: Option<Identity>) {
        self.state.lock().new.push(ring);
        self.wake(starter);
    }

    /// Starts the watcher if need be, and wakes it. The calling thread has the identity `starter`,
    /// if that is known. It replaces a watcher of an identity that the process had before.
    pub(crate) fn wake(&'static self, starter: Option<Identity>) {
        let mut state = self.state.lock();
        if state.fds.is_none() {
            state.fds = WatcherFds::new().ok();
        }
        let Some(fds) = state.fds.clone() else { return };
        let is_old = starter.is_some() && state.identity != starter && !identity::is_diverged();
        if !self.is_started.load(Acquire) || is_old {
            self.start(&mut state, &fds, starter);
        }
        fds.wake_eventfd.signal();
    }

    /// The calling thread has a new identity: so has the watcher, if a ring needs one.
    pub(crate) fn renew(&'static self, own: Identity) {
        let former = self.state.lock().identity;
        let is_of_other = identity::is_diverged() && former.is_some_and(|former| !identity::has_ended(former));
        if !self.is_started.load(Acquire) || is_of_other {
            return;
        }
        if !RINGS.all().any(|ring| ring.lock(LockOwner::Worker).is_some_and(|guard| guard.needs_watch())) {
            self.pause(0);
            return self.resume(own);
        }
        let mut state = self.state.lock();
        if let Some(fds) = state.fds.clone() {
            self.start(&mut state, &fds, Some(own));
            fds.wake_eventfd.signal();
        }
    }

    /// Starts a thread that becomes the watcher when the present one, which has to be woken, has
    /// ended. If no thread can be started, the present one stays.
    fn start(&'static self, state: &mut WatcherState, fds: &WatcherFds, identity: Option<Identity>) {
        let name = crate::io_wq::thread_name("iou-watch-", process::pid());
        let (fds, term) = (fds.clone(), self.term.load(Relaxed).wrapping_add(1));
        let owner = LockOwner::Watcher(identity);
        if thread::spawn(&name, move || self.run(&fds, term, owner)).is_ok() {
            state.identity = identity;
            self.is_started.store(true, Release);
            self.term.store(term, Release);
        }
    }

    /// Ends the watcher's thread, if there is one, and waits for that until a deadline. Nobody
    /// looks after the rings until [`resume`](Self::resume), which must follow.
    pub(crate) fn pause(&'static self, deadline_ns: u64) {
        let term = {
            let state = self.state.lock();
            let Some(fds) = state.fds.as_ref().filter(|_| self.is_started.swap(false, AcqRel)) else { return };
            let term = self.term.load(Relaxed);
            self.paused.store(term, Release);
            fds.wake_eventfd.signal();
            term
        };
        let mut ended = self.ended.load(Acquire);
        while ended != term && monotonic_ns() < deadline_ns {
            let _ = futex_wait(&self.ended, ended, deadline_ns);
            ended = self.ended.load(Acquire);
        }
    }

    /// After [`pause`](Self::pause): the calling thread, which has this identity, starts a watcher
    /// if a ring needs one.
    pub(crate) fn resume(&'static self, identity: Identity) {
        if self.is_started.load(Acquire) {
            return;
        }
        self.state.lock().new.clear();
        for ring in RINGS.all() {
            let Some(mut guard) = ring.lock(LockOwner::Worker) else { continue };
            // Listed anew, or when a thread leaves it.
            guard.watched.is_listed = guard.needs_watch();
            if guard.watched.is_listed {
                drop(guard);
                self.list(ring, Some(identity));
            }
        }
    }

    /// Adds the rings to be scanned from now on.
    fn take_new(&self, rings: &mut Vec<&'static Ring>) {
        let new = core::mem::take(&mut self.state.lock().new);
        if !new.is_empty() {
            rings.extend(new);
            // One may have been listed anew before the former watcher handed it on.
            rings.sort_unstable_by_key(|ring| ring.index);
            rings.dedup_by_key(|ring| ring.index);
        }
    }

    fn wait_for_predecessor(&self, term: u32) {
        let predecessor = term.wrapping_sub(1);
        let mut ended = self.ended.load(Acquire);
        while ended != predecessor {
            let _ = futex_wait(&self.ended, ended, u64::MAX);
            ended = self.ended.load(Acquire);
        }
    }

    /// The thread ends: its successor takes over.
    fn hand_on(&self, rings: &mut Vec<&'static Ring>, term: u32) {
        self.state.lock().new.append(rings);
        self.ended.store(term, Release);
        futex_wake(&self.ended, u32::MAX);
    }

    /// The thread. What depends on an identity it leaves to workers, so that nothing is under way
    /// with the old identity while the program changes its own.
    fn run(&'static self, fds: &WatcherFds, term: u32, owner: LockOwner) {
        let mut rings: Vec<&'static Ring> = Vec::new();
        let mut quiet = 0;
        self.wait_for_predecessor(term);
        while self.is_current(term) && self.paused.load(Acquire) != term {
            self.take_new(&mut rings);
            let mut result = try_scan(&mut rings, fds, owner);
            quiet = if result.is_active { 0 } else { quiet + 1 };
            if quiet >= TICKS {
                // A timer that the first scan saw may be removed meanwhile, so it covers no ring.
                self.until_ns.store(u64::MAX, Release);
                self.mode.store(ASLEEP, Release);
                result = scan(&mut rings, fds, owner);
                self.until_ns.store(result.until_ns, Release);
            }
            let is_asleep = quiet >= TICKS && !result.is_active;
            let until = if is_asleep { result.until_ns } else { result.until_ns.min(monotonic_ns() + TICK_NS) };
            if !is_asleep {
                self.mode.store(TICKING, Release);
            }
            let mut events = [NO_EVENT; 64];
            let n = fds.epoll.wait(&mut events, until.max(1), UserPtr::NULL).unwrap_or(0);
            self.mode.store(TICKING, Release);
            for event in &events[..n.min(64)] {
                let data = event.data;
                match data {
                    WAKE_EVENT => quiet = 0,
                    _ if data & ORPHANED != 0 => closing::orphaned(data as u32),
                    _ => ring_fired(data as u32, owner),
                }
            }
        }
        self.hand_on(&mut rings, term);
    }

    /// Whether this thread is the watcher still. A new thread's number is stored after its start.
    fn is_current(&self, term: u32) -> bool {
        let current = self.term.load(Acquire);
        current == term || current.wrapping_add(1) == term
    }

    /// For fork(2): keeps all other threads out of the watcher's lists.
    pub(crate) fn lock_for_fork(&self) {
        self.state.lock_for_fork();
    }

    pub(crate) fn unlock_after_fork(&self) {
        self.state.unlock_after_fork();
    }

    /// In a copy of a process: a list that a thread was changing that the copy does not have begins
    /// anew.
    pub(crate) fn recover_in_copy(&self) {
        self.state.recover_in_copy(|torn| {
            core::mem::forget(torn);
            WatcherState { fds: None, new: Vec::new(), identity: None }
        });
    }

    /// In a forked child, whose watcher does not exist: a new one is started when needed.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        state.fds = None;
        state.new.clear();
        state.identity = None;
        self.ended.store(self.term.load(Relaxed), Relaxed);
        self.is_started.store(false, Release);
        self.mode.store(TICKING, Release);
    }

    /// Watches for the end of a ring whose remaining descriptors are not known to this process.
    fn watch_close(&'static self, writer: i32, ring_index: u32) {
        {
            let mut state = self.state.lock();
            if state.fds.is_none() {
                state.fds = WatcherFds::new().ok();
            }
            if let Some(fds) = &state.fds {
                // Errors are reported without being asked for. Already there: from an earlier time
                // without numbers.
                let _ = fds.epoll.ctl(EpollOp::Add, writer, EPOLLET, ORPHANED | u64::from(ring_index));
            }
        }
        self.wake(Some(identity::of_this_thread()));
    }
}

impl WatcherFds {
    fn new() -> Result<Self, Errno> {
        let fds = Self { epoll: Arc::new(Epoll::new()?), wake_eventfd: Arc::new(EventFd::new()?) };
        fds.epoll.ctl(EpollOp::Add, fds.wake_eventfd.number(), EPOLLIN | EPOLLET, WAKE_EVENT)?;
        Ok(fds)
    }

    fn arm(&self, guard: &mut UringGuard) -> Result<(), Errno> {
        let fd = guard.res.poller()?.epoll.number();
        let index = u64::from(guard.ring.index);
        let op = if guard.watched.is_added { EpollOp::Mod } else { EpollOp::Add };
        match self.epoll.ctl(op, fd, EPOLLIN | EPOLLONESHOT, index) {
            Err(Errno::ENOENT) => self.epoll.ctl(EpollOp::Add, fd, EPOLLIN | EPOLLONESHOT, index)?,
            Err(Errno::EEXIST) => self.epoll.ctl(EpollOp::Mod, fd, EPOLLIN | EPOLLONESHOT, index)?,
            other => other?,
        }
        guard.watched.is_added = true;
        guard.watched.is_armed = true;
        Ok(())
    }
}

/// Scans each ring whose lock is free. The holder of a lock leaves the ring later, and the next
/// tick sees that. Waiting for the lock would cost its holder a wake-up, up to a thousand times a
/// second.
fn try_scan(rings: &mut Vec<&'static Ring>, fds: &WatcherFds, owner: LockOwner) -> ScanResult {
    let mut result = ScanResult::default();
    rings.retain(|ring| match ring.try_lock(owner) {
        Ok(Some(mut guard)) => scan_one(&mut guard, fds, &mut result),
        Ok(None) => false,
        Err(Busy) => {
            result.is_active = true;
            true
        }
    });
    result
}

/// Scans each ring. Rings with nothing armed leave the list.
fn scan(rings: &mut Vec<&'static Ring>, fds: &WatcherFds, owner: LockOwner) -> ScanResult {
    let mut result = ScanResult::default();
    rings.retain(|ring| ring.lock(owner).is_some_and(|mut guard| scan_one(&mut guard, fds, &mut result)));
    result
}

fn scan_one(guard: &mut UringGuard, fds: &WatcherFds, result: &mut ScanResult) -> bool {
    if !guard.watched.is_listed {
        return false;
    }
    if !guard.needs_watch() {
        guard.watched.is_listed = false;
        return false;
    }
    let has_moved = guard.watched.seq != guard.watched.seen_seq;
    guard.watched.seen_seq = guard.watched.seq;
    result.is_active |= has_moved;
    if guard.waiters.has_driver {
        return true;
    }
    let is_deferred = guard.res.setup & setup::DEFER_TASKRUN != 0;
    let may_be_armed = !has_moved || (guard.watched.polls_cq && !guard.leaves_dependent && !is_deferred);
    if !guard.watched.is_armed && !guard.res.event_pending && may_be_armed {
        result.is_active |= fds.arm(guard).is_err();
    }
    if guard.lacks_worker {
        start_missing_workers(guard);
    }
    fire_timers(guard);
    run_ready(guard, Depth::Driving);
    uringlet::wake(guard);
    result.until_ns = result.until_ns.min(guard.res.timers.next_deadline().unwrap_or(u64::MAX));
    true
}

/// A ring's epoll set has an event.
fn ring_fired(index: u32, owner: LockOwner) {
    let Some(mut guard) = RINGS.get(index).and_then(|ring| ring.lock(owner)) else { return };
    guard.watched.is_armed = false;
    if guard.res.setup & setup::DEFER_TASKRUN != 0 {
        return notify_program(&mut guard);
    }
    guard.watched.polls_cq = !guard.waiters.has_driver;
    // The next scan but one arms it again.
    let was_just_left = guard.leaves_dependent && guard.watched.seq != guard.watched.seen_seq;
    if !guard.waiters.has_driver && !was_just_left {
        // An event that comes during this call fires at once when the next scan arms the set again.
        let _ = drive(&mut guard, 0, UserPtr::NULL);
        run_requeued(&mut guard);
        uringlet::wake(&mut guard);
    }
}

/// Notifies the program, which has to enter for the events.
fn notify_program(guard: &mut UringGuard) {
    if !guard.waiters.has_driver {
        guard.res.event_pending = true;
        guard.res.note_deferred();
    }
}

/// The last known number of a ring is gone: ends the ring, or watches for its end.
pub(crate) fn end_or_watch(ring: &'static Ring, generation: u64) {
    if let Some(writer) = closing::end_if_closed(ring, generation) {
        WATCHER.watch_close(writer, ring.index);
    }
}

/// What to tell the watcher once the ring's lock is released, and the identity of the thread that
/// does, if known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WatcherNotify {
    Nothing,
    Wake(Option<Identity>),
    List(&'static Ring, Option<Identity>),
}

/// The watcher looks after what is armed from now on.
pub(crate) fn hand_over(guard: &mut UringGuard) -> WatcherNotify {
    let watcher = &WATCHER;
    if !guard.watched.is_listed {
        guard.watched.is_listed = true;
        return WatcherNotify::List(guard.ring, guard.res.lock_owner.identity());
    }
    // Where no thread was to be had, each thread that leaves tries to start the watcher again.
    let is_covered = watcher.is_started.load(Acquire)
        && (watcher.mode.load(Acquire) == TICKING
            || (guard.watched.is_armed && guard.res.timers.next_deadline().is_none_or(|at| at >= watcher.until_ns.load(Acquire))));
    if is_covered { WatcherNotify::Nothing } else { WatcherNotify::Wake(guard.res.lock_owner.identity()) }
}

impl WatcherNotify {
    pub(crate) fn deliver(self) {
        match self {
            Self::Nothing => {}
            Self::Wake(starter) => WATCHER.wake(starter),
            Self::List(ring, starter) => WATCHER.list(ring, starter),
        }
    }
}
