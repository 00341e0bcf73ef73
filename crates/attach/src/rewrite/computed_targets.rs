//! The targets of computed jumps, as far as an object lists them: a superset. An address that is
//! stored or loaded anywhere in the object may be the target of any jump that takes its target from
//! memory.

use alloc::vec::Vec;
use core::cell::OnceCell;
use core::ops::Range;

use super::object::LoadedObject;
use crate::arch::{DecodedFunction, for_each_constant, for_each_function_pointer, offset_tables};

/// No table has more entries.
const MAX_ENTRIES: u64 = 1 << 16;
const OFFSET_BYTES: u64 = size_of::<u32>() as u64;

/// What an object stores and loads that may be the address of code.
pub(super) struct ComputedTargets<'a> {
    object: &'a LoadedObject,
    /// Sorted. Listed when the first function asks.
    addresses: OnceCell<Vec<u64>>,
}

impl<'a> ComputedTargets<'a> {
    pub(super) fn of(object: &'a LoadedObject) -> Self {
        Self { object, addresses: OnceCell::new() }
    }

    /// Adds to a function what its computed jumps may lead to, if that is known. `code` are its
    /// bytes, which start at `start` from the object's base.
    pub(super) fn resolve(&self, function: &mut DecodedFunction, code: &[u8], start: u64) {
        if !function.has_computed_jumps() {
            return;
        }
        let Some(tables) = offset_tables(code, start, |ip| function.is_target(ip)) else { return };
        let start = self.object.base.wrapping_add(start);
        let range = start..start.saturating_add(code.len() as u64);
        let mut targets: Vec<u64> = between(self.addresses.get_or_init(|| self.list()), &range).to_vec();
        for table in tables {
            self.add_entries(self.object.base.wrapping_add(table), &range, &mut targets);
        }
        function.set_computed_targets(targets.into_iter().map(|target| target.wrapping_sub(self.object.base)));
    }

    /// The entries of a table of offsets from its beginning, as far as they lead to code.
    fn add_entries(&self, table: u64, wanted: &Range<u64>, targets: &mut Vec<u64>) {
        for entry in 0..MAX_ENTRIES {
            let Some(offset) = table.checked_add(entry * OFFSET_BYTES).and_then(|at| self.object.u32_at(at)) else { return };
            let target = table.wrapping_add_signed(i64::from(offset.cast_signed()));
            if !self.object.is_executable(target) {
                return;
            }
            targets.extend(Some(target).filter(|target| wanted.contains(target)));
        }
    }

    /// Every address of code that the object stores or loads.
    fn list(&self) -> Vec<u64> {
        let segments = &self.object.executable;
        let start = segments.iter().map(|segment| segment.start).min().unwrap_or(0);
        let wanted = start..segments.iter().map(|segment| segment.end).max().unwrap_or(0);
        let mut addresses: Vec<u64> = self.object.stored_words().filter(|word| wanted.contains(word)).collect();
        for segment in segments {
            let bytes = self.object.bytes(segment.clone()).unwrap_or_default();
            for_each_function_pointer(bytes, segment.start, wanted.clone(), |pointer| addresses.push(pointer));
            for_each_constant(bytes, wanted.clone(), |constant| addresses.push(constant));
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

fn between<'a>(sorted: &'a [u64], range: &Range<u64>) -> &'a [u64] {
    let index = |address| sorted.partition_point(|&other| other < address);
    &sorted[index(range.start)..index(range.end)]
}
