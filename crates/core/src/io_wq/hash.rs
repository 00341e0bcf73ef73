//! What must not be worked on at the same time: items of one key, one at a time, in order of insertion.
//!
//! A key has an owner from the moment its first item may run until its last one is done: an item in the ready list or
//! with a worker. Items that come meanwhile wait in the key's chain, where no worker looks: nobody is woken for them,
//! and what is behind them in the list is not held up. Whoever ends the owner takes the chain's first item over.

use alloc::collections::{BTreeMap, VecDeque};

/// What items have in common that run one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HashKey(u64);

impl HashKey {
    /// The key of this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The key of an inode, as stat(2) names it. Two inodes that share one by accident only wait for each other.
    #[must_use]
    pub const fn of_inode(device: u64, inode: u64) -> Self {
        Self(device.rotate_left(40) ^ inode)
    }
}

/// The keys that have an owner, and what waits for them.
#[derive(Debug)]
pub(super) struct Chains<T>(BTreeMap<HashKey, VecDeque<T>>);

impl<T> Chains<T> {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The item comes back as the owner of its key, or waits for it.
    pub(super) fn acquire(&mut self, key: HashKey, item: T) -> Option<T> {
        if let Some(chain) = self.0.get_mut(&key) {
            chain.push_back(item);
            return None;
        }
        self.0.insert(key, VecDeque::new());
        Some(item)
    }

    /// The owner is done. The next item, which owns the key now; `None`: nobody does.
    pub(super) fn release(&mut self, key: HashKey) -> Option<T> {
        let next = self.0.get_mut(&key)?.pop_front();
        if next.is_none() {
            self.0.remove(&key);
        }
        next
    }

    /// How many wait for a key.
    pub(super) fn waiting(&self, key: HashKey) -> usize {
        self.0.get(&key).map_or(0, VecDeque::len)
    }

    /// Takes the first waiting item out of which `is_wanted` is true.
    pub(super) fn take(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.0.values_mut().find_map(|chain| {
            let at = chain.iter().position(&is_wanted)?;
            chain.remove(at)
        })
    }

    /// No key has an owner any more: what waited, key by key in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        core::mem::take(&mut self.0).into_values().flatten()
    }
}
