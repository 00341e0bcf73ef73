//! How fast this process may make dirty pages: a pure calculation on readings and times.
//!
//! Source: Linux 6.18's documented behaviour of dirty throttling (balance_dirty_pages), not its
//! code.
//!
//! ```text
//!        background        ceiling              setpoint              edge   limit
//!   -----------|--------------|--------------------|--------------------|------|-----> dirty pages
//!              kernel writes  |   2 x              1 x                0 x   of the fair rate
//!   free ------ in the -------> throttled
//!              background
//! ```
//!
//! The rate between ceiling and edge is `fair * (1 + x^3)`, x running from 1 to -1: flat in the
//! middle, steep at the ends. The edge is an eighth below the limit: at any number of dirty pages
//! this process is slower than the kernel would make it, so a write that is issued in time does not
//! sleep there.
//!
//! `fair` is this process' part of the disks' bandwidth. The bandwidth is measured (pages written
//! out while the disks had work). If more is dirtied than written, all writers are slowed by the
//! same factor.

use uringlet_sys::vmstat::{Domain, Readings};

/// A reading is used for at least this long.
pub(super) const READING_NS: u64 = 50_000_000;
/// The least rate, bytes a second, however near the limits: 256 KiB in the kernel's longest pause
/// of 200 ms. A writer that passes the limits nevertheless sleeps in the kernel.
pub(super) const RATE_MIN: u64 = 5 * (256 << 10);

/// The largest budget.
const BUDGET_MAX: u64 = 64 << 20;
/// A budget is the room divided by this.
const BUDGET_PART: u64 = 8;
/// The longest time that a budget is valid; and the time between two attempts to read without
/// success.
const FREE_NS: u64 = 1_000_000_000;
const BLIND_NS: u64 = 60_000_000_000;
/// Bytes a second that other processes may dirty: gives the time that the room lasts.
const OTHERS_RATE: u64 = 2 << 30;
/// Shorter pauses are accumulated: a timer costs more than they are worth.
const SLACK_NS: u64 = 2_000_000;
/// The bandwidth before anything is measured.
const BANDWIDTH_START: u64 = 100 << 20;
/// The time of one measurement of the bandwidth, and the time in which a new value replaces the
/// old.
const SAMPLE_NS: u64 = 200_000_000;
const SETTLE_NS: u64 = 1_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// 1 in fixed point.
const ONE: i64 = 1 << 10;

/// A write that must wait for its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Throttled {
    /// `CLOCK_MONOTONIC`.
    pub(crate) deadline_ns: u64,
    /// Delay this write adds to every later one, ns.
    pub(crate) cost_ns: u64,
}

/// When a buffered write may be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetReply {
    /// Now, and so may further writes until `until_ns`, `bytes` in all, without another request.
    Free {
        /// At least what was requested.
        bytes: u64,
        /// `CLOCK_MONOTONIC`; the time of the request: for this request only.
        until_ns: u64,
    },
    /// Near the limits: at its deadline. It is paid for: no second request.
    Throttled(Throttled),
}

/// See the module.
#[derive(Debug)]
pub(super) struct DirtyRate {
    seen: LastReading,
    /// Granted since the reading, and so dirty soon.
    granted_bytes: u64,
    /// Where the measurement of rates began.
    since: Option<RateSample>,
    is_measured: bool,
    /// The disks' bandwidth, bytes a second.
    bandwidth: u64,
    /// This process' part of it.
    fair: u64,
    /// When all requests so far are paid.
    paid_at_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum LastReading {
    /// Nothing yet.
    Never,
    /// There was nothing to read.
    Blind { at_ns: u64 },
    /// A reading.
    At { at_ns: u64, readings: Readings },
}

#[derive(Clone, Copy, Debug)]
struct RateSample {
    at_ns: u64,
    dirtied_bytes: u64,
    written_bytes: u64,
}

impl DirtyRate {
    pub(super) const fn new() -> Self {
        Self {
            seen: LastReading::Never,
            granted_bytes: 0,
            since: None,
            is_measured: false,
            bandwidth: BANDWIDTH_START,
            fair: BANDWIDTH_START,
            paid_at_ns: 0,
        }
    }

    /// Whether the last reading is too old.
    pub(super) fn wants_reading(&self, now_ns: u64) -> bool {
        match self.seen {
            LastReading::Never => true,
            LastReading::Blind { at_ns } => now_ns.saturating_sub(at_ns) >= BLIND_NS,
            LastReading::At { at_ns, .. } => now_ns.saturating_sub(at_ns) >= READING_NS,
        }
    }

    /// A new reading; `None`: there is nothing to read.
    pub(super) fn learn(&mut self, now_ns: u64, readings: Option<Readings>) {
        let Some(readings) = readings else {
            *self = Self { seen: LastReading::Blind { at_ns: now_ns }, ..Self::new() };
            return;
        };
        self.measure(now_ns, readings);
        self.granted_bytes = 0;
        self.seen = LastReading::At { at_ns: now_ns, readings };
    }

    /// Measures the bandwidth while the disks are busy, and compares it with the rate of dirtying.
    fn measure(&mut self, now_ns: u64, readings: Readings) {
        let mark = RateSample { at_ns: now_ns, dirtied_bytes: readings.dirtied_bytes, written_bytes: readings.written_bytes };
        let Some(since) = self.since.filter(|_| has_work(&readings)) else {
            self.since = has_work(&readings).then_some(mark);
            self.fair = self.bandwidth;
            return;
        };
        let elapsed_ns = now_ns.saturating_sub(since.at_ns);
        if elapsed_ns < SAMPLE_NS {
            return;
        }
        let written = per_second(readings.written_bytes.saturating_sub(since.written_bytes), elapsed_ns);
        let dirtied = per_second(readings.dirtied_bytes.saturating_sub(since.dirtied_bytes), elapsed_ns);
        let allowed = self.rate(&readings);
        self.since = Some(mark);
        self.settle(written, elapsed_ns);
        self.share(allowed, dirtied, room(&readings, 0) == 0);
    }

    fn settle(&mut self, written: u64, elapsed_ns: u64) {
        let weight = if self.is_measured { elapsed_ns.min(SETTLE_NS) } else { SETTLE_NS };
        self.is_measured |= written > 0;
        self.bandwidth = mix(self.bandwidth, written, weight).max(RATE_MIN);
    }

    /// This process was allowed `allowed`, and all processes dirtied `dirtied`: its part of the
    /// bandwidth.
    fn share(&mut self, allowed: u64, dirtied: u64, is_throttled: bool) {
        if !is_throttled || dirtied == 0 {
            self.fair = self.bandwidth;
            return;
        }
        let balanced = u128::from(allowed) * u128::from(self.bandwidth) / u128::from(dirtied);
        let balanced = u64::try_from(balanced).unwrap_or(u64::MAX).min(self.bandwidth);
        self.fair = (self.fair.midpoint(balanced)).clamp(RATE_MIN, self.bandwidth);
    }

    /// When `bytes` may be written.
    pub(super) fn request(&mut self, now_ns: u64, bytes: u64) -> BudgetReply {
        let (at_ns, readings) = match self.seen {
            LastReading::Never => return BudgetReply::Free { bytes, until_ns: now_ns },
            LastReading::Blind { at_ns } => return BudgetReply::Free { bytes: u64::MAX, until_ns: at_ns.saturating_add(BLIND_NS) },
            LastReading::At { at_ns, readings } => (at_ns, readings),
        };
        let room = room(&readings, self.granted_bytes.max(self.debt_bytes(now_ns, &readings)));
        if bytes >= room {
            return self.schedule(now_ns, bytes, &readings);
        }
        let budget = (room / BUDGET_PART).min(BUDGET_MAX).max(bytes);
        self.granted_bytes += budget;
        let lasts_ns = (u128::from(room) * u128::from(SECOND_NS) / u128::from(OTHERS_RATE)) as u64;
        // The reading is old if another thread makes the next one now: then for this request only.
        let until_ns = at_ns.saturating_add(lasts_ns.clamp(READING_NS, FREE_NS)).max(now_ns);
        BudgetReply::Free { bytes: budget, until_ns }
    }

    fn schedule(&mut self, now_ns: u64, bytes: u64, readings: &Readings) -> BudgetReply {
        let deadline_ns = self.paid_at_ns.max(now_ns);
        let cost_ns = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(self.rate(readings));
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        self.paid_at_ns = deadline_ns.saturating_add(cost_ns);
        self.granted_bytes = self.granted_bytes.saturating_add(bytes);
        if deadline_ns <= now_ns + SLACK_NS {
            BudgetReply::Free { bytes, until_ns: now_ns }
        } else {
            BudgetReply::Throttled(Throttled { deadline_ns, cost_ns })
        }
    }

    /// A throttled write was cancelled.
    pub(super) fn refund(&mut self, cost_ns: u64) {
        self.paid_at_ns = self.paid_at_ns.saturating_sub(cost_ns);
    }

    /// Bytes that wait for their deadlines: they count as dirty for later requests.
    fn debt_bytes(&self, now_ns: u64, readings: &Readings) -> u64 {
        let ahead_ns = self.paid_at_ns.saturating_sub(now_ns);
        let debt = u128::from(ahead_ns) * u128::from(self.rate(readings)) / u128::from(SECOND_NS);
        u64::try_from(debt).unwrap_or(u64::MAX)
    }

    /// The rate of this process, bytes a second.
    fn rate(&self, readings: &Readings) -> u64 {
        let ratio = domains(readings).map(ratio).min().unwrap_or(ONE);
        let rate = u128::from(self.fair) * ratio as u128 / ONE as u128;
        u64::try_from(rate).unwrap_or(u64::MAX).max(RATE_MIN)
    }
}

fn domains(readings: &Readings) -> impl Iterator<Item = Domain> {
    core::iter::once(readings.machine).chain(readings.cgroup)
}

/// Whether some domain is written out in the background: then the disks are fully busy.
fn has_work(readings: &Readings) -> bool {
    domains(readings).any(|domain| domain.dirty_bytes > domain.background_bytes)
}

/// Bytes until the nearest ceiling.
fn room(readings: &Readings, granted_bytes: u64) -> u64 {
    domains(readings).map(|domain| ceiling(domain).saturating_sub(domain.dirty_bytes)).min().unwrap_or(0).saturating_sub(granted_bytes)
}

fn ceiling(domain: Domain) -> u64 {
    domain.background_bytes.midpoint(domain.limit_bytes)
}

/// The factor on the fair rate that keeps dirty pages near the setpoint: 2 at the ceiling, 0 from
/// the edge on.
pub(super) fn ratio(domain: Domain) -> i64 {
    let ceiling = ceiling(domain);
    let edge = ceiling + domain.limit_bytes.saturating_sub(ceiling) / 8 * 7;
    let half = (edge.saturating_sub(ceiling) / 2).max(1);
    let off = i128::from(ceiling + half) - i128::from(domain.dirty_bytes);
    let x = off * i128::from(ONE) / i128::from(half);
    let x = x.clamp(i128::from(-ONE), i128::from(ONE)) as i64;
    ONE + x * x / ONE * x / ONE
}

fn per_second(bytes: u64, elapsed_ns: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(SECOND_NS) / u128::from(elapsed_ns.max(1))).unwrap_or(u64::MAX)
}

/// `old` with `weight_ns` of [`SETTLE_NS`] parts of `new`.
fn mix(old: u64, new: u64, weight_ns: u64) -> u64 {
    let (old_part, new_part) = (u128::from(old) * u128::from(SETTLE_NS - weight_ns), u128::from(new) * u128::from(weight_ns));
    ((old_part + new_part) / u128::from(SETTLE_NS)) as u64
}
