//! A class: its work list, the state of its hash keys, and what its workers are at. All of it under one lock.

use super::hash::{Chains, HashKey};
use super::worker::Worker;
use crate::slab::Slab;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The class of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// Ends by itself: regular files, block devices.
    Bound = 0,
    /// May wait for others: sockets, pipes, devices.
    Unbound = 1,
}

impl Account {
    /// Both classes.
    pub const BOTH: [Self; 2] = [Self::Bound, Self::Unbound];
}

/// What became of a cancelled piece of work.
#[derive(Debug)]
pub enum Cancelled<W> {
    /// It had not begun: here it is.
    Queued(W),
    /// A worker is at it, and has been told.
    Running,
    /// It is not here (any more).
    Unknown,
}

#[derive(Debug)]
struct WorkItem<W> {
    number: u64,
    key: Option<HashKey>,
    work: W,
}

/// A worker's right to the key of the item that it is at; to be given back when it is done.
#[derive(Debug, Default)]
pub enum KeyLease {
    /// It has no key.
    #[default]
    None,
    /// It has, and the worker may go on with so many more items of it before others get their turn.
    Held(HashKey, usize),
}

/// A worker's place in its class.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSlot(usize);

#[derive(Debug)]
struct RunningWorker {
    /// What it is at; 0: nothing.
    number: u64,
    worker: Arc<Worker>,
}

/// What a class' lock guards.
#[derive(Debug)]
pub struct WorkList<W> {
    /// What may run at once, in order.
    ready: VecDeque<WorkItem<W>>,
    chains: Chains<WorkItem<W>>,
    running: Slab<RunningWorker>,
}

impl<W> Default for WorkList<W> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), chains: Chains::new(), running: Slab::new() }
    }
}

impl<W> WorkList<W> {
    /// How many items could be begun now.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Adds an item at the end. `false`: it waits for its key.
    pub fn push(&mut self, number: u64, key: Option<HashKey>, work: W) -> bool {
        let item = WorkItem { number, key, work };
        let item = match key {
            Some(key) => self.chains.acquire(key, item),
            None => Some(item),
        };
        let may_run = item.is_some();
        self.ready.extend(item);
        may_run
    }

    /// A worker comes.
    pub fn attach_worker(&mut self, worker: Arc<Worker>) -> WorkerSlot {
        WorkerSlot(self.running.insert(RunningWorker { number: 0, worker }))
    }

    /// A worker goes.
    pub fn detach(&mut self, slot: WorkerSlot) {
        self.running.remove(slot.0);
    }

    /// The worker is done with its item, and takes the next one: of the same key if it may, else the first in the list.
    pub fn next(&mut self, slot: WorkerSlot, done: KeyLease) -> Option<(W, KeyLease)> {
        self.running[slot.0].number = 0;
        if let KeyLease::Held(key, left) = done
            && let Some(item) = self.chains.release(key)
        {
            if left > 0 {
                return Some(self.begin(slot, item, KeyLease::Held(key, left - 1)));
            }
            self.ready.push_back(item);
        }
        let item = self.ready.pop_front()?;
        // Those that wait for the key now; more that come meanwhile queue behind everybody else.
        let lease = item.key.map_or(KeyLease::None, |key| KeyLease::Held(key, self.chains.waiting(key)));
        Some(self.begin(slot, item, lease))
    }

    fn begin(&mut self, slot: WorkerSlot, item: WorkItem<W>, lease: KeyLease) -> (W, KeyLease) {
        let running = &mut self.running[slot.0];
        running.number = item.number;
        running.worker.begin();
        (item.work, lease)
    }

    /// The worker is done with its item, and takes no other.
    pub fn finish(&mut self, slot: WorkerSlot, done: KeyLease) {
        self.running[slot.0].number = 0;
        if let KeyLease::Held(key, _) = done {
            self.release_key(key);
        }
    }

    /// The key's owner is gone: its next item may run.
    fn release_key(&mut self, key: HashKey) {
        self.ready.extend(self.chains.release(key));
    }

    /// Takes an item back that nobody has begun; or interrupts who is at it.
    pub fn cancel(&mut self, number: u64) -> Cancelled<W> {
        if let Some(at) = self.ready.iter().position(|item| item.number == number)
            && let Some(item) = self.ready.remove(at)
        {
            if let Some(key) = item.key {
                self.release_key(key);
            }
            return Cancelled::Queued(item.work);
        }
        if let Some(item) = self.chains.take(|item| item.number == number) {
            return Cancelled::Queued(item.work);
        }
        match self.running.iter().find(|(_, running)| running.number == number) {
            Some((_, running)) => {
                // Under the lock, so the worker is at this item until it has the lock itself.
                running.worker.cancel();
                Cancelled::Running
            }
            None => Cancelled::Unknown,
        }
    }

    /// Takes an item without a key back that nobody has begun.
    pub fn withdraw(&mut self, number: u64) -> Option<W> {
        let at = self.ready.iter().position(|item| item.number == number && item.key.is_none())?;
        self.ready.remove(at).map(|item| item.work)
    }

    /// Everything that no worker has begun, in an order that suits: there will be no worker.
    pub fn drain_unrunnable(&mut self) -> Vec<W> {
        let ready = core::mem::take(&mut self.ready);
        ready.into_iter().chain(self.chains.drain()).map(|item| item.work).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A list, and so many workers.
    fn with_workers<const N: usize>() -> (WorkList<u32>, [WorkerSlot; N]) {
        let mut list = WorkList::default();
        let seats = core::array::from_fn(|_| list.attach_worker(Worker::new()));
        (list, seats)
    }

    /// Items with these numbers, which are their work too.
    fn push(list: &mut WorkList<u32>, key: Option<u64>, numbers: &[u32]) {
        for &number in numbers {
            list.push(u64::from(number), key.map(HashKey::new), number);
        }
    }

    fn work(taken: Option<(u32, KeyLease)>) -> Option<u32> {
        taken.map(|(work, _)| work)
    }

    #[test]
    fn items_without_a_key_run_in_order_and_at_once() {
        let (mut list, [a, b]) = with_workers();
        push(&mut list, None, &[1, 2, 3]);
        assert_eq!(list.ready(), 3);
        assert_eq!(work(list.next(a, KeyLease::None)), Some(1));
        assert_eq!(work(list.next(b, KeyLease::None)), Some(2));
        assert_eq!(work(list.next(a, KeyLease::None)), Some(3));
        assert_eq!(work(list.next(a, KeyLease::None)), None);
    }

    #[test]
    fn what_waits_for_its_hash_is_overtaken_and_calls_nobody() {
        let (mut list, [a, b]) = with_workers();
        push(&mut list, Some(7), &[1, 2]);
        push(&mut list, Some(8), &[3]);
        push(&mut list, None, &[4]);
        assert_eq!(list.ready(), 3);
        let (first, lease) = list.next(a, KeyLease::None).unwrap();
        assert_eq!(first, 1);
        assert_eq!(work(list.next(b, KeyLease::None)), Some(3));
        assert_eq!(work(list.next(b, KeyLease::Held(HashKey::new(8), 0))), Some(4));
        assert_eq!(work(list.next(b, KeyLease::None)), None);
        assert_eq!(work(list.next(a, lease)), Some(2));
    }

    #[test]
    fn a_worker_goes_on_with_its_key_but_not_for_ever() {
        let (mut list, [a]) = with_workers();
        push(&mut list, Some(7), &[1, 2]);
        push(&mut list, None, &[9]);
        let (_, lease) = list.next(a, KeyLease::None).unwrap();
        push(&mut list, Some(7), &[3]);
        let (second, lease) = list.next(a, lease).unwrap();
        assert_eq!(second, 2);
        // The third came too late for this turn.
        let (other, lease) = list.next(a, lease).unwrap();
        assert_eq!(other, 9);
        let (third, lease) = list.next(a, lease).unwrap();
        assert_eq!(third, 3);
        assert!(list.next(a, lease).is_none());
        push(&mut list, Some(7), &[4]);
        assert_eq!(list.ready(), 1);
    }

    #[test]
    fn a_cancelled_owner_passes_its_key_on() {
        let (mut list, [a]) = with_workers();
        push(&mut list, Some(7), &[1, 2, 3]);
        assert!(matches!(list.cancel(2), Cancelled::Queued(2)));
        assert!(matches!(list.cancel(1), Cancelled::Queued(1)));
        assert_eq!(list.ready(), 1);
        assert_eq!(work(list.next(a, KeyLease::None)), Some(3));
        assert!(matches!(list.cancel(3), Cancelled::Running));
        assert!(matches!(list.cancel(2), Cancelled::Unknown));
    }

    #[test]
    fn only_what_has_no_key_is_taken_back() {
        let (mut list, []) = with_workers();
        push(&mut list, Some(7), &[1]);
        push(&mut list, None, &[2]);
        assert_eq!(list.withdraw(1), None);
        assert_eq!(list.withdraw(2), Some(2));
    }

    #[test]
    fn nothing_is_left_behind_where_no_worker_comes() {
        let (mut list, []) = with_workers();
        push(&mut list, Some(7), &[1, 2]);
        push(&mut list, None, &[3]);
        assert_eq!(list.drain_unrunnable(), [1, 3, 2]);
        push(&mut list, Some(7), &[4]);
        assert_eq!(list.ready(), 1);
    }
}
