//! A ring's part of the throttle: what it may write without a request, and the writes that wait for
//! their deadlines.

use super::dirty_rate::{BudgetReply, Throttled};
use super::process::THROTTLE;
use alloc::collections::{BTreeMap, btree_map::Entry};
use uringlet_sys::stats::{self, Counter};
use uringlet_sys::{clock, process};

/// Bytes that a ring may write before it must ask for more.
#[derive(Clone, Copy, Debug, Default)]
struct DirtyBudget {
    bytes: u64,
    until_ticks: u64,
}

impl DirtyBudget {
    #[inline(always)]
    fn covers(self, now_ticks: u64, bytes: u64) -> bool {
        bytes <= self.bytes && now_ticks < self.until_ticks
    }

    #[inline(always)]
    fn charge(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// As [`covers`](Self::covers); asks the process for a new budget if this one is used up.
    #[cold]
    fn request(&mut self, bytes: u64) -> Result<(), Throttled> {
        let now_ticks = clock::ticks();
        if self.covers(now_ticks, bytes) {
            return Ok(());
        }
        let now_ns = process::monotonic_ns();
        match THROTTLE.request(now_ns, bytes) {
            BudgetReply::Free { bytes, until_ns } => {
                // A tick is no longer than a nanosecond: the ring asks again sooner than it must.
                *self = Self { bytes, until_ticks: now_ticks.saturating_add(until_ns.saturating_sub(now_ns)) };
                Ok(())
            }
            BudgetReply::Throttled(throttled) => Err(throttled),
        }
    }
}

/// The throttled writes of a ring, by file.
#[derive(Debug, Default)]
struct ThrottledWrites {
    /// How many, by descriptor number and deadline.
    writes: BTreeMap<(i32, u64), u32>,
}

impl ThrottledWrites {
    fn add(&mut self, fd: i32, throttled: Throttled) {
        *self.writes.entry((fd, throttled.deadline_ns)).or_default() += 1;
    }

    fn remove(&mut self, fd: i32, throttled: Throttled) {
        if let Entry::Occupied(mut entry) = self.writes.entry((fd, throttled.deadline_ns)) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    /// The deadline of the last throttled write to this number's file.
    fn last_deadline_ns(&self, fd: i32) -> Option<u64> {
        self.writes.range((fd, 0)..=(fd, u64::MAX)).next_back().map(|(&(_, deadline_ns), _)| deadline_ns)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RingThrottle {
    budget: DirtyBudget,
    writes: ThrottledWrites,
}

impl RingThrottle {
    /// Whether the ring may write `bytes` at `now_ticks` without a request.
    #[inline(always)]
    pub(crate) fn covers(&self, now_ticks: u64, bytes: u64) -> bool {
        self.budget.covers(now_ticks, bytes)
    }

    /// `bytes` were written.
    #[inline(always)]
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.budget.charge(bytes);
    }

    /// Whether `bytes` may be written now.
    ///
    /// # Errors
    /// Too many pages are dirty: wait until the deadline.
    pub(crate) fn request(&mut self, bytes: u64) -> Result<(), Throttled> {
        self.budget.request(bytes)
    }

    /// The reply to a request for this number's file: a write must not overtake throttled writes of
    /// the same file.
    ///
    /// # Errors
    /// Wait until the deadline.
    pub(crate) fn in_order(&self, fd: i32, reply: Result<(), Throttled>) -> Result<(), Throttled> {
        match (reply, self.writes.last_deadline_ns(fd)) {
            (reply, None) => reply,
            (Ok(()), Some(deadline_ns)) => Err(Throttled { deadline_ns, cost_ns: 0 }),
            (Err(throttled), Some(before_ns)) => Err(Throttled { deadline_ns: throttled.deadline_ns.max(before_ns), ..throttled }),
        }
    }

    /// A write to this number's file is parked until its deadline.
    #[cold]
    pub(crate) fn add(&mut self, fd: i32, throttled: Throttled) {
        self.writes.add(fd, throttled);
    }

    /// A write that was [added](Self::add) is parked no longer.
    #[cold]
    pub(crate) fn remove(&mut self, fd: i32, throttled: Throttled) {
        self.writes.remove(fd, throttled);
    }

    /// In a forked child: the throttled writes are the parent's.
    pub(crate) fn forget_writes(&mut self) {
        self.writes = ThrottledWrites::default();
    }
}

/// Counts a write that is parked until its deadline, of the ring of this index.
pub(crate) fn note_throttled(ring_index: u32) {
    stats::bump(ring_index, Counter::Throttled);
    stats::bump(ring_index, Counter::ThrottledNow);
    stats::raise(ring_index, Counter::ThrottledMax, stats::value(ring_index, Counter::ThrottledNow));
}

/// The write is parked no longer. One that ends before its deadline was cancelled: later writes
/// need not wait for its bytes.
pub(crate) fn note_unthrottled(ring_index: u32, throttled: Throttled, since_ns: u64) {
    let now_ns = process::monotonic_ns();
    stats::sub(ring_index, Counter::ThrottledNow, 1);
    stats::add(ring_index, Counter::ThrottledNs, now_ns.saturating_sub(since_ns));
    if now_ns < throttled.deadline_ns {
        THROTTLE.refund(throttled.cost_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_deadline_of_a_file_is_known_until_its_write_goes() {
        let throttled = |deadline_ns| Throttled { deadline_ns, cost_ns: 0 };
        let mut writes = ThrottledWrites::default();
        for (fd, deadline_ns) in [(3, 20), (3, 30), (3, 30), (4, 50)] {
            writes.add(fd, throttled(deadline_ns));
        }
        assert_eq!(writes.last_deadline_ns(3), Some(30));
        writes.remove(3, throttled(30));
        assert_eq!(writes.last_deadline_ns(3), Some(30), "there were two");
        writes.remove(3, throttled(30));
        assert_eq!(writes.last_deadline_ns(3), Some(20));
        writes.remove(3, throttled(20));
        assert_eq!(writes.last_deadline_ns(3), None);
        assert_eq!(writes.last_deadline_ns(4), Some(50));
    }
}
