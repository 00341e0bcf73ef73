//! Requests that wait: armed, removed and cancelled while thousands of others are.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{read, write};
use rustix::pipe::pipe;
use uringlet_abi::{Opcode, Sqe, Timespec, sqe};

use crate::sys::liburing::LibRing;
use crate::timing::{Metrics, throughput};

const ENTRIES: u32 = 256;
/// Requests that are armed, and removed again, together.
const BATCH: u64 = 64;
const POLLIN: u32 = 1;
/// Files that are polled.
const FILES: usize = 100;
/// The user_data of the requests that remove others.
const REMOVAL: u64 = u64::MAX;
const MINUTES: i64 = 3600;

fn index(user_data: u64) -> usize {
    usize::try_from(user_data).unwrap_or(0)
}

/// The time of one operation beside `armed` requests, ns.
pub(crate) fn measure(via: &str, op: &str, armed: u32, time: Duration) -> anyhow::Result<Metrics> {
    match (via, op) {
        ("ring", "insert" | "remove") => timeouts(op == "remove", armed.into(), time),
        ("ring", "cancel") => polls(armed.into(), time),
        ("ring" | "calls", "link-timeout") => linked_timeout(via == "ring", time),
        _ => bail!("there is no operation `{op}` by `{via}`"),
    }
}

/// Submits what was prepared, and waits for so many CQEs. Each result has to be one of `allowed`.
fn complete(ring: &mut LibRing, submitted: u64, cqes: u64, allowed: &[i32]) -> anyhow::Result<()> {
    let (mut submitted, mut seen, mut wrong) = (i64::try_from(submitted)?, 0, None);
    while seen < cqes || submitted > 0 {
        let n = ring.submit_and_wait(u32::try_from(cqes - seen)?);
        ensure!(n >= 0, "submitting failed: {}", std::io::Error::from_raw_os_error(-n));
        submitted -= i64::from(n);
        seen += u64::from(ring.for_each_cqe(|_, res| wrong = wrong.or((!allowed.contains(&res)).then_some(res))));
    }
    ensure!(seen == cqes && wrong.is_none(), "{seen} CQEs instead of {cqes}, a result of {wrong:?}");
    Ok(())
}

/// Arms requests with these user_data in batches.
fn arm(ring: &mut LibRing, all: std::ops::Range<u64>, mut sqe: impl FnMut(u64) -> Sqe) -> anyhow::Result<()> {
    let mut next = all.start;
    while next < all.end {
        let until = all.end.min(next + BATCH);
        (next..until).for_each(|user_data| *ring.get_sqe() = sqe(user_data));
        complete(ring, until - next, 0, &[])?;
        next = until;
    }
    Ok(())
}

/// The median over batches of the time of one of two steps, a request, ns.
fn alternate(
    ring: &mut LibRing,
    time: Duration,
    is_second: bool,
    first: impl Fn(&mut LibRing, u64) -> anyhow::Result<()>,
    second: impl Fn(&mut LibRing, u64) -> anyhow::Result<()>,
) -> anyhow::Result<Metrics> {
    let (started, mut times) = (Instant::now(), Vec::new());
    for round in 0.. {
        let begun = Instant::now();
        first(ring, round)?;
        let between = Instant::now();
        second(ring, round)?;
        let taken = if is_second { between.elapsed() } else { between - begun };
        times.push(taken.as_secs_f64() * 1e9 / BATCH as f64);
        if started.elapsed() >= time {
            break;
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(Metrics::value(times[times.len() / 2]))
}

/// TIMEOUT and TIMEOUT_REMOVE. Those that are inserted and removed end among the others.
fn timeouts(is_remove: bool, armed: u64, time: Duration) -> anyhow::Result<Metrics> {
    let after = |n: u64| Timespec { tv_sec: MINUTES + i64::try_from(n).unwrap_or(0), tv_nsec: 500_000_000 };
    let times: Vec<Timespec> = (0..armed).map(|n| after(n * 7919 % armed)).collect();
    let timeout = |times: &Timespec, user_data| {
        let addr = std::ptr::from_ref(times) as u64;
        Sqe { opcode: Opcode::Timeout as u8, fd: -1, addr, len: 1, user_data, ..Sqe::default() }
    };
    let mut ring = LibRing::new(ENTRIES)?;
    arm(&mut ring, 0..armed, |user_data| timeout(&times[index(user_data)], user_data))?;
    let between = |round: u64, n: u64| Timespec { tv_nsec: 0, ..after((round * BATCH + n) * 104_729 % armed) };
    let insert = |ring: &mut LibRing, round: u64| {
        let times: Vec<Timespec> = (0..BATCH).map(|n| between(round, n)).collect();
        times.iter().zip(armed..).for_each(|(times, user_data)| *ring.get_sqe() = timeout(times, user_data));
        complete(ring, BATCH, 0, &[])
    };
    let remove = |ring: &mut LibRing, _| {
        for addr in armed..armed + BATCH {
            *ring.get_sqe() = Sqe { opcode: Opcode::TimeoutRemove as u8, fd: -1, addr, user_data: REMOVAL, ..Sqe::default() };
        }
        complete(ring, BATCH, 2 * BATCH, &[0, -libc::ECANCELED])
    };
    alternate(&mut ring, time, is_remove, insert, remove)
}

/// ASYNC_CANCEL by user_data. What is cancelled is armed again.
fn polls(armed: u64, time: Duration) -> anyhow::Result<Metrics> {
    let files = (0..FILES).map(|_| eventfd(0, EventfdFlags::NONBLOCK)).collect::<Result<Vec<OwnedFd>, _>>()?;
    let poll = |user_data: u64| {
        let fd = files[index(user_data) % FILES].as_raw_fd();
        Sqe { opcode: Opcode::PollAdd as u8, fd, op_flags: POLLIN, user_data, ..Sqe::default() }
    };
    let mut ring = LibRing::new(ENTRIES)?;
    arm(&mut ring, 0..armed, poll)?;
    let victim = |round: u64, n: u64| (round * BATCH + n) * 7919 % armed;
    let cancel = |ring: &mut LibRing, round: u64| {
        for addr in (0..BATCH).map(|n| victim(round, n)) {
            *ring.get_sqe() = Sqe { opcode: Opcode::AsyncCancel as u8, fd: -1, addr, user_data: REMOVAL, ..Sqe::default() };
        }
        complete(ring, BATCH, 2 * BATCH, &[0, -libc::ECANCELED])
    };
    let again = |ring: &mut LibRing, round: u64| {
        (0..BATCH).for_each(|n| *ring.get_sqe() = poll(victim(round, n)));
        complete(ring, BATCH, 0, &[])
    };
    alternate(&mut ring, time, false, cancel, again)
}

/// A read of a pipe that has a byte, with a LINK_TIMEOUT; or write(2) and read(2).
fn linked_timeout(is_ring: bool, time: Duration) -> anyhow::Result<Metrics> {
    let (from, to) = pipe()?;
    let mut ring = if is_ring { Some(LibRing::new(ENTRIES)?) } else { None };
    let (limit, mut byte) = (Timespec { tv_sec: MINUTES, tv_nsec: 0 }, [0_u8]);
    let reads = throughput(time, || {
        for _ in 0..BATCH {
            write(&to, &[0])?;
            let Some(ring) = &mut ring else {
                read(&from, &mut byte)?;
                continue;
            };
            ring.prep_read(from.as_raw_fd(), &mut byte, u64::MAX, 0);
            ring.last_sqe().flags = sqe::IO_LINK;
            let addr = (&raw const limit) as u64;
            *ring.get_sqe() = Sqe { opcode: Opcode::LinkTimeout as u8, fd: -1, addr, len: 1, ..Sqe::default() };
            complete(ring, 2, 2, &[1, -libc::ECANCELED])?;
        }
        Ok(BATCH)
    })?;
    Ok(Metrics::value(1e9 / reads.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_timed_and_unknown_operations_refused() {
        let time = Duration::from_millis(2);
        assert!(measure("calls", "link-timeout", 0, time).unwrap().into_json()["value"].as_f64().unwrap() > 0.0);
        assert!(measure("calls", "insert", 10, time).is_err() && measure("ring", "sing", 10, time).is_err());
    }
}
