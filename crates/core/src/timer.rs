//! Deadlines of a ring, and timeouts that count completions.

use crate::req_id::ReqId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The timers of a ring.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_deadline: BTreeMap<(u64, u64), ReqId>,
    next_seq: u64,
    /// TIMEOUTs that complete when `posted` has come to this number.
    counting: Vec<(u64, ReqId)>,
    /// CQEs posted while a TIMEOUT counts them.
    posted: u64,
    /// The next CQE is not counted.
    skips_next: bool,
}

impl Timers {
    /// A number that tells equal deadlines apart, in order of arming.
    pub(crate) fn next_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    /// Arms a deadline (`CLOCK_MONOTONIC`, ns).
    pub(crate) fn arm(&mut self, deadline_ns: u64, seq: u64, id: ReqId) {
        self.by_deadline.insert((deadline_ns, seq), id);
    }

    pub(crate) fn disarm(&mut self, deadline_ns: u64, seq: u64) {
        self.by_deadline.remove(&(deadline_ns, seq));
    }

    /// The earliest deadline, ns.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.by_deadline.first_key_value().map(|(&(deadline_ns, _), _)| deadline_ns)
    }

    /// Takes one expired timer.
    pub(crate) fn pop_expired(&mut self, now_ns: u64) -> Option<ReqId> {
        let entry = self.by_deadline.first_entry()?;
        if entry.key().0 > now_ns { None } else { Some(entry.remove()) }
    }

    /// `id` completes after `count` more CQEs.
    pub(crate) fn count(&mut self, count: u32, id: ReqId) {
        self.counting.push((self.posted + u64::from(count), id));
        self.counting.sort_by_key(|&(at, _)| at);
    }

    pub(crate) fn stop_counting(&mut self, id: ReqId) {
        self.counting.retain(|&(_, other)| other != id);
    }

    #[inline]
    pub(crate) fn counts_completions(&self) -> bool {
        !self.counting.is_empty()
    }

    /// A CQE was posted.
    pub(crate) fn note_posted(&mut self) {
        self.posted += u64::from(!core::mem::take(&mut self.skips_next));
    }

    /// Whether the next CQE is a TIMEOUT's own, which is not counted.
    pub(crate) fn skip_next(&mut self, skips: bool) {
        self.skips_next = skips;
    }

    /// Takes one timeout that has seen enough CQEs.
    pub(crate) fn pop_counted(&mut self) -> Option<ReqId> {
        let &(at, id) = self.counting.first()?;
        if at > self.posted {
            return None;
        }
        self.counting.remove(0);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(key: u32) -> ReqId {
        ReqId { key, generation: core::num::NonZeroU32::MIN }
    }

    #[test]
    fn timers_fire_in_order_and_once() {
        let mut t = Timers::default();
        t.arm(30, 1, id(1));
        t.arm(10, 2, id(2));
        t.arm(10, 3, id(3));
        assert_eq!(t.next_deadline(), Some(10));
        assert_eq!(t.pop_expired(9), None);
        assert_eq!(t.pop_expired(10), Some(id(2)));
        assert_eq!(t.pop_expired(10), Some(id(3)));
        assert_eq!(t.pop_expired(10), None);
        t.disarm(30, 1);
        assert_eq!(t.next_deadline(), None);
    }

    #[test]
    fn counting_timeouts_complete_after_their_number_of_cqes() {
        let mut t = Timers::default();
        t.count(2, id(1));
        t.count(1, id(2));
        assert_eq!(t.pop_counted(), None);
        t.note_posted();
        assert_eq!(t.pop_counted(), Some(id(2)));
        assert_eq!(t.pop_counted(), None);
        t.note_posted();
        assert_eq!(t.pop_counted(), Some(id(1)));
        assert!(!t.counts_completions());
    }

    #[test]
    fn cqe_of_a_timeout_is_not_counted() {
        let mut t = Timers::default();
        t.count(1, id(1));
        t.skip_next(true);
        t.note_posted();
        assert_eq!(t.pop_counted(), None);
        t.note_posted();
        assert_eq!(t.pop_counted(), Some(id(1)));
    }
}
