//! io_uring_enter(2): submits, drives the ring, waits.
//!
//! An SQPOLL ring has no thread here. Its flag NEED_WAKEUP is always set, so the program always
//! enters to wake the thread, and the entering thread does that thread's work: it consumes the
//! whole SQ. Nothing spins.

use super::events::{bring_on, drive, nap, poll_pending, poll_unless_deferred, run_requeued};
use super::leave::{ExitAction, exit_action, perform, poll_other_rings};
use super::watcher::{WatcherNotify, hand_over};
use crate::io_wq::{InterruptGuard, Work};
use crate::ops::timeout::signed_nanoseconds;
use crate::request::Stage;
use crate::state::{LockOwner, Ring, UringGuard, WaitArgs};
use crate::submit::submit;
use crate::uringlet;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::Acquire;
use uringlet_abi::register::{REG_WAIT_TS, RegisteredWait};
use uringlet_abi::{GeteventsArg, Timespec, enter as flag, setup};
use uringlet_sys::fd::{EPOLLIN, Epoll, EpollOp, EventFd, NO_EVENT};
use uringlet_sys::lock::futex_wait;
use uringlet_sys::process::{self, is_file_size_limited, monotonic_ns};
use uringlet_sys::ring_memory::RingField;
use uringlet_sys::{Errno, UserPtr, user};

pub(crate) const KNOWN: u32 = flag::GETEVENTS
    | flag::SQ_WAKEUP
    | flag::SQ_WAIT
    | flag::EXT_ARG
    | flag::REGISTERED_RING
    | flag::ABS_TIMER
    | flag::EXT_ARG_REG
    | flag::NO_IOWAIT;
const SIGSET_LEN: usize = 8;
const NEVER: u64 = u64::MAX;
/// The shortest nap, ns: about what the two thread switches of a wake-up cost.
const NAP_NS: u64 = 20_000;

/// The parameters of a wait for CQEs.
#[derive(Clone, Copy, Debug)]
struct CqeWait {
    sigmask: UserPtr,
    sigmask_len: usize,
    deadline_ns: u64,
    /// When the wait began, if it has a minimal length.
    since_ns: u64,
    /// From this time on any CQE ends the wait.
    any_after_ns: u64,
}

/// The arguments of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnterArgs {
    pub(crate) to_submit: u32,
    pub(crate) min_complete: u32,
    pub(crate) flags: u32,
    pub(crate) arg: UserPtr,
    pub(crate) arg_len: usize,
}

/// Whether these flags may be given at all.
#[inline]
pub(crate) fn check_flags(flags: u32) -> Result<(), Errno> {
    if flags & !KNOWN != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// SQEs consumed.
///
/// # Errors
/// Those of io_uring_enter(2).
#[inline(always)]
pub(crate) fn enter(ring: &'static Ring, args: EnterArgs) -> Result<usize, Errno> {
    // Used in place: a guard is slow to move.
    let mut locked = ring.lock(LockOwner::Submitter);
    let guard = locked.as_mut().ok_or(Errno::EBADF)?;
    if guard.is_disabled {
        return Err(Errno::EBADFD);
    }
    let mut submission = Ok(0);
    if guard.res.setup & setup::SQPOLL != 0 {
        let all = guard.res.memory.geometry().sq_entries;
        submission = submit(guard, all).map(|_| args.to_submit);
    } else if args.to_submit > 0 {
        check_issuer(guard)?;
        submission = submit(guard, args.to_submit);
    }
    // A failed submission leaves as any other: the ring may have been closed meanwhile.
    let submitted = submission.unwrap_or(0);
    let result = match submission {
        Err(errno) => Err(errno),
        Ok(_) if args.flags & flag::GETEVENTS != 0 => get_events(guard, args, submitted),
        Ok(_) => {
            // Also for a caller that polls the CQ itself.
            poll_unless_deferred(guard);
            Ok(())
        }
    };
    let action = exit_action(guard);
    if !matches!(action, ExitAction::None)
        && let Some(guard) = locked.take()
    {
        perform(guard, action);
    }
    drop(locked);
    if ring.take_event_for_rings() {
        poll_other_rings(ring);
    }
    match result {
        Err(errno) if submitted == 0 => Err(errno),
        _ => Ok(submitted as usize),
    }
}

/// `SINGLE_ISSUER`: only the first thread that submitted may submit.
#[inline]
fn check_issuer(guard: &mut UringGuard) -> Result<(), Errno> {
    if guard.res.setup & setup::SINGLE_ISSUER == 0 {
        return Ok(());
    }
    let me = process::thread_key();
    match guard.issuer {
        Some(issuer) if issuer != me => Err(Errno::EEXIST),
        Some(_) => Ok(()),
        None => {
            guard.issuer = Some(me);
            Ok(())
        }
    }
}

fn get_events(guard: &mut UringGuard, args: EnterArgs, submitted: u32) -> Result<(), Errno> {
    if guard.res.setup & setup::DEFER_TASKRUN != 0 {
        check_issuer(guard)?;
    }
    if submitted != args.to_submit {
        // An SQE was malformed: the program should see that, and not wait for what was not
        // submitted.
        return Ok(());
    }
    if is_satisfied(guard, args) {
        return Ok(());
    }
    let wait = read_wait(&guard.wait_args, args)?;
    wait_cqes(guard, args.min_complete, wait)
}

/// Whether a wait without an extended argument ends before it begins, with nothing else to be done.
#[inline]
fn is_satisfied(guard: &mut UringGuard, args: EnterArgs) -> bool {
    // A negative number of CQEs has the mask checked.
    if args.flags & flag::EXT_ARG != 0 || args.min_complete.cast_signed().is_negative() || guard.waiters.sleeping > 0 || guard.has_requeued
    {
        return false;
    }
    guard.res.event_pending = false;
    guard.res.run_deferred();
    let wanted = args.min_complete.min(guard.res.memory.geometry().cq_entries).max(1);
    guard.res.cq.ready(&guard.res.memory) >= wanted && !guard.needs_watch()
}

fn read_wait(wait_args: &WaitArgs, args: EnterArgs) -> Result<CqeWait, Errno> {
    let mut wait = CqeWait { sigmask: args.arg, sigmask_len: args.arg_len, deadline_ns: NEVER, since_ns: 0, any_after_ns: NEVER };
    if args.flags & flag::EXT_ARG == 0 {
        return Ok(wait);
    }
    let (ext, timeout) = if args.flags & flag::EXT_ARG_REG != 0 { read_registered(wait_args, args)? } else { read_extended(args)? };
    wait.sigmask = UserPtr::at(ext.sigmask);
    wait.sigmask_len = ext.sigmask_sz as usize;
    if ext.min_wait_usec != 0 {
        wait.since_ns = monotonic_ns();
        wait.any_after_ns = wait.since_ns.saturating_add(u64::from(ext.min_wait_usec) * 1000);
    }
    if let Some(timeout) = timeout {
        wait.deadline_ns = deadline_ns(wait_args, signed_nanoseconds(timeout), args.flags & flag::ABS_TIMER != 0);
    }
    // A minimal wait without a longer time-out is the whole wait.
    if ext.min_wait_usec != 0 && (wait.deadline_ns == NEVER || wait.any_after_ns >= wait.deadline_ns) {
        wait.deadline_ns = wait.any_after_ns;
    }
    Ok(wait)
}

/// When a wait with this time-out ends. As in the kernel a negative one is over at once, and one
/// beyond the clock's end never is.
fn deadline_ns(wait_args: &WaitArgs, timeout_ns: i64, is_absolute: bool) -> u64 {
    let deadline = if is_absolute {
        wait_args.deadline_ns(timeout_ns.max(0).cast_unsigned())
    } else {
        monotonic_ns().saturating_add_signed(timeout_ns)
    };
    if deadline >= i64::MAX.cast_unsigned() { NEVER } else { deadline }
}

/// The arguments of a wait, and its time-out (`IORING_ENTER_EXT_ARG`).
fn read_extended(args: EnterArgs) -> Result<(GeteventsArg, Option<Timespec>), Errno> {
    if args.arg_len != size_of::<GeteventsArg>() {
        return Err(Errno::EINVAL);
    }
    let ext: GeteventsArg = user::read(args.arg)?;
    let timeout = if ext.ts == 0 { None } else { Some(user::read(UserPtr::at(ext.ts))?) };
    Ok((ext, timeout))
}

/// The same from registered memory: `arg` is an offset in it (`IORING_ENTER_EXT_ARG_REG`).
fn read_registered(wait_args: &WaitArgs, args: EnterArgs) -> Result<(GeteventsArg, Option<Timespec>), Errno> {
    if args.arg_len != size_of::<RegisteredWait>() {
        return Err(Errno::EINVAL);
    }
    let wait = wait_args.read(args.arg)?;
    if wait.flags & !REG_WAIT_TS != 0 {
        return Err(Errno::EINVAL);
    }
    let timeout = (wait.flags & REG_WAIT_TS != 0).then_some(wait.ts);
    let ext = GeteventsArg { sigmask: wait.sigmask, sigmask_sz: wait.sigmask_sz, min_wait_usec: wait.min_wait_usec, ts: 0 };
    Ok((ext, timeout))
}

fn wait_cqes(guard: &mut UringGuard, min: u32, wait: CqeWait) -> Result<(), Errno> {
    let result = wait_until_ready(guard, min, wait);
    run_requeued(guard);
    if guard.waiters.sleeping > 0 && !guard.waiters.has_driver {
        // One of the sleepers must drive from now on. A thread that goes back to sleep sends no
        // wake-up: two waiters that cannot be satisfied yet would wake each other for ever.
        guard.res.cq.note_must_wake();
    }
    result
}

/// Checks the signal mask of a wait.
fn check_mask(wait: &CqeWait) -> Result<(), Errno> {
    if wait.sigmask.is_null() {
        return Ok(());
    }
    if wait.sigmask_len != SIGSET_LEN {
        return Err(Errno::EINVAL);
    }
    user::read::<u64>(wait.sigmask).map(drop)
}

/// Waits until `min` CQEs are there, a TIMEOUT fires, a signal comes or the time-out is over.
fn wait_until_ready(guard: &mut UringGuard, min: u32, wait: CqeWait) -> Result<(), Errno> {
    // The kernel's count is signed: for a negative one it checks the mask and does not wait.
    let min = match i32::try_from(min) {
        Ok(_) => min.min(guard.res.memory.geometry().cq_entries),
        Err(_) => {
            check_mask(&wait)?;
            0
        }
    };
    let timeouts_before = guard.timeouts_fired;
    let target = guard.res.memory.word(RingField::CqHead).load(Acquire).wrapping_add(min);
    let mut has_looked = false;
    // The program has entered for its events.
    guard.res.event_pending = false;
    loop {
        guard.res.run_deferred();
        let now = if wait.deadline_ns & wait.any_after_ns == NEVER { 0 } else { monotonic_ns() };
        if guard.res.cq.ready(&guard.res.memory) < min.max(1) || guard.needs_watch() {
            bring_on(guard);
            // The driver's sleep reads the epoll set, which makes a separate look unnecessary.
            let will_sleep = guard.res.cq.ready(&guard.res.memory) < min && now < wait.deadline_ns && may_drive(guard);
            if !has_looked && !will_sleep {
                poll_pending(guard);
            }
        }
        let ready = guard.res.cq.ready(&guard.res.memory);
        if ready >= min || guard.timeouts_fired != timeouts_before {
            return Ok(());
        }
        if ready > 0 && now >= wait.any_after_ns {
            return Ok(());
        }
        let result = match () {
            // The mask is checked only by a call that has to wait.
            () if !wait.sigmask.is_null() && wait.sigmask_len != SIGSET_LEN => Err(Errno::EINVAL),
            () if now >= wait.deadline_ns => Err(check_mask(&wait).err().unwrap_or(Errno::ETIME)),
            () if help(guard, &wait, min - ready) => Ok(()),
            () => {
                has_looked = may_drive(guard);
                sleep(guard, target, now, wait)
            }
        };
        if let Err(errno) = result {
            guard.res.run_deferred();
            // If there are CQEs, they are returned instead of the error.
            return if guard.res.cq.ready(&guard.res.memory) > 0 { Ok(()) } else { Err(errno) };
        }
    }
}

/// The only request in flight is queued for a worker, and this thread waits for it without a
/// time-out: it runs the request itself, sooner than a worker would wake up. Only reads of files:
/// they end by themselves, and raise no signal that a worker would not have delivered.
fn help(guard: &mut UringGuard, wait: &CqeWait, missing: u32) -> bool {
    if wait.deadline_ns != NEVER || wait.any_after_ns != NEVER || !wait.sigmask.is_null() {
        return false;
    }
    if !guard.run_queue.is_empty() {
        // This thread has to wait for all of it anyway.
        return missing >= guard.in_flight && !guard.needs_watch() && !is_file_size_limited() && uringlet::run_queued(guard);
    }
    if guard.in_flight != 1 {
        return false;
    }
    let Some((_, parked)) = guard.parked.iter().next() else { return false };
    let (Stage::Worker { work }, true) = (parked.stage, parked.req.op.is_read()) else { return false };
    let Some(punted) = guard.io_wq.withdraw(work) else { return false };
    guard.unlocked(|| punted.run(&InterruptGuard::new()));
    true
}

/// Whether a thread that sleeps now would be the ring's driver.
fn may_drive(guard: &mut UringGuard) -> bool {
    !guard.is_shared() && !guard.waiters.has_driver && guard.res.poller().is_ok()
}

/// Sleeps until there may be something new: as the ring's driver, or behind it.
fn sleep(guard: &mut UringGuard, target: u32, now: u64, wait: CqeWait) -> Result<(), Errno> {
    let mut until = wait.deadline_ns.min(guard.res.timers.next_deadline().unwrap_or(NEVER));
    if now < wait.any_after_ns {
        until = until.min(wait.any_after_ns);
    }
    // After the minimal wait any CQE ends the wait.
    let target = if wait.any_after_ns <= now { guard.res.cq.tail().wrapping_add(1) } else { target };
    let is_alone = guard.waiters.sleeping == 0;
    let is_sooner = target.wrapping_sub(guard.waiters.wake_tail) as i32 <= 0;
    if is_alone || is_sooner {
        guard.waiters.wake_tail = target;
    }
    uringlet::wake(guard);
    guard.waiters.sleeping += 1;
    let result = if guard.is_shared() {
        sleep_among_others(guard, until)
    } else if !may_drive(guard) {
        sleep_behind_driver(guard, until, wait.sigmask)
    } else if let Some(end) = nap_end(&wait, now) {
        nap(guard, end.min(until), wait.sigmask)
    } else {
        drive(guard, until.max(1), wait.sigmask)
    };
    guard.waiters.sleeping -= 1;
    result
}

/// In a minimal wait, the time until which the driver does not look at its files. Each nap is half
/// as long as the wait so far, so that the number of wake-ups does not depend on the number of
/// events, and the CQE that completes the wait early is seen after one and a half of its time.
fn nap_end(wait: &CqeWait, now: u64) -> Option<u64> {
    let length = now.saturating_sub(wait.since_ns) / 2;
    (now < wait.any_after_ns && wait.any_after_ns != NEVER && length >= NAP_NS).then_some(now + length)
}

/// A ring that processes share has no driver: the next CQE may come from any of them. The watcher
/// looks after what is armed here.
fn sleep_among_others(guard: &mut UringGuard, until: u64) -> Result<(), Errno> {
    let event_seq = guard.res.memory.biased_lock().event_seq();
    let notify = if guard.needs_watch() { hand_over(guard) } else { WatcherNotify::Nothing };
    let slept = guard.unlocked(|| {
        notify.deliver();
        event_seq.wait(until)
    });
    if slept == Err(Errno::EINTR) { slept } else { Ok(()) }
}

/// Another thread drives the ring.
fn sleep_behind_driver(guard: &mut UringGuard, until: u64, sigmask: UserPtr) -> Result<(), Errno> {
    if !sigmask.is_null() {
        return sleep_masked(guard, until, sigmask);
    }
    let ring = guard.ring;
    let seen = ring.cq_wait_seq.load(Acquire);
    match guard.unlocked(|| futex_wait(&ring.cq_wait_seq, seen, until)) {
        Err(Errno::EINTR) => Err(Errno::EINTR),
        _ => Ok(()),
    }
}

/// The same with a signal mask: only a wait for a descriptor changes the mask and sleeps in one
/// step.
fn sleep_masked(guard: &mut UringGuard, until: u64, sigmask: UserPtr) -> Result<(), Errno> {
    let (wakeup, epoll) = (Arc::new(EventFd::new()?), Epoll::new()?);
    epoll.ctl(EpollOp::Add, wakeup.number(), EPOLLIN, 0)?;
    guard.waiters.masked.push(Arc::clone(&wakeup));
    let slept = guard.unlocked(|| epoll.wait(&mut [NO_EVENT], until.max(1), sigmask));
    guard.waiters.masked.retain(|other| !Arc::ptr_eq(other, &wakeup));
    slept.map(drop)
}
