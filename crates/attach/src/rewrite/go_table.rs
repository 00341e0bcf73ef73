//! Which function of Go code an address lies in, from the table by which Go's runtime walks stacks
//! (`.gopclntab`). Go's linker writes no unwind tables.
//!
//! Source: `pcHeader` and `moduledata` in runtime/symtab.go of Go 1.18 to 1.26.

use core::ops::Range;

use super::object::LoadedObject;

/// The first eight bytes of the table: Go 1.18's or Go 1.20's magic number, two zeros, instructions
/// of one byte or more, pointers of eight bytes.
const HEADERS: [u64; 2] = [0x0801_0000_ffff_fff0, 0x0801_0000_ffff_fff1];
const WORD: u64 = size_of::<u64>() as u64;
/// Offsets in the table's header. Go 1.26 stores no address of the code there.
const FUNCTION_COUNT: u64 = 8;
const TEXT_START: u64 = 24;
const FUNCTIONS: u64 = 64;
/// Offsets in `moduledata`, which starts with the address of the table's header.
const MODULE_FUNCTION_COUNT: u64 = 136;
const MODULE_FIRST_FUNCTION: u64 = 160;
const MODULE_TEXT: u64 = 176;
/// No program has more functions.
const MAX_FUNCTIONS: u64 = 1 << 26;

/// Whether this is a Go program that makes all its system calls itself, those of its signals too.
pub(crate) fn is_static_go(object: &LoadedObject) -> bool {
    object.is_static && GoTable::of(object).is_some()
}

/// The table: an entry of eight bytes a function (the offsets of its code and of what is known of
/// it), in the order of their code, and the end of the last one.
pub(super) struct GoTable<'a> {
    object: &'a LoadedObject,
    table: u64,
    count: u64,
    /// What the offsets of code count from.
    text: u64,
}

impl<'a> GoTable<'a> {
    pub(super) fn of(object: &'a LoadedObject) -> Option<Self> {
        object.data_words().filter(|(_, word)| HEADERS.contains(word)).find_map(|(header, _)| Self::at(object, header))
    }

    /// The table with its header at this address, if it is plausible.
    fn at(object: &'a LoadedObject, header: u64) -> Option<Self> {
        let count = object.u64_at(header + FUNCTION_COUNT)?;
        let table = header.checked_add(object.u64_at(header + FUNCTIONS)?)?;
        if !(1..MAX_FUNCTIONS).contains(&count) || object.bytes(table..table.checked_add(WORD * count + 4)?).is_none() {
            return None;
        }
        let unknown = Self { object, table, count, text: 0 };
        let stored = object.u64_at(header + TEXT_START)?;
        let text = if stored == 0 { unknown.text_by_module(header)? } else { stored };
        let found = Self { text, ..unknown };
        let code = found.start_of(0)?..found.start_of(count)?;
        object.executable.iter().any(|segment| segment.start <= code.start && code.end <= segment.end).then_some(found)
    }

    /// The address of the code, from the `moduledata` of this table.
    fn text_by_module(&self, header: u64) -> Option<u64> {
        self.object.data_words().filter(|&(_, word)| word == header).find_map(|(module, _)| {
            let text = self.object.u64_at(module + MODULE_TEXT)?;
            let first = text.checked_add(u64::from(self.object.u32_at(self.table)?))?;
            let is_its = self.object.u64_at(module + MODULE_FUNCTION_COUNT)? == self.count + 1
                && self.object.u64_at(module + MODULE_FIRST_FUNCTION)? == first;
            is_its.then_some(text)
        })
    }

    /// Where a function starts, and behind the last one the end of all.
    fn start_of(&self, index: u64) -> Option<u64> {
        self.text.checked_add(u64::from(self.object.u32_at(self.table + WORD * index)?))
    }

    /// The function that contains `address`, with the padding behind it.
    pub(super) fn containing(&self, address: u64) -> Option<Range<u64>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start_of(middle)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        let range = self.start_of(index)?..self.start_of(index + 1)?;
        // What is known of a function starts with the offset of its code again.
        let known = self.table + u64::from(self.object.u32_at(self.table + WORD * index + 4)?);
        (range.contains(&address) && self.object.u32_at(known) == self.object.u32_at(self.table + WORD * index)).then_some(range)
    }
}
