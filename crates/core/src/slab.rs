//! Values by number: small numbers, used again. As the crate `slab`; but a program that is built
//! beside the engine may enable that crate's feature `std`, and cargo then enables it for both.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

#[derive(Debug)]
enum SlabEntry<T> {
    /// The next vacant one, or the length.
    Vacant(usize),
    Taken(T),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<SlabEntry<T>>,
    /// The vacant entry to be used next; the length if there is none.
    next: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), next: 0 }
    }

    /// Keeps a value; returns its number.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> usize {
        let key = self.next;
        match self.entries.get_mut(key) {
            Some(entry) => {
                if let SlabEntry::Vacant(next) = *entry {
                    self.next = next;
                }
                *entry = SlabEntry::Taken(value);
            }
            None => {
                self.entries.push(SlabEntry::Taken(value));
                self.next = key + 1;
            }
        }
        key
    }

    /// Takes a value out.
    ///
    /// # Panics
    /// There is none of this number.
    #[inline]
    pub(crate) fn remove(&mut self, key: usize) -> T {
        let entry = &mut self.entries[key];
        match core::mem::replace(entry, SlabEntry::Vacant(self.next)) {
            SlabEntry::Taken(value) => {
                self.next = key;
                value
            }
            vacant @ SlabEntry::Vacant(_) => {
                *entry = vacant;
                panic!("there is no value {key}");
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<&T> {
        match self.entries.get(key) {
            Some(SlabEntry::Taken(value)) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut T> {
        match self.entries.get_mut(key) {
            Some(SlabEntry::Taken(value)) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.next = 0;
    }

    /// In the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.entries.iter().enumerate().filter_map(|(key, entry)| match entry {
            SlabEntry::Taken(value) => Some((key, value)),
            SlabEntry::Vacant(_) => None,
        })
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;
    fn index(&self, key: usize) -> &T {
        match self.get(key) {
            Some(value) => value,
            None => panic!("there is no value {key}"),
        }
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    fn index_mut(&mut self, key: usize) -> &mut T {
        match self.get_mut(key) {
            Some(value) => value,
            None => panic!("there is no value {key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slab = Slab::new();
        assert_eq!([slab.insert('a'), slab.insert('b'), slab.insert('c')], [0, 1, 2]);
        assert_eq!((slab.remove(0), slab.remove(2)), ('a', 'c'));
        assert_eq!((slab.get(0), slab.get(1), slab.get(9)), (None, Some(&'b'), None));
        assert_eq!([slab.insert('d'), slab.insert('e'), slab.insert('f')], [2, 0, 3]);
        slab[3] = 'g';
        *slab.get_mut(1).unwrap() = 'h';
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(0, &'e'), (1, &'h'), (2, &'d'), (3, &'g')]);
        slab.clear();
        assert_eq!((slab.insert('i'), slab.iter().count()), (0, 1));
    }

    #[test]
    #[should_panic(expected = "there is no value 0")]
    fn removing_a_vacant_number_panics() {
        let mut slab = Slab::new();
        slab.insert(());
        slab.remove(0);
        slab.remove(0);
    }
}
