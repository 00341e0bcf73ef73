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
//! again at once.

use super::closing;
use super::events::{drive, fire_timers};
use crate::state::{Busy, LockOwner, RINGS, Ring, UringGuard};
use crate::submit::{Depth, run_ready};
use crate::uringlet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Release};
use uringlet_abi::setup;
use uringlet_sys::fd::{EPOLLET, EPOLLIN, EPOLLONESHOT, Epoll, EpollOp, EventFd, NO_EVENT};
use uringlet_sys::lock::Mutex;
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
    state: Mutex<WatcherState>,
}

#[derive(Debug)]
struct WatcherState {
    fds: Option<WatcherFds>,
    /// Rings to scan from now on.
    new: Vec<&'static Ring>,
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
                state: Mutex::new(WatcherState { fds: None, new: Vec::new() }),
            }
        }
    }

    /// Scans `ring` from now on.
    fn list(&'static self, ring: &'static Ring) {
        self.state.lock().new.push(ring);
        self.wake();
    }

    /// Starts the watcher if need be, and wakes it.
    pub(crate) fn wake(&'static self) {
        let mut state = self.state.lock();
        if state.fds.is_none() {
            state.fds = WatcherFds::new().ok();
        }
        let Some(fds) = state.fds.clone() else { return };
        if !self.is_started.swap(true, Acquire) {
            let name = crate::io_wq::thread_name("iou-watch-", process::pid());
            let run = fds.clone();
            if thread::spawn(&name, move || self.run(&run)).is_err() {
                self.is_started.store(false, Release);
            }
        }
        fds.wake_eventfd.signal();
    }

    /// The thread. A change of the process' credentials does not affect it: it issues transfers on
    /// open files only, and opens go to io-wq.
    fn run(&'static self, fds: &WatcherFds) {
        let mut rings: Vec<&'static Ring> = Vec::new();
        let mut quiet = 0;
        loop {
            rings.append(&mut self.state.lock().new);
            let mut result = try_scan(&mut rings, fds);
            quiet = if result.is_active { 0 } else { quiet + 1 };
            if quiet >= TICKS {
                // A timer that the first scan saw may be removed meanwhile, so it covers no ring.
                self.until_ns.store(u64::MAX, Release);
                self.mode.store(ASLEEP, Release);
                result = scan(&mut rings, fds);
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
                    _ => ring_fired(data as u32),
                }
            }
        }
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
            WatcherState { fds: None, new: Vec::new() }
        });
    }

    /// In a forked child, whose watcher does not exist: a new one is started when needed.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        state.fds = None;
        state.new.clear();
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
        self.wake();
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
fn try_scan(rings: &mut Vec<&'static Ring>, fds: &WatcherFds) -> ScanResult {
    let mut result = ScanResult::default();
    rings.retain(|ring| match ring.try_lock(LockOwner::Worker) {
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
fn scan(rings: &mut Vec<&'static Ring>, fds: &WatcherFds) -> ScanResult {
    let mut result = ScanResult::default();
    rings.retain(|ring| ring.lock(LockOwner::Worker).is_some_and(|mut guard| scan_one(&mut guard, fds, &mut result)));
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
    if !guard.watched.is_armed && !guard.res.event_pending && (!has_moved || guard.watched.polls_cq) {
        result.is_active |= fds.arm(guard).is_err();
    }
    fire_timers(guard);
    run_ready(guard, Depth::Deep);
    uringlet::wake(guard);
    result.until_ns = result.until_ns.min(guard.res.timers.next_deadline().unwrap_or(u64::MAX));
    true
}

/// A ring's epoll set has an event.
fn ring_fired(index: u32) {
    let Some(mut guard) = RINGS.get(index).and_then(|ring| ring.lock(LockOwner::Worker)) else { return };
    guard.watched.is_armed = false;
    if guard.res.setup & setup::DEFER_TASKRUN != 0 {
        return notify_program(&mut guard);
    }
    guard.watched.polls_cq = !guard.waiters.has_driver;
    if !guard.waiters.has_driver {
        // An event that comes during this call fires at once when the next scan arms the set again.
        let _ = drive(&mut guard, 0, UserPtr::NULL);
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

/// What to tell the watcher once the ring's lock is released.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WatcherNotify {
    Nothing,
    Wake,
    List(&'static Ring),
}

/// The watcher looks after what is armed from now on.
pub(crate) fn hand_over(guard: &mut UringGuard) -> WatcherNotify {
    let watcher = &WATCHER;
    if !guard.watched.is_listed {
        guard.watched.is_listed = true;
        return WatcherNotify::List(guard.ring);
    }
    let is_covered = watcher.mode.load(Acquire) == TICKING
        || (guard.watched.is_armed && guard.res.timers.next_deadline().is_none_or(|at| at >= watcher.until_ns.load(Acquire)));
    if is_covered { WatcherNotify::Nothing } else { WatcherNotify::Wake }
}

impl WatcherNotify {
    pub(crate) fn deliver(self) {
        match self {
            Self::Nothing => {}
            Self::Wake => WATCHER.wake(),
            Self::List(ring) => WATCHER.list(ring),
        }
    }
}
