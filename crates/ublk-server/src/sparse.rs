//! Sparse memory: pages that were never written, or were zeroed, take no memory.

use crate::sync::{read, write};
use std::collections::HashMap;
use std::sync::RwLock;

/// Bytes allocated at once.
const PAGE_BYTES: u64 = 64 * 1024;
/// Number of locks, so that requests for different pages rarely contend.
const SHARD_COUNT: u64 = 16;

/// Bytes by position, without an end: callers check their ranges.
#[derive(Debug)]
pub struct SparseMemory {
    shards: [RwLock<HashMap<u64, Box<[u8]>>>; SHARD_COUNT as usize],
}

impl Default for SparseMemory {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl SparseMemory {
    /// Fills `bytes` from position `at` on.
    pub fn read(&self, at: u64, bytes: &mut [u8]) {
        for (page, offset, range) in page_parts(at, bytes.len()) {
            let part = &mut bytes[range];
            match read(self.shard(page)).get(&page) {
                Some(stored) => part.copy_from_slice(&stored[offset..offset + part.len()]),
                None => part.fill(0),
            }
        }
    }

    /// Writes `bytes` at position `at`.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        for (page, offset, range) in page_parts(at, bytes.len()) {
            let part = &bytes[range];
            let mut shard = write(self.shard(page));
            let stored = shard.entry(page).or_insert_with(|| vec![0; PAGE_BYTES as usize].into_boxed_slice());
            stored[offset..offset + part.len()].copy_from_slice(part);
        }
    }

    /// Makes a range read as zeroes; whole pages are freed.
    pub fn zero(&self, at: u64, len: u64) {
        let mut done = 0;
        while done < len {
            let position = at + done;
            let (page, offset) = (position / PAGE_BYTES, position % PAGE_BYTES);
            let part = (PAGE_BYTES - offset).min(len - done);
            let mut shard = write(self.shard(page));
            if part == PAGE_BYTES {
                shard.remove(&page);
            } else if let Some(stored) = shard.get_mut(&page) {
                stored[offset as usize..(offset + part) as usize].fill(0);
            }
            done += part;
        }
    }

    /// Bytes of memory that are in use.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.shards.iter().map(|shard| read(shard).len() as u64 * PAGE_BYTES).sum()
    }

    fn shard(&self, page: u64) -> &RwLock<HashMap<u64, Box<[u8]>>> {
        &self.shards[(page % SHARD_COUNT) as usize]
    }
}

/// Page, offset in it, and range of the caller's bytes.
fn page_parts(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = at + done as u64;
        let offset = (position % PAGE_BYTES) as usize;
        let part = (PAGE_BYTES as usize - offset).min(len - done);
        let range = done..done + part;
        done += part;
        (part > 0).then_some((position / PAGE_BYTES, offset, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_survives_across_page_boundaries() {
        let memory = SparseMemory::default();
        let bytes: Vec<u8> = (0..3 * PAGE_BYTES).map(|i| (i / 7) as u8).collect();
        memory.write(PAGE_BYTES - 10, &bytes);
        let mut back = vec![1; bytes.len() + 20];
        memory.read(PAGE_BYTES - 20, &mut back);
        assert_eq!(&back[..10], &[0; 10]);
        assert_eq!(&back[10..10 + bytes.len()], &bytes[..]);
        assert_eq!(&back[10 + bytes.len()..], &[0; 10]);
    }

    #[test]
    fn zeroed_pages_are_freed() {
        let memory = SparseMemory::default();
        memory.write(0, &vec![7; 4 * PAGE_BYTES as usize]);
        assert_eq!(memory.resident(), 4 * PAGE_BYTES);
        memory.zero(100, 3 * PAGE_BYTES);
        assert_eq!(memory.resident(), 2 * PAGE_BYTES);
        let mut back = vec![1; 4 * PAGE_BYTES as usize];
        memory.read(0, &mut back);
        let zeroed = 100..100 + 3 * PAGE_BYTES as usize;
        assert!(back.iter().enumerate().all(|(i, byte)| *byte == if zeroed.contains(&i) { 0 } else { 7 }));
    }
}
