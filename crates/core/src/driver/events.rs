//! A ring's event loop: what its files, its timers and the kernel's AIO have ready.

use crate::apoll::{CLOCK_EVENT, PollWaiter, RECHECK_EVENT, WAKE_EVENT};
use crate::state::UringGuard;
use crate::submit::identity::start_missing_workers;
use crate::submit::{Depth, fire_expired, follow_clocks, issue_in_loop, poll_fired, reap_aio, revive_starved, run_ready, serve_processes};
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_abi::setup;
use uringlet_sys::fd::{Epoll, EpollEvent, NO_EVENT};
use uringlet_sys::{Errno, UserPtr, process};

const EVENTS: usize = 128;

/// Completes what can be completed without waiting.
pub(super) fn poll_pending(guard: &mut UringGuard) {
    bring_on(guard);
    if guard.res.poller.as_ref().is_some_and(|p| p.is_armed()) && !guard.waiters.has_driver {
        let _ = drive(guard, 0, UserPtr::NULL);
    }
}

/// Gives the multishot requests that have ended their turn further ones, until each has found
/// nothing: the kernel completes all that before it returns to the program. With `DEFER_TASKRUN` it
/// does so when the program enters again.
#[inline]
pub(super) fn run_requeued(guard: &mut UringGuard) {
    while guard.has_requeued && guard.res.setup & setup::DEFER_TASKRUN == 0 && !guard.waiters.has_driver {
        let _ = drive(guard, 0, UserPtr::NULL);
    }
}

/// Of that, what does not need the epoll set.
pub(super) fn bring_on(guard: &mut UringGuard) {
    if guard.aio_in_flight > 0 {
        reap_aio(guard);
    }
    bring_on_others(guard);
}

/// Of that, what is no transfer of the kernel's AIO.
fn bring_on_others(guard: &mut UringGuard) {
    if guard.lacks_worker {
        start_missing_workers(guard);
    }
    serve_processes(guard);
    revive_starved(guard);
    fire_timers(guard);
    run_ready(guard, Depth::Driving);
}

/// Completes what is ready for a thread that does not wait for it. `DEFER_TASKRUN` rings complete
/// nothing outside enter(). The transfers of the kernel's AIO are left to the driver, if there is
/// one: each of them wakes it, and it takes several at once.
#[inline]
pub(super) fn poll_unless_deferred(guard: &mut UringGuard) {
    if !guard.needs_watch() || guard.res.setup & setup::DEFER_TASKRUN != 0 {
        return;
    }
    if guard.waiters.has_driver {
        bring_on_others(guard);
    } else {
        poll_pending(guard);
        run_requeued(guard);
    }
}

pub(super) fn fire_timers(guard: &mut UringGuard) {
    if guard.res.timers.next_deadline().is_some() {
        fire_expired(guard, process::monotonic_ns());
    }
}

/// Runs the ring's event loop once: waits until `deadline_ns` (0: not at all), then handles the
/// events.
///
/// # Errors
/// `EINTR`; `EFAULT` for a bad `sigmask`; the error of making the poller.
pub(super) fn drive(guard: &mut UringGuard, deadline_ns: u64, sigmask: UserPtr) -> Result<(), Errno> {
    guard.has_requeued = false;
    let epoll = Arc::clone(&guard.res.poller()?.epoll);
    let mut events = [NO_EVENT; EVENTS];
    let waited = if deadline_ns == 0 {
        epoll.wait(&mut events, 0, UserPtr::NULL)
    } else {
        sleep_on(guard, &epoll, &mut events, deadline_ns, sigmask)
    };
    let n = *waited.as_ref().unwrap_or(&0);
    handle_events(guard, &events[..n.min(EVENTS)]);
    waited.map(drop)
}

/// As [`drive`], but events of files do not end the sleep: they are handled after it.
///
/// # Errors
/// As [`drive`].
pub(super) fn nap(guard: &mut UringGuard, deadline_ns: u64, sigmask: UserPtr) -> Result<(), Errno> {
    let wakeups = guard.res.poller()?.wakeups()?;
    let mut events = [NO_EVENT; 1];
    // Notifications of earlier sleeps.
    wakeups.wait(&mut events, 0, UserPtr::NULL)?;
    sleep_on(guard, &wakeups, &mut events, deadline_ns, sigmask)?;
    drive(guard, 0, UserPtr::NULL)
}

/// Sleeps as the ring's driver, without its lock.
fn sleep_on(guard: &mut UringGuard, epoll: &Epoll, events: &mut [EpollEvent], deadline_ns: u64, sigmask: UserPtr) -> Result<usize, Errno> {
    guard.waiters.has_driver = true;
    guard.waiters.driver_notified = false;
    let waited = guard.unlocked(|| epoll.wait(events, deadline_ns, sigmask));
    guard.waiters.has_driver = false;
    // CQEs that workers posted meanwhile come before those of the events.
    if !guard.res.deferred.is_empty() {
        guard.res.run_deferred();
    }
    waited
}

fn handle_events(guard: &mut UringGuard, events: &[EpollEvent]) {
    let mut ready: Vec<PollWaiter> = Vec::new();
    for event in events {
        let (data, mask) = (event.data, event.events);
        if data == WAKE_EVENT {
            reap_aio(guard);
            serve_processes(guard);
            continue;
        }
        if data == CLOCK_EVENT {
            follow_clocks(guard);
            continue;
        }
        if let Some(poller) = &mut guard.res.poller {
            if data == RECHECK_EVENT {
                poller.recheck();
                continue;
            }
            poller.on_event(data, mask, &mut ready);
        }
        for waiting in ready.drain(..) {
            if let Some(req) = poll_fired(guard, waiting, mask) {
                issue_in_loop(guard, req, Depth::Driving);
            }
        }
    }
    fire_timers(guard);
    run_ready(guard, Depth::Driving);
}
