//! The objects in this process, as far as needed to find the slots through which they call
//! functions of other objects.

use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use uringlet_sys::linux::elf_uapi::{
    DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_STRTAB, DT_SYMTAB, PT_DYNAMIC, PT_GNU_RELRO, PT_LOAD, elf64_phdr, elf64_rela, elf64_sym,
};
use uringlet_sys::linux::general::{PROT_READ, PROT_WRITE};
use uringlet_sys::mm;

use crate::arch::{PAGE, is_got_relocation};
use crate::weak;

/// `Elf64_Dyn`
#[derive(Debug)]
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// `struct dl_phdr_info`: an object, as dl_iterate_phdr(3) passes it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct DlPhdrInfo {
    base: usize,
    name: *const u8,
    segments: *const elf64_phdr,
    segment_count: u16,
    /// Objects loaded so far in the life of the process.
    pub(crate) loads: u64,
}

impl DlPhdrInfo {
    fn segments(&self) -> &[elf64_phdr] {
        // SAFETY: the dynamic linker keeps the program headers of a loaded object in memory.
        unsafe { core::slice::from_raw_parts(self.segments, usize::from(self.segment_count)) }
    }

    /// The addresses of a segment.
    fn span(&self, segment: &elf64_phdr) -> Range<usize> {
        // gVisor's vDSO is linked at a high address: the sum wraps around.
        let start = self.base.wrapping_add(word(segment.p_vaddr));
        start..start + word(segment.p_memsz)
    }

    fn segment(&self, kind: u32) -> Option<Range<usize>> {
        self.segments().iter().find(|segment| segment.p_type == kind).map(|segment| self.span(segment))
    }

    /// The whole pages that the dynamic linker has write-protected after relocation.
    fn read_only(&self) -> Range<usize> {
        self.segment(PT_GNU_RELRO).map_or(0..0, |range| page_of(range.start)..page_of(range.end))
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.segments().iter().any(|segment| segment.p_type == PT_LOAD && self.span(segment).contains(&address))
    }

    /// The value of an entry of the dynamic section; 0 if there is none.
    fn dynamic(&self, tag: u32) -> usize {
        let Some(section) = self.segment(PT_DYNAMIC) else { return 0 };
        let entries = section.len() / size_of::<Dynamic>();
        // SAFETY: a segment of that kind is an array of these, mapped as long as the object is.
        let entries = unsafe { core::slice::from_raw_parts(section.start as *const Dynamic, entries) };
        entries.iter().take_while(|entry| entry.tag != 0).find(|entry| entry.tag == tag as usize).map_or(0, |entry| entry.value)
    }

    /// A dynamic entry that is an address. glibc has added the base to it; musl has not, and in the
    /// vDSO it is not added. What it names lies beside the dynamic section.
    fn address(&self, tag: u32) -> Option<usize> {
        let value = self.dynamic(tag);
        let section = self.segment(PT_DYNAMIC)?.start;
        let is_relative = distance(value, section.wrapping_sub(self.base)) < distance(value, section);
        let address = if is_relative { self.base.wrapping_add(value) } else { value };
        (value != 0).then_some(address)
    }

    fn relocations(&self, table: u32, len: u32) -> &[elf64_rela] {
        let Some(start) = self.address(table) else { return &[] };
        // SAFETY: address and length are those of the dynamic section.
        unsafe { core::slice::from_raw_parts(start as *const elf64_rela, self.dynamic(len) / size_of::<elf64_rela>()) }
    }

    /// Calls `f` for each slot that holds the address of a function from elsewhere, with the
    /// function's name.
    pub(crate) fn for_each_import(&self, mut f: impl FnMut(&CStr, GotSlot)) {
        let (Some(symbols), Some(names)) = (self.address(DT_SYMTAB), self.address(DT_STRTAB)) else { return };
        let tables = [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)];
        let all = tables.into_iter().flat_map(|(table, len)| self.relocations(table, len));
        for relocation in all.filter(|relocation| is_got_relocation(relocation_type(relocation))) {
            // SAFETY: a relocation has the index of a symbol, which has the offset of its name.
            let name = unsafe {
                let symbol = &*(symbols as *const elf64_sym).add(symbol_index(relocation));
                CStr::from_ptr((names as *const core::ffi::c_char).add(symbol.st_name as usize))
            };
            f(name, GotSlot { at: self.base.wrapping_add(word(relocation.r_offset)), read_only: self.read_only() });
        }
    }
}

/// A 64-bit word as a pointer-sized number: the structures are those of 64-bit objects.
fn word(value: u64) -> usize {
    const { assert!(size_of::<usize>() == size_of::<u64>()) };
    value as usize
}

/// `ELF64_R_TYPE`: the low half.
fn relocation_type(relocation: &elf64_rela) -> u32 {
    (relocation.r_info & u64::from(u32::MAX)) as u32
}

/// `ELF64_R_SYM`: the high half.
fn symbol_index(relocation: &elf64_rela) -> usize {
    word(relocation.r_info >> 32)
}

/// How far two addresses are apart, bytes.
fn distance(a: usize, b: usize) -> usize {
    a.wrapping_sub(b).min(b.wrapping_sub(a))
}

fn page_of(address: usize) -> usize {
    address & !(PAGE - 1)
}

/// A slot of an object's global offset table.
#[derive(Debug)]
pub(crate) struct GotSlot {
    at: usize,
    /// The write-protected pages of the object.
    read_only: Range<usize>,
}

impl GotSlot {
    /// Makes all calls through this slot reach `function`.
    pub(crate) fn point_to(&self, function: usize) {
        // SAFETY: an aligned word of the object; other threads only load it, as a whole.
        let word = unsafe { &*(self.at as *const AtomicUsize) };
        if word.load(Relaxed) == function {
            return;
        }
        let page = page_of(self.at);
        let is_protected = self.read_only.contains(&page);
        // SAFETY: the page stays readable.
        if is_protected && unsafe { mm::protect(page, PAGE, PROT_READ | PROT_WRITE) }.is_err() {
            return;
        }
        word.store(function, Relaxed);
        if is_protected {
            // SAFETY: as before the change.
            let _ = unsafe { mm::protect(page, PAGE, PROT_READ) };
        }
    }
}

/// Calls `f` with each loaded object until it returns `false`.
pub(crate) fn for_each_object<F: FnMut(&DlPhdrInfo) -> bool>(mut f: F) {
    extern "C" fn show<F: FnMut(&DlPhdrInfo) -> bool>(object: &DlPhdrInfo, _len: usize, f: &mut F) -> i32 {
        i32::from(!f(object))
    }
    if let Some(iterate) = weak::dl_iterate_phdr() {
        let callback: extern "C" fn(&DlPhdrInfo, usize, &mut F) -> i32 = show::<F>;
        // SAFETY: the callback is given the `f` it was made for; function pointers have the same
        // representation whatever their arguments.
        unsafe {
            iterate(
                core::mem::transmute::<extern "C" fn(&DlPhdrInfo, usize, &mut F) -> i32, weak::ShowObject>(callback),
                (&raw mut f).cast(),
            )
        };
    }
}
