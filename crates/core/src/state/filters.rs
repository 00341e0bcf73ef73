//! Filters of a ring's requests (`IORING_REGISTER_BPF_FILTER`): a request is denied unless all
//! filters of its opcode allow it.

use crate::cbpf::BpfProgram;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_abi::Opcode;

/// Words of `struct io_uring_bpf_ctx`.
pub(crate) const FILTER_WORDS: usize = 10;

/// A filter's program.
pub(crate) type Filter = BpfProgram<FILTER_WORDS>;

/// What filters see of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FilterContext {
    pub(crate) user_data: u64,
    pub(crate) opcode: u8,
    /// `IOSQE_*`.
    pub(crate) sqe_flags: u8,
    /// What is special to its opcode: the words, and their size in bytes.
    pub(crate) details: [u32; 6],
    pub(crate) details_size: u8,
}

impl FilterContext {
    /// As a program loads it.
    fn words(&self) -> [u32; FILTER_WORDS] {
        let mut words = [0; FILTER_WORDS];
        words[0] = (self.user_data & 0xffff_ffff) as u32;
        words[1] = (self.user_data >> 32) as u32;
        words[2] = u32::from_le_bytes([self.opcode, self.sqe_flags, self.details_size, 0]);
        words[4..].copy_from_slice(&self.details);
        words
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    by_opcode: BTreeMap<u8, Vec<Arc<Filter>>>,
    /// Opcodes that were denied because they had no filter, a bit each. A later filter does not
    /// change that.
    denied: u128,
}

impl Filters {
    /// Adds a filter. `denies_rest`: opcodes that have none are denied from now on.
    pub(crate) fn add(&mut self, opcode: u8, filter: Filter, denies_rest: bool) {
        self.by_opcode.entry(opcode).or_default().push(Arc::new(filter));
        if denies_rest {
            let without = (0..Opcode::LAST).filter(|other| !self.by_opcode.contains_key(other));
            self.denied |= without.fold(0, |bits, other| bits | 1 << other);
        }
    }

    /// All filters with their opcodes, and the opcodes that are denied without one.
    pub(crate) fn parts(&self) -> (impl Iterator<Item = (u8, &Filter)>, u128) {
        let each = self.by_opcode.iter();
        let all = each.flat_map(|(&opcode, filters)| filters.iter().map(move |filter| (opcode, &**filter)));
        (all, self.denied)
    }

    /// Denies these opcodes, a bit each.
    pub(crate) fn deny(&mut self, opcodes: u128) {
        self.denied |= opcodes;
    }

    /// Whether a request is allowed. `context` is asked only if there is a filter for it.
    pub(crate) fn allow(&self, opcode: u8, context: impl FnOnce() -> FilterContext) -> bool {
        if opcode >= Opcode::LAST || self.denied >> opcode & 1 != 0 {
            return false;
        }
        let Some(filters) = self.by_opcode.get(&opcode) else { return true };
        let words = context().words();
        filters.iter().all(|filter| filter.run(&words) != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_opcode.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbpf::Instruction;
    use alloc::vec;

    /// Returns a word of the context, or a constant.
    fn returning(word: Option<u32>, constant: u32) -> Filter {
        let load = word.map(|offset| Instruction { code: 0x20, k: offset, ..Instruction::default() });
        let end = Instruction { code: if word.is_some() { 0x16 } else { 0x06 }, k: constant, ..Instruction::default() };
        BpfProgram::new(load.into_iter().chain([end]).collect()).unwrap()
    }

    #[test]
    fn all_filters_of_an_opcode_must_allow_a_request() {
        let mut filters = Filters::default();
        assert!(filters.allow(0, || unreachable!()));
        filters.add(0, returning(None, 1), false);
        assert!(filters.allow(0, FilterContext::default) && filters.allow(1, || unreachable!()));
        filters.add(0, returning(None, 0), false);
        filters.add(0, returning(None, 1), false);
        assert!(!filters.allow(0, FilterContext::default));
    }

    #[test]
    fn an_opcode_that_was_denied_stays_so() {
        let mut filters = Filters::default();
        filters.add(0, returning(None, 1), true);
        filters.add(1, returning(None, 1), false);
        assert!(filters.allow(0, FilterContext::default) && !filters.allow(1, FilterContext::default));
        assert!(!filters.allow(2, FilterContext::default) && !filters.allow(Opcode::LAST, FilterContext::default));
    }

    #[test]
    fn a_filter_sees_each_field_at_its_offset() {
        let context =
            FilterContext { user_data: 0x1111_2222_3333_4444, opcode: 18, sqe_flags: 16, details: [1, 2, 3, 4, 5, 6], details_size: 24 };
        let expected = vec![0x3333_4444, 0x1111_2222, 0x0018_1012, 0, 1, 2, 3, 4, 5, 6];
        for (word, expected) in (0..).zip(expected) {
            assert_eq!(returning(Some(4 * word), 0).run(&context.words()), expected);
        }
    }
}
