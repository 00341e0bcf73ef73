//! The addresses that a static program stores itself before it does anything else, because it may
//! be loaded anywhere. They are not there yet when it is scanned.
//!
//! Source: the ELF and x86-64 ABI specifications, `DT_RELA` and `DT_RELR`.

use alloc::vec::Vec;

use uringlet_sys::linux::elf_uapi::{DT_RELA, DT_RELASZ, elf64_rela};

use super::object::LoadedObject;
use crate::arch::RELATIVE_RELOCATION;

const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;
const WORD: u64 = size_of::<u64>() as u64;

/// Where an address is stored and which, sorted by place. Empty for an object that the dynamic
/// linker has relocated: its data holds them.
pub(super) fn relative(object: &LoadedObject) -> Vec<(u64, u64)> {
    if !object.is_static {
        return Vec::new();
    }
    let mut words = Vec::new();
    for_each_table(object, u64::from(DT_RELA), u64::from(DT_RELASZ), size_of::<elf64_rela>(), |entry| {
        let word = |at: usize| entry.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        if let (Some(offset), Some(info), Some(addend)) = (word(0), word(8), word(16))
            && info == RELATIVE_RELOCATION
        {
            words.push((object.base.wrapping_add(offset), object.base.wrapping_add(addend)));
        }
    });
    let mut packed = PackedPlaces { object, next: 0 };
    for_each_table(object, DT_RELR, DT_RELRSZ, size_of::<u64>(), |entry| {
        let entry = entry.try_into().map_or(0, u64::from_le_bytes);
        packed.add(entry, &mut words);
    });
    words.sort_unstable();
    words.dedup_by_key(|word| word.0);
    words
}

/// The entries of a table of the dynamic section, as bytes.
fn for_each_table(object: &LoadedObject, tag: u64, size_tag: u64, entry_bytes: usize, found: impl FnMut(&[u8])) {
    let table = object.dynamic_entry(tag).zip(object.dynamic_entry(size_tag));
    let range = table.and_then(|(at, size)| {
        let start = object.base.checked_add(at)?;
        Some(start..start.checked_add(size)?)
    });
    let bytes = range.and_then(|range| object.bytes(range)).unwrap_or_default();
    bytes.chunks_exact(entry_bytes).for_each(found);
}

/// `DT_RELR`: an even word is a place; an odd one says of the 63 words behind the last place which
/// are places, too.
struct PackedPlaces<'a> {
    object: &'a LoadedObject,
    next: u64,
}

impl PackedPlaces<'_> {
    fn add(&mut self, entry: u64, words: &mut Vec<(u64, u64)>) {
        if entry & 1 == 0 {
            self.store(self.object.base.wrapping_add(entry), words);
            self.next = self.object.base.wrapping_add(entry).wrapping_add(WORD);
            return;
        }
        for bit in 1..u64::from(u64::BITS) {
            if entry >> bit & 1 == 1 {
                self.store(self.next.wrapping_add((bit - 1) * WORD), words);
            }
        }
        self.next = self.next.wrapping_add(u64::from(u64::BITS - 1) * WORD);
    }

    /// The addend is what the place holds.
    fn store(&self, place: u64, words: &mut Vec<(u64, u64)>) {
        words.extend(self.object.u64_at(place).map(|addend| (place, self.object.base.wrapping_add(addend))));
    }
}
