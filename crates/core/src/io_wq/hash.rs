//! Hashed work: items of one key run one at a time, in order of insertion.
//!
//! A key has an owner from the moment its first item may run until its last one is done: an item in
//! the ready list or with a worker. Items that come meanwhile wait in the key's chain, not in the
//! work list: no worker is woken for them, and the items behind them in the list are not held up.
//! The end of the owner makes the chain's first item the next owner.

use alloc::collections::{BTreeMap, VecDeque};

/// The key of items that run one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HashKey(u64);

impl HashKey {
    /// The key of this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The key of an inode, as stat(2) names it. Two inodes of one key by accident only wait for
    /// each other.
    #[must_use]
    pub const fn of_inode(device: u64, inode: u64) -> Self {
        Self(device.rotate_left(40) ^ inode)
    }
}

/// The keys that have an owner, and the items that wait for them.
#[derive(Debug)]
pub(super) struct Chains<T>(BTreeMap<HashKey, VecDeque<T>>);

impl<T> Chains<T> {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Returns the item if it owns its key now; else it waits in the chain.
    pub(super) fn acquire(&mut self, key: HashKey, item: T) -> Option<T> {
        if let Some(chain) = self.0.get_mut(&key) {
            chain.push_back(item);
            return None;
        }
        self.0.insert(key, VecDeque::new());
        Some(item)
    }

    /// The owner is done. Returns the next item, which owns the key now, if there is one.
    pub(super) fn release(&mut self, key: HashKey) -> Option<T> {
        let next = self.0.get_mut(&key)?.pop_front();
        if next.is_none() {
            self.0.remove(&key);
        }
        next
    }

    /// How many items wait for a key.
    pub(super) fn waiting(&self, key: HashKey) -> usize {
        self.0.get(&key).map_or(0, VecDeque::len)
    }

    /// Takes the first waiting item for which `is_wanted` is true.
    pub(super) fn take(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.0.values_mut().find_map(|chain| {
            let at = chain.iter().position(&is_wanted)?;
            chain.remove(at)
        })
    }

    /// Ends all ownership. Returns the items that waited, key by key in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        core::mem::take(&mut self.0).into_values().flatten()
    }
}
