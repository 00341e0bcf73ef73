//! The symbols that a loaded object defines, read from its dynamic section: without the dynamic
//! linker's functions, which the program may have replaced by its own.

use core::ffi::{CStr, c_char};

use uringlet_sys::linux::elf_uapi::{
    DT_GNU_HASH, DT_HASH, DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELACOUNT, DT_RELASZ, DT_STRTAB, DT_SYMTAB, DT_VERSYM, elf64_rela, elf64_sym,
};

/// Set in a version number: not the symbol's default version.
const VERSION_HIDDEN: u16 = 0x8000;
/// Version numbers below this one name no version.
const FIRST_VERSION: u16 = 2;
const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;

/// `Elf64_Dyn`
#[derive(Clone, Copy)]
#[repr(C)]
struct DynamicEntry {
    tag: usize,
    value: usize,
}

/// Addresses of the tables of one object; 0: it has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SymbolTable {
    base: usize,
    symbols: usize,
    names: usize,
    versions: usize,
    gnu_hash: usize,
    sysv_hash: usize,
    /// Address and length (bytes) of the relocations of data behind the relative ones, and of those
    /// of calls.
    relocations: [(usize, usize); 2],
}

/// A value in the tables of a loaded object.
fn load<T: Copy>(table: usize, index: usize) -> T {
    // SAFETY: `SymbolTable::new` was promised a loaded object, and its tables say where and how
    // long they are. `T` consists of integers.
    unsafe { (table as *const T).add(index).read() }
}

/// The address in an entry of the section at `dynamic`. glibc has added the base; musl has not, and
/// in the vDSO it is not added. The tables lie beside the section. A vDSO may be linked at a high
/// address (gVisor).
fn entry_address(value: usize, base: usize, dynamic: usize) -> usize {
    let is_relative = distance(value, dynamic.wrapping_sub(base)) < distance(value, dynamic);
    if is_relative { base.wrapping_add(value) } else { value }
}

/// How far two addresses are apart, bytes.
fn distance(a: usize, b: usize) -> usize {
    a.wrapping_sub(b).min(b.wrapping_sub(a))
}

impl SymbolTable {
    /// # Safety
    /// `dynamic` is the address of the dynamic section of an object that is loaded at `base` and
    /// stays loaded as long as the result is used.
    pub(crate) unsafe fn new(base: usize, dynamic: usize) -> Self {
        let mut table = Self { base, ..Self::default() };
        let mut relative = 0;
        for entry in (0..).map(|index| load::<DynamicEntry>(dynamic, index)).take_while(|entry| entry.tag != 0) {
            let address = entry_address(entry.value, base, dynamic);
            match u32::try_from(entry.tag) {
                Ok(DT_SYMTAB) => table.symbols = address,
                Ok(DT_STRTAB) => table.names = address,
                Ok(DT_VERSYM) => table.versions = address,
                Ok(DT_GNU_HASH) => table.gnu_hash = address,
                Ok(DT_HASH) => table.sysv_hash = address,
                Ok(DT_RELA) => table.relocations[0].0 = address,
                Ok(DT_RELASZ) => table.relocations[0].1 = entry.value,
                Ok(DT_RELACOUNT) => relative = entry.value.saturating_mul(size_of::<elf64_rela>()),
                Ok(DT_JMPREL) => table.relocations[1].0 = address,
                Ok(DT_PLTRELSZ) => table.relocations[1].1 = entry.value,
                _ => {}
            }
        }
        // Linkers put those that name no symbol first; often they are most.
        let (data, bytes) = &mut table.relocations[0];
        relative = relative.min(*bytes);
        (*data, *bytes) = (data.wrapping_add(relative), *bytes - relative);
        table
    }

    /// The address of the function `name` in its default version, as dlsym(3) finds it.
    pub(crate) fn function(&self, name: &CStr) -> Option<usize> {
        let index = if self.gnu_hash != 0 { self.find_by_gnu_hash(name) } else { self.find_by_sysv_hash(name) };
        let symbol: elf64_sym = load(self.symbols, index?);
        Some(self.base.wrapping_add(crate::convert::address(symbol.st_value)))
    }

    /// The names that the object binds: undefined symbols that its relocations refer to.
    pub(crate) fn bound(self) -> impl Iterator<Item = &'static CStr> {
        let tables = self.relocations.into_iter().filter(|(address, _)| *address != 0);
        let entries = tables.flat_map(|(address, bytes)| {
            let count = bytes / size_of::<elf64_rela>();
            (0..count).map(move |index| load::<elf64_rela>(address, index))
        });
        entries.filter_map(move |entry| {
            let index = crate::convert::address(entry.r_info >> 32);
            let symbol: elf64_sym = if index == 0 { return None } else { load(self.symbols, index) };
            (symbol.st_shndx == 0).then(|| self.name(&symbol))
        })
    }

    /// The function that an address lies in, and how far behind its beginning, bytes.
    pub(crate) fn containing(&self, address: usize) -> Option<(&'static CStr, usize)> {
        let offset = address.wrapping_sub(self.base) as u64;
        (0..self.count()).find_map(|index| {
            let symbol: elf64_sym = load(self.symbols, index);
            let inside = offset.wrapping_sub(symbol.st_value);
            let is_it = symbol.st_shndx != 0 && symbol.st_info & 0xf == STT_FUNC && inside < symbol.st_size;
            is_it.then(|| (self.name(&symbol), crate::convert::address(inside)))
        })
    }

    /// The number of symbols.
    fn count(&self) -> usize {
        if self.gnu_hash == 0 {
            return if self.sysv_hash == 0 { 0 } else { load::<[u32; 2]>(self.sysv_hash, 0)[1] as usize };
        }
        let [buckets, first, words, _] = load::<[u32; 4]>(self.gnu_hash, 0);
        let bucket_table = self.gnu_hash + 16 + 8 * words as usize;
        let chain = bucket_table + 4 * buckets as usize;
        let last = (0..buckets as usize).map(|bucket| load::<u32>(bucket_table, bucket)).max().unwrap_or(0);
        if last < first {
            return first as usize;
        }
        // The last chain ends at an entry whose lowest bit is set.
        let rest = (0..).take_while(|at| load::<u32>(chain, (last - first) as usize + at) & 1 == 0).count();
        last as usize + rest + 1
    }

    /// A symbol's name.
    fn name(&self, symbol: &elf64_sym) -> &'static CStr {
        // SAFETY: the table of names is loaded as long as the object, and each name ends in NUL.
        unsafe { CStr::from_ptr((self.names + symbol.st_name as usize) as *const c_char) }
    }

    /// Whether the symbol at `index` is the function wanted.
    fn is(&self, index: usize, name: &CStr) -> bool {
        let symbol: elf64_sym = load(self.symbols, index);
        let is_function = matches!(symbol.st_info & 0xf, STT_FUNC | STT_NOTYPE);
        if symbol.st_shndx == 0 || symbol.st_value == 0 || !is_function {
            return false;
        }
        let version = if self.versions == 0 { 0 } else { load::<u16>(self.versions, index) };
        let is_default = version & VERSION_HIDDEN == 0 || version & !VERSION_HIDDEN < FIRST_VERSION;
        let has_name =
            || name.to_bytes_with_nul().iter().enumerate().all(|(at, &byte)| load::<u8>(self.names + symbol.st_name as usize, at) == byte);
        is_default && has_name()
    }

    fn find_by_gnu_hash(&self, name: &CStr) -> Option<usize> {
        let hash = name.to_bytes().iter().fold(5381_u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
        let [buckets, first, words, shift] = load::<[u32; 4]>(self.gnu_hash, 0);
        let bloom = self.gnu_hash + 16;
        let word: u64 = load(bloom, (hash / u64::BITS % words) as usize);
        if word >> (hash % u64::BITS) & word >> ((hash >> shift) % u64::BITS) & 1 == 0 {
            return None;
        }
        let bucket_table = bloom + 8 * words as usize;
        let chain = bucket_table + 4 * buckets as usize;
        let mut index = load::<u32>(bucket_table, (hash % buckets) as usize);
        while index >= first {
            let entry: u32 = load(chain, (index - first) as usize);
            if entry | 1 == hash | 1 && self.is(index as usize, name) {
                return Some(index as usize);
            }
            if entry & 1 == 1 {
                return None;
            }
            index += 1;
        }
        None
    }

    fn find_by_sysv_hash(&self, name: &CStr) -> Option<usize> {
        if self.sysv_hash == 0 {
            return None;
        }
        let hash = name.to_bytes().iter().fold(0_u32, |hash, &byte| {
            let hash = (hash << 4).wrapping_add(u32::from(byte));
            (hash ^ (hash >> 24 & 0xf0)) & 0x0fff_ffff
        });
        let [buckets, _] = load::<[u32; 2]>(self.sysv_hash, 0);
        let (bucket_table, chain) = (self.sysv_hash + 8, self.sysv_hash + 8 + 4 * buckets as usize);
        let mut index = load::<u32>(bucket_table, (hash % buckets) as usize);
        while index != 0 && !self.is(index as usize, name) {
            index = load(chain, index as usize);
        }
        (index != 0).then_some(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_whether_the_base_was_added_or_not() {
        let dynamic = 0x7eab_1260_03a8_usize;
        // Linked at 0, at a low address, and where gVisor links its vDSO.
        for linked_at in [0x1_4b0e8, 0x40_0000, 0xffff_ffff_ff70_03a8] {
            let base = dynamic.wrapping_sub(linked_at);
            let table = dynamic - 0x200;
            assert_eq!(entry_address(table, base, dynamic), table, "linked at {linked_at:#x}, added");
            assert_eq!(entry_address(table.wrapping_sub(base), base, dynamic), table, "linked at {linked_at:#x}, not added");
        }
        assert_eq!(entry_address(0x40_0200, 0, 0x40_0000), 0x40_0200);
    }
}
