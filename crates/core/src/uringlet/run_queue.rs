//! The run queue of uringlet mode, and where the right to run it is. Pure state, under the ring's
//! lock; it knows no ring, so that a model can have it all. `README.md` has the protocol.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The age in ticks at which a monitor takes an offered baton: 50 to 250 µs.
pub(crate) const OFFER_TIMEOUT_TICKS: u64 = 250_000;

/// The right to run what is queued: one value per ring, moved to the thread that runs. It cannot be
/// cloned, so the compiler refuses a second runner.
#[derive(Debug)]
pub(crate) struct Baton {
    /// Requests of this run so far.
    issued: u64,
}

/// Identifies one offer of the baton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandoffToken(u64);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// There was nothing to do.
    Empty,
    /// One worker did it all.
    Inline,
    /// The worker blocked and lost the baton.
    Scheduled,
}

#[derive(Debug)]
enum BatonSlot<T> {
    Free(Baton),
    Held,
    /// The holder runs `item`, and may block in it.
    Offered {
        baton: Baton,
        token: HandoffToken,
        item: T,
        since_ticks: u64,
    },
}

/// Which thread has to be woken for the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum WakeTarget {
    None,
    /// The spinning worker.
    Spinner,
    /// A worker, to run what is queued.
    Worker,
    /// A monitor, to watch the holder of the baton.
    Monitor,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RunQueue<T> {
    queued: VecDeque<T>,
    /// Files in whose writes holders blocked and lost the baton. Later writes to them wait.
    blocked: Vec<i32>,
    deferred: VecDeque<(i32, T)>,
    slot: BatonSlot<T>,
    offers: u64,
    /// A worker was started and has not run yet.
    is_worker_starting: bool,
    /// A monitor watches the holder, or was started.
    is_monitored: bool,
    /// Workers that have released the baton and look for more before they park.
    spinners: u32,
}

impl<T> Default for RunQueue<T> {
    fn default() -> Self {
        Self {
            queued: VecDeque::new(),
            blocked: Vec::new(),
            deferred: VecDeque::new(),
            slot: BatonSlot::Free(Baton { issued: 0 }),
            offers: 0,
            is_worker_starting: false,
            is_monitored: false,
            spinners: 0,
        }
    }
}

impl<T: Copy> RunQueue<T> {
    /// Queues an item. [`wake_target`](Self::wake_target) must follow before the lock is released.
    pub(crate) fn enqueue(&mut self, item: T) {
        self.queued.push_back(item);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Which thread has to be woken.
    pub(crate) fn wake_target(&mut self, now_ticks: u64) -> WakeTarget {
        if self.queued.is_empty() {
            return WakeTarget::None;
        }
        let needs_worker = match &self.slot {
            BatonSlot::Free(_) if self.spinners > 0 => return WakeTarget::Spinner,
            BatonSlot::Free(_) => true,
            BatonSlot::Held => return WakeTarget::None,
            BatonSlot::Offered { since_ticks, .. } => is_timed_out(*since_ticks, now_ticks),
        };
        if needs_worker {
            return if core::mem::replace(&mut self.is_worker_starting, true) { WakeTarget::None } else { WakeTarget::Worker };
        }
        if core::mem::replace(&mut self.is_monitored, true) { WakeTarget::None } else { WakeTarget::Monitor }
    }

    /// A started worker runs.
    pub(crate) fn worker_started(&mut self) {
        self.is_worker_starting = false;
    }

    /// The monitor ends.
    pub(crate) fn end_monitor(&mut self) {
        self.is_monitored = false;
    }

    /// Takes the baton if it is free.
    pub(crate) fn take_baton(&mut self) -> Option<Baton> {
        if !matches!(self.slot, BatonSlot::Free(_)) {
            return None;
        }
        match core::mem::replace(&mut self.slot, BatonSlot::Held) {
            BatonSlot::Free(baton) => Some(baton),
            BatonSlot::Held | BatonSlot::Offered { .. } => None,
        }
    }

    /// Takes the baton if it is free, or if something is queued and the offer has timed out. Then
    /// also returns the item that the old holder is blocked in.
    pub(crate) fn steal(&mut self, now_ticks: u64) -> Option<(Baton, Option<T>)> {
        if let Some(baton) = self.take_baton() {
            return Some((baton, None));
        }
        let is_blocked = matches!(self.slot, BatonSlot::Offered { since_ticks, .. } if is_timed_out(since_ticks, now_ticks));
        if self.queued.is_empty() || !is_blocked {
            return None;
        }
        match core::mem::replace(&mut self.slot, BatonSlot::Held) {
            BatonSlot::Offered { mut baton, item, .. } => {
                baton.issued = 0;
                Some((baton, Some(item)))
            }
            BatonSlot::Free(_) | BatonSlot::Held => None,
        }
    }

    /// The holder takes the next item.
    pub(crate) fn pop(&mut self, baton: &mut Baton) -> Option<T> {
        let item = self.queued.pop_front()?;
        baton.issued += 1;
        Some(item)
    }

    /// The holder is about to run an item, which may block: once the offer has timed out, another
    /// thread may take the baton.
    pub(crate) fn offer(&mut self, baton: Baton, item: T, now_ticks: u64) -> HandoffToken {
        self.offers += 1;
        let token = HandoffToken(self.offers);
        self.slot = BatonSlot::Offered { baton, token, item, since_ticks: now_ticks };
        token
    }

    /// The holder is back: returns the baton unless it was stolen.
    pub(crate) fn reclaim(&mut self, own: HandoffToken) -> Option<Baton> {
        if !matches!(self.slot, BatonSlot::Offered { token, .. } if token == own) {
            return None;
        }
        match core::mem::replace(&mut self.slot, BatonSlot::Held) {
            BatonSlot::Offered { baton, .. } => Some(baton),
            BatonSlot::Free(_) | BatonSlot::Held => None,
        }
    }

    /// The holder has found the queue empty: its run is over.
    pub(crate) fn release(&mut self, mut baton: Baton) -> RunEnd {
        let issued = core::mem::take(&mut baton.issued);
        self.slot = BatonSlot::Free(baton);
        if issued == 0 { RunEnd::Empty } else { RunEnd::Inline }
    }

    /// A holder lost the baton in a write to this file.
    pub(crate) fn block(&mut self, file: i32) {
        self.blocked.push(file);
    }

    /// Whether such a write is still running.
    pub(crate) fn is_blocked(&self, file: i32) -> bool {
        self.blocked.contains(&file)
    }

    /// Keeps a write to a blocked file back, so that it does not overtake the blocked one.
    pub(crate) fn defer(&mut self, file: i32, item: T) {
        self.deferred.push_back((file, item));
    }

    /// A blocked write has returned: the writes that were kept back for it are next.
    pub(crate) fn unblock(&mut self, file: i32) {
        let Some(at) = self.blocked.iter().position(|&other| other == file) else { return };
        self.blocked.swap_remove(at);
        let deferred = core::mem::take(&mut self.deferred);
        let (back, rest): (VecDeque<_>, VecDeque<_>) = deferred.into_iter().partition(|&(other, _)| other == file);
        self.deferred = rest;
        back.into_iter().rev().for_each(|(_, item)| self.queued.push_front(item));
    }

    /// A worker begins to look for more without the lock.
    pub(crate) fn begin_spin(&mut self) {
        self.spinners += 1;
    }

    /// The worker stops looking.
    pub(crate) fn end_spin(&mut self) {
        self.spinners -= 1;
    }
}

fn is_timed_out(since_ticks: u64, now_ticks: u64) -> bool {
    now_ticks.saturating_sub(since_ticks) > OFFER_TIMEOUT_TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: u64 = OFFER_TIMEOUT_TICKS + 2;

    fn queue(items: &[u32]) -> RunQueue<u32> {
        let mut queue = RunQueue::default();
        items.iter().for_each(|&item| queue.enqueue(item));
        queue
    }

    #[test]
    fn a_run_without_blocking_keeps_the_baton() {
        let mut queue = queue(&[1, 2]);
        assert_eq!(queue.wake_target(0), WakeTarget::Worker);
        assert_eq!(queue.wake_target(0), WakeTarget::None, "woken twice");
        queue.worker_started();
        let mut baton = queue.take_baton().expect("free");
        assert!(queue.take_baton().is_none(), "two batons");
        assert_eq!(queue.pop(&mut baton), Some(1));
        let token = queue.offer(baton, 1, 1);
        assert!(queue.steal(2).is_none(), "not timed out");
        let mut baton = queue.reclaim(token).expect("not stolen");
        assert_eq!(queue.pop(&mut baton), Some(2));
        assert_eq!(queue.pop(&mut baton), None);
        assert_eq!(queue.release(baton), RunEnd::Inline);
        assert_eq!(queue.wake_target(0), WakeTarget::None);
    }

    #[test]
    fn a_timed_out_offer_is_stolen_once_and_its_token_is_void() {
        let mut queue = queue(&[1, 2]);
        let mut baton = queue.take_baton().expect("free");
        queue.pop(&mut baton);
        let token = queue.offer(baton, 1, 1);
        let (baton, blocked) = queue.steal(1 + LATE).expect("timed out");
        assert_eq!(blocked, Some(1));
        assert!(queue.steal(1 + LATE).is_none(), "two batons");
        assert!(queue.reclaim(token).is_none(), "two batons");
        let second = queue.offer(baton, 2, 1 + LATE);
        assert!(queue.reclaim(token).is_none(), "a token of another offer");
        assert!(queue.reclaim(second).is_some());
    }

    #[test]
    fn an_offer_is_not_stolen_while_the_queue_is_empty() {
        let mut queue = queue(&[1]);
        let mut baton = queue.take_baton().expect("free");
        queue.pop(&mut baton);
        let token = queue.offer(baton, 1, 1);
        assert!(queue.steal(1 + LATE).is_none(), "the queue is empty");
        let baton = queue.reclaim(token).expect("its own");
        assert_eq!(queue.release(baton), RunEnd::Inline);
    }

    #[test]
    fn the_wake_target_depends_on_the_slot() {
        let mut queue = queue(&[1, 2]);
        let mut baton = queue.take_baton().expect("free");
        assert_eq!(queue.wake_target(0), WakeTarget::None, "the holder looks at the queue again");
        queue.pop(&mut baton);
        let token = queue.offer(baton, 1, 1);
        assert_eq!(queue.wake_target(2), WakeTarget::Monitor);
        assert_eq!(queue.wake_target(2), WakeTarget::None, "it is monitored");
        assert_eq!(queue.wake_target(1 + LATE), WakeTarget::Worker, "timed out: no need to wait for the monitor");
        queue.worker_started();
        let mut baton = queue.reclaim(token).expect("its own");
        queue.pop(&mut baton);
        queue.release(baton);
        queue.begin_spin();
        queue.enqueue(3);
        assert_eq!(queue.wake_target(2), WakeTarget::Spinner);
        queue.end_spin();
        assert_eq!(queue.wake_target(2), WakeTarget::Worker);
    }

    #[test]
    fn writes_behind_a_blocked_write_are_deferred() {
        let mut queue = queue(&[4]);
        queue.block(7);
        assert!(queue.is_blocked(7) && !queue.is_blocked(8));
        queue.defer(7, 1);
        queue.defer(8, 2);
        queue.defer(7, 3);
        queue.unblock(7);
        assert!(!queue.is_blocked(7));
        let mut baton = queue.take_baton().expect("free");
        let next: Vec<_> = core::iter::from_fn(|| queue.pop(&mut baton)).collect();
        assert_eq!(next, [1, 3, 4]);
    }

    #[test]
    fn a_run_without_items_ends_empty() {
        let mut queue = queue(&[]);
        let baton = queue.take_baton().expect("free");
        assert_eq!(queue.release(baton), RunEnd::Empty);
    }
}
