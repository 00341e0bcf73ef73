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
struct Item<W> {
    number: u64,
    key: Option<HashKey>,
    work: W,
}

/// A worker's right to the key of the item that it is at; to be given back when it is done.
#[derive(Debug, Default)]
pub enum Turn {
    /// It has no key.
    #[default]
    Free,
    /// It has, and the worker may go on with so many more items of it before others get their turn.
    Key(HashKey, usize),
}

/// A worker's place in its class.
#[derive(Clone, Copy, Debug)]
pub struct Seat(usize);

#[derive(Debug)]
struct Sitter {
    /// What it is at; 0: nothing.
    number: u64,
    worker: Arc<Worker>,
}

/// What a class' lock guards.
#[derive(Debug)]
pub struct List<W> {
    /// What may run at once, in order.
    ready: VecDeque<Item<W>>,
    chains: Chains<Item<W>>,
    sitters: Slab<Sitter>,
}

impl<W> Default for List<W> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), chains: Chains::new(), sitters: Slab::new() }
    }
}

impl<W> List<W> {
    /// How many items could be begun now.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Adds an item at the end. `false`: it waits for its key.
    pub fn push(&mut self, number: u64, key: Option<HashKey>, work: W) -> bool {
        let item = Item { number, key, work };
        let item = match key {
            Some(key) => self.chains.claim(key, item),
            None => Some(item),
        };
        let may_run = item.is_some();
        self.ready.extend(item);
        may_run
    }

    /// A worker comes.
    pub fn sit_down(&mut self, worker: Arc<Worker>) -> Seat {
        Seat(self.sitters.insert(Sitter { number: 0, worker }))
    }

    /// A worker goes.
    pub fn get_up(&mut self, seat: Seat) {
        self.sitters.remove(seat.0);
    }

    /// The worker is done with its item, and takes the next one: of the same key if it may, else the first in the list.
    pub fn next(&mut self, seat: Seat, done: Turn) -> Option<(W, Turn)> {
        self.sitters[seat.0].number = 0;
        if let Turn::Key(key, left) = done
            && let Some(item) = self.chains.next(key)
        {
            if left > 0 {
                return Some(self.begin(seat, item, Turn::Key(key, left - 1)));
            }
            self.ready.push_back(item);
        }
        let item = self.ready.pop_front()?;
        // Those that wait for the key now; more that come meanwhile queue behind everybody else.
        let turn = item.key.map_or(Turn::Free, |key| Turn::Key(key, self.chains.waiting(key)));
        Some(self.begin(seat, item, turn))
    }

    fn begin(&mut self, seat: Seat, item: Item<W>, turn: Turn) -> (W, Turn) {
        let sitter = &mut self.sitters[seat.0];
        sitter.number = item.number;
        sitter.worker.begin();
        (item.work, turn)
    }

    /// The worker is done with its item, and takes no other.
    pub fn finish(&mut self, seat: Seat, done: Turn) {
        self.sitters[seat.0].number = 0;
        if let Turn::Key(key, _) = done {
            self.pass_on(key);
        }
    }

    /// The key's owner is gone: its next item may run.
    fn pass_on(&mut self, key: HashKey) {
        self.ready.extend(self.chains.next(key));
    }

    /// Takes an item back that nobody has begun; or interrupts who is at it.
    pub fn cancel(&mut self, number: u64) -> Cancelled<W> {
        if let Some(at) = self.ready.iter().position(|item| item.number == number)
            && let Some(item) = self.ready.remove(at)
        {
            if let Some(key) = item.key {
                self.pass_on(key);
            }
            return Cancelled::Queued(item.work);
        }
        if let Some(item) = self.chains.take(|item| item.number == number) {
            return Cancelled::Queued(item.work);
        }
        match self.sitters.iter().find(|(_, sitter)| sitter.number == number) {
            Some((_, sitter)) => {
                // Under the lock, so the worker is at this item until it has the lock itself.
                sitter.worker.cancel();
                Cancelled::Running
            }
            None => Cancelled::Unknown,
        }
    }

    /// Takes an item without a key back that nobody has begun.
    pub fn take_back(&mut self, number: u64) -> Option<W> {
        let at = self.ready.iter().position(|item| item.number == number && item.key.is_none())?;
        self.ready.remove(at).map(|item| item.work)
    }

    /// Everything that no worker has begun, in an order that suits: there will be no worker.
    pub fn strand(&mut self) -> Vec<W> {
        let ready = core::mem::take(&mut self.ready);
        ready.into_iter().chain(self.chains.dissolve()).map(|item| item.work).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A list, and so many workers.
    fn with_workers<const N: usize>() -> (List<u32>, [Seat; N]) {
        let mut list = List::default();
        let seats = core::array::from_fn(|_| list.sit_down(Worker::new()));
        (list, seats)
    }

    /// Items with these numbers, which are their work too.
    fn push(list: &mut List<u32>, key: Option<u64>, numbers: &[u32]) {
        for &number in numbers {
            list.push(u64::from(number), key.map(HashKey::new), number);
        }
    }

    fn work(taken: Option<(u32, Turn)>) -> Option<u32> {
        taken.map(|(work, _)| work)
    }

    #[test]
    fn items_without_a_key_run_in_order_and_at_once() {
        let (mut list, [a, b]) = with_workers();
        push(&mut list, None, &[1, 2, 3]);
        assert_eq!(list.ready(), 3);
        assert_eq!(work(list.next(a, Turn::Free)), Some(1));
        assert_eq!(work(list.next(b, Turn::Free)), Some(2));
        assert_eq!(work(list.next(a, Turn::Free)), Some(3));
        assert_eq!(work(list.next(a, Turn::Free)), None);
    }

    #[test]
    fn what_waits_for_its_hash_is_overtaken_and_calls_nobody() {
        let (mut list, [a, b]) = with_workers();
        push(&mut list, Some(7), &[1, 2]);
        push(&mut list, Some(8), &[3]);
        push(&mut list, None, &[4]);
        assert_eq!(list.ready(), 3);
        let (first, turn) = list.next(a, Turn::Free).unwrap();
        assert_eq!(first, 1);
        assert_eq!(work(list.next(b, Turn::Free)), Some(3));
        assert_eq!(work(list.next(b, Turn::Key(HashKey::new(8), 0))), Some(4));
        assert_eq!(work(list.next(b, Turn::Free)), None);
        assert_eq!(work(list.next(a, turn)), Some(2));
    }

    #[test]
    fn a_worker_goes_on_with_its_key_but_not_for_ever() {
        let (mut list, [a]) = with_workers();
        push(&mut list, Some(7), &[1, 2]);
        push(&mut list, None, &[9]);
        let (_, turn) = list.next(a, Turn::Free).unwrap();
        push(&mut list, Some(7), &[3]);
        let (second, turn) = list.next(a, turn).unwrap();
        assert_eq!(second, 2);
        // The third came too late for this turn.
        let (other, turn) = list.next(a, turn).unwrap();
        assert_eq!(other, 9);
        let (third, turn) = list.next(a, turn).unwrap();
        assert_eq!(third, 3);
        assert!(list.next(a, turn).is_none());
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
        assert_eq!(work(list.next(a, Turn::Free)), Some(3));
        assert!(matches!(list.cancel(3), Cancelled::Running));
        assert!(matches!(list.cancel(2), Cancelled::Unknown));
    }

    #[test]
    fn only_what_has_no_key_is_taken_back() {
        let (mut list, []) = with_workers();
        push(&mut list, Some(7), &[1]);
        push(&mut list, None, &[2]);
        assert_eq!(list.take_back(1), None);
        assert_eq!(list.take_back(2), Some(2));
    }

    #[test]
    fn nothing_is_left_behind_where_no_worker_comes() {
        let (mut list, []) = with_workers();
        push(&mut list, Some(7), &[1, 2]);
        push(&mut list, None, &[3]);
        assert_eq!(list.strand(), [1, 3, 2]);
        push(&mut list, Some(7), &[4]);
        assert_eq!(list.ready(), 1);
    }
}
