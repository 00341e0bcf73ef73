//! Parked requests by their user_data, for cancels: made when a program cancels for the first time
//! while many are parked, and kept up from then on. Programs that never do pay one test a request.

use crate::hash::multiplicative_hash;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// The place of a parked request, by its key.
#[derive(Clone, Copy, Debug)]
struct Link {
    user_data: u64,
    previous: u32,
    next: u32,
}

const VACANT: Link = Link { user_data: 0, previous: NONE, next: NONE };

/// See the module. A hash table of doubly linked lists: any of many requests with the same
/// user_data is taken out in constant time.
#[derive(Debug)]
pub(super) struct UserDataIndex {
    /// The first key of each list; a power of two of them.
    heads: Vec<u32>,
    links: Vec<Link>,
    len: usize,
}

impl UserDataIndex {
    /// An index of these keys with their user_data.
    pub(super) fn new(requests: impl Iterator<Item = (u32, u64)>) -> Self {
        let mut index = Self { heads: alloc::vec![NONE; 64], links: Vec::new(), len: 0 };
        requests.for_each(|(key, user_data)| index.insert(key, user_data));
        index
    }

    fn bucket(&self, user_data: u64) -> usize {
        (multiplicative_hash(user_data) >> 32) as usize & (self.heads.len() - 1)
    }

    /// A request is parked.
    pub(super) fn insert(&mut self, key: u32, user_data: u64) {
        if self.len == self.heads.len() {
            self.grow();
        }
        if self.links.len() <= key as usize {
            self.links.resize(key as usize + 1, VACANT);
        }
        self.len += 1;
        self.push(key, user_data);
    }

    fn push(&mut self, key: u32, user_data: u64) {
        let bucket = self.bucket(user_data);
        let next = core::mem::replace(&mut self.heads[bucket], key);
        if let Some(link) = self.links.get_mut(next as usize) {
            link.previous = key;
        }
        self.links[key as usize] = Link { user_data, previous: NONE, next };
    }

    /// A request is parked no longer.
    pub(super) fn remove(&mut self, key: u32) {
        let Link { user_data, previous, next } = core::mem::replace(&mut self.links[key as usize], VACANT);
        self.len -= 1;
        if let Some(link) = self.links.get_mut(next as usize) {
            link.previous = previous;
        }
        match self.links.get_mut(previous as usize) {
            Some(link) => link.next = next,
            None => {
                let bucket = self.bucket(user_data);
                self.heads[bucket] = next;
            }
        }
    }

    fn grow(&mut self) {
        let doubled = alloc::vec![NONE; self.heads.len() * 2];
        let old = core::mem::replace(&mut self.heads, doubled);
        for head in old {
            let mut key = head;
            while let Some(&Link { user_data, next, .. }) = self.links.get(key as usize) {
                self.push(key, user_data);
                key = next;
            }
        }
    }

    /// The keys of the requests with this user_data.
    pub(super) fn find(&self, user_data: u64) -> impl Iterator<Item = u32> {
        let mut key = self.heads[self.bucket(user_data)];
        core::iter::from_fn(move || {
            let link = self.links.get(key as usize)?;
            Some((core::mem::replace(&mut key, link.next), link.user_data))
        })
        .filter_map(move |(key, found)| (found == user_data).then_some(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn it_finds_what_a_plain_table_finds() {
        let mut plain: BTreeMap<u32, u64> = (0..200).map(|key| (key, u64::from(key % 7))).collect();
        let mut index = UserDataIndex::new(plain.iter().map(|(&key, &user_data)| (key, user_data)));
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, user_data) = ((random >> 33) as u32 % 1000, (random >> 50) % 40 * 0x1000);
            if plain.remove(&key).is_some() {
                index.remove(key);
            } else {
                plain.insert(key, user_data);
                index.insert(key, user_data);
            }
            let mut found: Vec<u32> = index.find(user_data).collect();
            found.sort_unstable();
            let expected: Vec<u32> = plain.iter().filter(|&(_, &other)| other == user_data).map(|(&key, _)| key).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(index.len, plain.len());
    }
}
