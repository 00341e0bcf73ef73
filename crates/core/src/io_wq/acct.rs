//! A class: its work list, its hash keys, and the items that its workers run. All under one lock.

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

/// The outcome of a cancel.
#[derive(Debug)]
pub enum Cancelled<W> {
    /// The work had not begun: here it is.
    Queued(W),
    /// A worker runs it, and was interrupted.
    Running,
    /// It is not (or no longer) in this pool.
    Unknown,
}

#[derive(Debug)]
struct WorkItem<W> {
    number: u64,
    key: Option<HashKey>,
    work: W,
}

/// A worker's ownership of the key of its item; it gives it back when the item is done.
#[derive(Debug, Default)]
pub enum KeyLease {
    /// The item has no key.
    #[default]
    None,
    /// The item has this key. The worker may run this many more items of it before other items.
    Held(HashKey, usize),
}

/// A worker's slot in its class.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSlot(usize);

#[derive(Debug)]
struct RunningWorker {
    /// The number of its item; 0: none.
    number: u64,
    worker: Arc<Worker>,
}

/// What the class lock guards.
#[derive(Debug)]
pub struct WorkList<W> {
    /// Items that may run now, in order.
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
    /// How many items may run now.
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

    /// A worker's thread begins.
    pub fn attach_worker(&mut self, worker: Arc<Worker>) -> WorkerSlot {
        WorkerSlot(self.running.insert(RunningWorker { number: 0, worker }))
    }

    /// A worker's thread ends.
    pub fn detach(&mut self, slot: WorkerSlot) {
        self.running.remove(slot.0);
    }

    /// The worker is done with its item and takes the next one: of the same key if its lease
    /// allows, else the first of the list.
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
        // The lease covers the items that wait for the key now. Items that come later go to the
        // end.
        let lease = item.key.map_or(KeyLease::None, |key| KeyLease::Held(key, self.chains.waiting(key)));
        Some(self.begin(slot, item, lease))
    }

    fn begin(&mut self, slot: WorkerSlot, item: WorkItem<W>, lease: KeyLease) -> (W, KeyLease) {
        let running = &mut self.running[slot.0];
        running.number = item.number;
        running.worker.begin();
        (item.work, lease)
    }

    /// The worker is done with its item and takes no other.
    pub fn finish(&mut self, slot: WorkerSlot, done: KeyLease) {
        self.running[slot.0].number = 0;
        if let KeyLease::Held(key, _) = done {
            self.release_key(key);
        }
    }

    /// The key's owner has ended: its next item may run.
    fn release_key(&mut self, key: HashKey) {
        self.ready.extend(self.chains.release(key));
    }

    /// Takes an item back that no worker has begun, or interrupts the worker that runs it.
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
                // Under the lock: the worker cannot go on to another item.
                running.worker.cancel();
                Cancelled::Running
            }
            None => Cancelled::Unknown,
        }
    }

    /// Takes an item without a key back that no worker has begun.
    pub fn withdraw(&mut self, number: u64) -> Option<W> {
        let at = self.ready.iter().position(|item| item.number == number && item.key.is_none())?;
        self.ready.remove(at).map(|item| item.work)
    }

    /// Takes all items that no worker has begun, in an order to run them: there will be no worker.
    pub fn drain_unrunnable(&mut self) -> Vec<W> {
        let ready = core::mem::take(&mut self.ready);
        ready.into_iter().chain(self.chains.drain()).map(|item| item.work).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A list with `N` workers.
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
    fn item_that_waits_for_its_key_is_overtaken_and_not_ready() {
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
    fn worker_keeps_its_key_for_a_bounded_number_of_items() {
        let (mut list, [a]) = with_workers();
        push(&mut list, Some(7), &[1, 2]);
        push(&mut list, None, &[9]);
        let (_, lease) = list.next(a, KeyLease::None).unwrap();
        push(&mut list, Some(7), &[3]);
        let (second, lease) = list.next(a, lease).unwrap();
        assert_eq!(second, 2);
        // The third came too late for this lease.
        let (other, lease) = list.next(a, lease).unwrap();
        assert_eq!(other, 9);
        let (third, lease) = list.next(a, lease).unwrap();
        assert_eq!(third, 3);
        assert!(list.next(a, lease).is_none());
        push(&mut list, Some(7), &[4]);
        assert_eq!(list.ready(), 1);
    }

    #[test]
    fn cancelled_owner_releases_its_key() {
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
    fn only_items_without_a_key_are_withdrawn() {
        let (mut list, []) = with_workers();
        push(&mut list, Some(7), &[1]);
        push(&mut list, None, &[2]);
        assert_eq!(list.withdraw(1), None);
        assert_eq!(list.withdraw(2), Some(2));
    }

    #[test]
    fn drain_takes_queued_and_waiting_items() {
        let (mut list, []) = with_workers();
        push(&mut list, Some(7), &[1, 2]);
        push(&mut list, None, &[3]);
        assert_eq!(list.drain_unrunnable(), [1, 3, 2]);
        push(&mut list, Some(7), &[4]);
        assert_eq!(list.ready(), 1);
    }
}
