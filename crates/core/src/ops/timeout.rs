//! `IORING_OP_TIMEOUT, TIMEOUT_REMOVE, LINK_TIMEOUT`.
//! Source:  io_uring_prep_timeout(3); behaviour of Linux 6.18 io_uring/timeout.c (not its code);
//!          of 7.1 for `IORING_TIMEOUT_IMMEDIATE_ARG`.
//! Issue:   armed with the ring's timers; operates on other requests: submit/timeout.rs. Units:
//!          timespecs; off = CQEs to count.
//! Errors:  EINVAL bad fields, flags or times; EFAULT; results ETIME, ECANCELED; for REMOVE also
//!          ENOENT, EALREADY, EBUSY.
//! Tests:   liburing timeout*.t, link-timeout.t; ours cli/tests/newer_ops.rs, corners.rs.

use super::issue::{OpFamily, PrepCx, unused};
use uringlet_abi::{Sqe, Timespec, op_flags};
use uringlet_sys::process::{ClockId, monotonic_ns, now_ns};
use uringlet_sys::{Errno, UserPtr, user};

/// The flags that say how a time is given.
const ANY_TIME: u32 = op_flags::TIMEOUT_ABS | op_flags::TIMEOUT_CLOCK_MASK | op_flags::TIMEOUT_IMMEDIATE_ARG;

/// A validated request of this family.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimeoutOp {
    /// TIMEOUT.
    Add {
        when: TimeoutSpec,
        /// Completes after so many CQEs, if not 0.
        count: u32,
        is_multishot: bool,
        /// Expiry does not break a link.
        etime_is_success: bool,
    },
    /// LINK_TIMEOUT: guards the request before it.
    Link { when: TimeoutSpec },
    /// TIMEOUT_REMOVE without an update.
    Remove { target: u64 },
    /// TIMEOUT_REMOVE with a new time.
    Update { target: u64, when: TimeoutSpec, is_link: bool },
}

impl OpFamily for TimeoutOp {}

impl TimeoutOp {
    /// The time of a timer.
    pub(crate) fn when(&mut self) -> Option<&mut TimeoutSpec> {
        match self {
            Self::Add { when, .. } | Self::Link { when } => Some(when),
            Self::Remove { .. } | Self::Update { .. } => None,
        }
    }
}

/// A time as the program gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeoutSpec {
    ns: u64,
    is_absolute: bool,
    clock: ClockId,
}

impl TimeoutSpec {
    /// `arg`: the address of a timespec, or nanoseconds (`TIMEOUT_IMMEDIATE_ARG`).
    fn read(arg: u64, flags: u32) -> Result<Self, Errno> {
        // Before the time is read, as in the kernel: EINVAL goes before EFAULT.
        let clock = match flags & op_flags::TIMEOUT_CLOCK_MASK {
            0 => ClockId::Monotonic,
            op_flags::TIMEOUT_BOOTTIME => ClockId::Boottime,
            op_flags::TIMEOUT_REALTIME => ClockId::Realtime,
            _ => return Err(Errno::EINVAL),
        };
        let ns = if flags & op_flags::TIMEOUT_IMMEDIATE_ARG == 0 {
            nanoseconds(user::read(UserPtr::at(arg))?)?
        } else if arg <= i64::MAX as u64 {
            arg
        } else {
            return Err(Errno::EINVAL);
        };
        Ok(Self { ns, is_absolute: flags & op_flags::TIMEOUT_ABS != 0, clock })
    }

    /// The deadline on `CLOCK_MONOTONIC`, ns, for a timer that is armed now.
    pub(crate) fn deadline_ns(self) -> u64 {
        let now = monotonic_ns();
        match (self.is_absolute, self.clock) {
            (false, _) => now.saturating_add(self.ns),
            (true, ClockId::Monotonic) => self.ns,
            (true, clock) => now.saturating_add(self.ns.saturating_sub(now_ns(clock))),
        }
    }

    /// The absolute time of a timer with this deadline, ns, and the flags of its clock.
    pub(crate) fn absolute(self, deadline_ns: u64) -> (u64, u32) {
        let clock = match self.clock {
            _ if !self.follows_clock() => return (deadline_ns.min(i64::MAX as u64), op_flags::TIMEOUT_ABS),
            ClockId::Boottime => op_flags::TIMEOUT_BOOTTIME,
            _ => op_flags::TIMEOUT_REALTIME,
        };
        (self.ns, op_flags::TIMEOUT_ABS | clock)
    }

    /// The time that [`absolute`](Self::absolute) has told.
    pub(crate) fn at(ns: u64, flags: u32) -> Option<Self> {
        Self::read(ns, flags | op_flags::TIMEOUT_IMMEDIATE_ARG).ok()
    }

    /// Whether a timer that is started and stopped at once has expired in between.
    pub(crate) fn expires_at_once(self) -> bool {
        /// What passes in between.
        const STEP_NS: u64 = 1_000;
        if self.is_absolute { self.deadline_ns() <= monotonic_ns() } else { self.ns < STEP_NS }
    }

    /// Whether a step of its clock moves the deadline.
    pub(crate) fn follows_clock(self) -> bool {
        self.is_absolute && self.clock != ClockId::Monotonic
    }

    /// The length of one period, ns.
    pub(crate) fn period_ns(self) -> u64 {
        self.ns
    }
}

/// A timespec in nanoseconds.
pub(crate) fn nanoseconds(ts: Timespec) -> Result<u64, Errno> {
    if ts.tv_sec < 0 || ts.tv_nsec < 0 { Err(Errno::EINVAL) } else { Ok(signed_nanoseconds(ts).cast_unsigned()) }
}

/// A timespec that may be negative, in nanoseconds.
pub(crate) fn signed_nanoseconds(ts: Timespec) -> i64 {
    ts.tv_sec.saturating_mul(1_000_000_000).saturating_add(ts.tv_nsec)
}

pub(crate) fn prep(sqe: &Sqe, _: &PrepCx) -> Result<TimeoutOp, Errno> {
    const KNOWN: u32 = ANY_TIME | op_flags::TIMEOUT_ETIME_SUCCESS | op_flags::TIMEOUT_MULTISHOT;
    let flags = sqe.op_flags;
    unused(&[u64::from(sqe.buf_index), u64::from(sqe.splice_fd_in as u32), sqe.addr3, sqe.pad2])?;
    if sqe.len != 1 || flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let is_multishot = flags & op_flags::TIMEOUT_MULTISHOT != 0;
    if is_multishot && flags & op_flags::TIMEOUT_ABS != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(TimeoutOp::Add {
        when: TimeoutSpec::read(sqe.addr, flags)?,
        count: sqe.off as u32,
        is_multishot,
        etime_is_success: flags & op_flags::TIMEOUT_ETIME_SUCCESS != 0,
    })
}

pub(crate) fn prep_link(sqe: &Sqe, cx: &PrepCx) -> Result<TimeoutOp, Errno> {
    const KNOWN: u32 = ANY_TIME | op_flags::TIMEOUT_ETIME_SUCCESS;
    unused(&[u64::from(sqe.buf_index), u64::from(sqe.splice_fd_in as u32), sqe.off, sqe.addr3, sqe.pad2])?;
    if sqe.len != 1 || sqe.op_flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let when = TimeoutSpec::read(sqe.addr, sqe.op_flags)?;
    if !cx.is_after_link {
        return Err(Errno::EINVAL);
    }
    Ok(TimeoutOp::Link { when })
}

pub(crate) fn prep_remove(sqe: &Sqe, _: &PrepCx) -> Result<TimeoutOp, Errno> {
    const UPDATES: u32 = op_flags::TIMEOUT_UPDATE_MASK | ANY_TIME;
    let flags = sqe.op_flags;
    unused(&[u64::from(sqe.buf_index), u64::from(sqe.splice_fd_in as u32), sqe.addr3, sqe.pad2])?;
    if sqe.len != 0 || sqe.flags & (uringlet_abi::sqe::FIXED_FILE | uringlet_abi::sqe::BUFFER_SELECT) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & op_flags::TIMEOUT_UPDATE_MASK == 0 {
        return if flags == 0 { Ok(TimeoutOp::Remove { target: sqe.addr }) } else { Err(Errno::EINVAL) };
    }
    if flags & !UPDATES != 0 {
        return Err(Errno::EINVAL);
    }
    let when = TimeoutSpec::read(sqe.addr2(), flags)?;
    if flags & op_flags::TIMEOUT_UPDATE == 0 {
        // LINK_TIMEOUT_UPDATE without TIMEOUT_UPDATE updates nothing.
        return Ok(TimeoutOp::Remove { target: sqe.addr });
    }
    let is_link = flags & op_flags::LINK_TIMEOUT_UPDATE != 0;
    Ok(TimeoutOp::Update { target: sqe.addr, when, is_link })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_times_are_invalid_and_huge_ones_saturate() {
        assert_eq!(nanoseconds(Timespec { tv_sec: -1, tv_nsec: 0 }), Err(Errno::EINVAL));
        assert_eq!(nanoseconds(Timespec { tv_sec: 0, tv_nsec: -1 }), Err(Errno::EINVAL));
        assert_eq!(nanoseconds(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }), Ok(i64::MAX as u64));
        assert_eq!(nanoseconds(Timespec { tv_sec: 1, tv_nsec: 5 }), Ok(1_000_000_005));
    }
}
