//! The watcher: one thread a process, started when first needed, that brings rings on while nobody is inside enter().
//!
//! Rule: while something of a ring is armed (a poll, a timer, AIO), either a thread of the program drives the ring, or
//! the watcher does. To tell the watcher at each return from enter() would cost two system calls a request, so:
//!
//! ```text
//!   thread leaving enter(), ring locked          watcher
//!   seq += 1                                     TICKING: look at each listed ring every millisecond
//!   not listed: list the ring, ring the bell       seq moved: active, look again next tick
//!   else watcher ASLEEP and the ring not           seq still, nobody drives: arm the ring's epoll set in ours
//!     covered by it: ring the bell               no ring moved for TICKS ticks: ASLEEP, then look once more
//! ```
//!
//! Lost wake-up? The watcher becomes ASLEEP and then looks at every ring under its lock. A thread that left before that
//! look is seen by it; one that leaves after it sees ASLEEP, by the same lock.
//!
//! Covered is an armed epoll set, and no timer sooner than what the watcher sleeps for (`until_ns`). That is known only
//! after the last look; while it lasts no timer is covered, since the one the watcher had in mind may just be removed.
//! Checked by `driver::model`.
//!
//! A `DEFER_TASKRUN` ring is not brought on by the watcher: its program is told that there is something, once, and finds it when it enters for events.
//! Whoever takes buffers meanwhile that are filled bit by bit relies on it: their CQEs come in the order in which they were filled.
//!
//! A ring's epoll set is armed in ours one-shot. If it fires while a thread drives the ring, the wake-up was for
//! nothing: the ring stays disarmed until it is found still again. If it fires while nobody does, the program reads the
//! CQ without calls, and the ring is armed again at once.

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
const BELL: u64 = u64::MAX;
/// With a ring's index: its descriptor has no holder any more.
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
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    tools: Option<Tools>,
    /// Rings to be looked at from now on.
    new: Vec<&'static Ring>,
}

#[derive(Clone, Debug)]
struct Tools {
    epoll: Arc<Epoll>,
    bell: Arc<EventFd>,
}

/// What a look at the rings found.
#[derive(Clone, Copy, Debug)]
struct Look {
    is_active: bool,
    until_ns: u64,
}

impl Default for Look {
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
                shared: Mutex::new(Shared { tools: None, new: Vec::new() }),
            }
        }
    }

    /// Looks at `ring` from now on.
    fn list(&'static self, ring: &'static Ring) {
        self.shared.lock().new.push(ring);
        self.wake();
    }

    /// Wakes the watcher, starting it if need be.
    pub(crate) fn wake(&'static self) {
        let mut shared = self.shared.lock();
        if shared.tools.is_none() {
            shared.tools = Tools::new().ok();
        }
        let Some(tools) = shared.tools.clone() else { return };
        if !self.is_started.swap(true, Acquire) {
            let name = crate::io_wq::thread_name("iou-watch-", process::pid());
            let run = tools.clone();
            if thread::spawn(&name, move || self.run(&run)).is_err() {
                self.is_started.store(false, Release);
            }
        }
        tools.bell.signal();
    }

    /// The thread's life. A change of the process' credentials does not concern it: what it issues are transfers on open
    /// files; what opens goes to io-wq.
    fn run(&'static self, tools: &Tools) {
        let mut rings: Vec<&'static Ring> = Vec::new();
        let mut quiet = 0;
        loop {
            rings.append(&mut self.shared.lock().new);
            let mut look = glance_at(&mut rings, tools);
            quiet = if look.is_active { 0 } else { quiet + 1 };
            if quiet >= TICKS {
                // What the first look saw may be taken back meanwhile: no timer counts on it.
                self.until_ns.store(u64::MAX, Release);
                self.mode.store(ASLEEP, Release);
                look = look_at(&mut rings, tools);
                self.until_ns.store(look.until_ns, Release);
            }
            let is_asleep = quiet >= TICKS && !look.is_active;
            let until = if is_asleep { look.until_ns } else { look.until_ns.min(monotonic_ns() + TICK_NS) };
            if !is_asleep {
                self.mode.store(TICKING, Release);
            }
            let mut events = [NO_EVENT; 64];
            let n = tools.epoll.wait(&mut events, until.max(1), UserPtr::NULL).unwrap_or(0);
            self.mode.store(TICKING, Release);
            for event in &events[..n.min(64)] {
                let data = event.data;
                match data {
                    BELL => quiet = 0,
                    _ if data & ORPHANED != 0 => closing::orphaned(data as u32),
                    _ => ring_fired(data as u32),
                }
            }
        }
    }

    /// fork(2): nobody is in the watcher's lists while it is held.
    pub(crate) fn lock_for_fork(&self) {
        self.shared.lock_for_fork();
    }

    pub(crate) fn unlock_after_fork(&self) {
        self.shared.unlock_after_fork();
    }

    /// In a forked child, whose watcher does not exist: a new one is started when needed.
    pub(crate) fn forget(&self) {
        let mut shared = self.shared.lock();
        shared.tools = None;
        shared.new.clear();
        self.is_started.store(false, Release);
        self.mode.store(TICKING, Release);
    }

    /// Watches for the end of a ring whose remaining descriptors are not known to this process.
    fn watch_close(&'static self, writer: i32, ring_index: u32) {
        {
            let mut shared = self.shared.lock();
            if shared.tools.is_none() {
                shared.tools = Tools::new().ok();
            }
            if let Some(tools) = &shared.tools {
                // Errors are reported without being asked for. Already there: from an earlier time without numbers.
                let _ = tools.epoll.ctl(EpollOp::Add, writer, EPOLLET, ORPHANED | u64::from(ring_index));
            }
        }
        self.wake();
    }
}

impl Tools {
    fn new() -> Result<Self, Errno> {
        let tools = Self { epoll: Arc::new(Epoll::new()?), bell: Arc::new(EventFd::new()?) };
        tools.epoll.ctl(EpollOp::Add, tools.bell.number(), EPOLLIN | EPOLLET, BELL)?;
        Ok(tools)
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

/// Looks at each ring that nobody is busy with: who is will leave it, and the next tick sees that. To wait for its lock would cost its holder a
/// wake-up, up to a thousand times a second.
fn glance_at(rings: &mut Vec<&'static Ring>, tools: &Tools) -> Look {
    let mut look = Look::default();
    rings.retain(|ring| match ring.try_lock(LockOwner::Worker) {
        Ok(Some(mut guard)) => look_at_one(&mut guard, tools, &mut look),
        Ok(None) => false,
        Err(Busy) => {
            look.is_active = true;
            true
        }
    });
    look
}

/// Looks at each ring; those with nothing armed leave the list.
fn look_at(rings: &mut Vec<&'static Ring>, tools: &Tools) -> Look {
    let mut look = Look::default();
    rings.retain(|ring| ring.lock(LockOwner::Worker).is_some_and(|mut guard| look_at_one(&mut guard, tools, &mut look)));
    look
}

fn look_at_one(guard: &mut UringGuard, tools: &Tools, look: &mut Look) -> bool {
    if !guard.watched.is_listed {
        return false;
    }
    if !guard.needs_watch() {
        guard.watched.is_listed = false;
        return false;
    }
    let has_moved = guard.watched.seq != guard.watched.seen_seq;
    guard.watched.seen_seq = guard.watched.seq;
    look.is_active |= has_moved;
    if guard.waiters.has_driver {
        return true;
    }
    if !guard.watched.is_armed && !guard.res.is_told && (!has_moved || guard.watched.is_useful) {
        look.is_active |= tools.arm(guard).is_err();
    }
    fire_timers(guard);
    run_ready(guard, Depth::Deep);
    uringlet::wake(guard);
    look.until_ns = look.until_ns.min(guard.res.timers.next_deadline().unwrap_or(u64::MAX));
    true
}

/// A ring's epoll set has something.
fn ring_fired(index: u32) {
    let Some(mut guard) = RINGS.get(index).and_then(|ring| ring.lock(LockOwner::Worker)) else { return };
    guard.watched.is_armed = false;
    if guard.res.setup & setup::DEFER_TASKRUN != 0 {
        return tell(&mut guard);
    }
    guard.watched.is_useful = !guard.waiters.has_driver;
    if !guard.waiters.has_driver {
        // A new event may come while these are dealt with: armed again first, by the next look, it fires at once.
        let _ = drive(&mut guard, 0, UserPtr::NULL);
        uringlet::wake(&mut guard);
    }
}

/// Its program has to come for it.
fn tell(guard: &mut UringGuard) {
    if !guard.waiters.has_driver {
        guard.res.is_told = true;
        guard.res.note_deferred();
    }
}

/// The last known number of a ring is gone: ends the ring, or watches for its end.
pub(crate) fn end_or_watch(ring: &'static Ring, generation: u64) {
    if let Some(writer) = closing::end_if_closed(ring, generation) {
        WATCHER.watch_close(writer, ring.index);
    }
}

/// What the watcher must be told, once the ring's lock is released.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WatcherNotify {
    Nothing,
    Wake,
    List(&'static Ring),
}

/// What is armed is the watcher's business from now on.
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
