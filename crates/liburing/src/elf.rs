//! The objects in this process, as far as it takes to find the slots through which they call functions of other objects.

use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use syscalls::{Sysno, raw_syscall};

use crate::sizes::PAGE;
use crate::weak;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_RELRO: u32 = 0x6474_e552;

const DT_PLTRELSZ: usize = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;

const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

const PROT_READ: usize = 1;
const PROT_READ_WRITE: usize = 3;

/// `Elf64_Phdr`
#[derive(Debug)]
#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: usize,
    physical: usize,
    file_len: usize,
    len: usize,
    align: usize,
}

/// `Elf64_Dyn`
#[derive(Debug)]
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// `Elf64_Rela`
#[derive(Debug)]
#[repr(C)]
struct Relocation {
    offset: usize,
    kind: u32,
    symbol: u32,
    addend: usize,
}

/// `Elf64_Sym`
#[derive(Debug)]
#[repr(C)]
struct Symbol {
    name: u32,
    kind: u8,
    visibility: u8,
    section: u16,
    value: usize,
    len: usize,
}

/// `struct dl_phdr_info`: an object, as dl_iterate_phdr(3) shows it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct DlPhdrInfo {
    base: usize,
    name: *const u8,
    segments: *const Segment,
    segment_count: u16,
    /// Objects loaded so far in the life of the process.
    pub(crate) loads: u64,
}

impl DlPhdrInfo {
    fn segments(&self) -> &[Segment] {
        // SAFETY: the loader keeps the program headers of a loaded object in memory.
        unsafe { core::slice::from_raw_parts(self.segments, self.segment_count as usize) }
    }

    fn segment(&self, kind: u32) -> Option<Range<usize>> {
        let found = self.segments().iter().find(|segment| segment.kind == kind)?;
        Some(self.base + found.address..self.base + found.address + found.len)
    }

    /// Whole pages that the loader has write-protected after relocation.
    fn read_only(&self) -> Range<usize> {
        self.segment(PT_GNU_RELRO).map_or(0..0, |range| page_of(range.start)..page_of(range.end))
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        let inside = |s: &Segment| s.kind == PT_LOAD && (self.base + s.address..self.base + s.address + s.len).contains(&address);
        self.segments().iter().any(inside)
    }

    /// The value of an entry of the dynamic section; 0 if there is none.
    fn dynamic(&self, tag: usize) -> usize {
        let Some(section) = self.segment(PT_DYNAMIC) else { return 0 };
        let entries = section.len() / size_of::<Dynamic>();
        // SAFETY: the segment of that kind is an array of these, mapped while the object is.
        let entries = unsafe { core::slice::from_raw_parts(section.start as *const Dynamic, entries) };
        entries.iter().take_while(|entry| entry.tag != 0).find(|entry| entry.tag == tag).map_or(0, |entry| entry.value)
    }

    /// A dynamic entry that is an address. glibc has added the base to it, musl and the kernel's vDSO have not.
    fn address(&self, tag: usize) -> Option<usize> {
        match self.dynamic(tag) {
            0 => None,
            value if value < self.base => Some(self.base + value),
            value => Some(value),
        }
    }

    fn relocations(&self, table: usize, len: usize) -> &[Relocation] {
        let Some(start) = self.address(table) else { return &[] };
        // SAFETY: the dynamic section says so.
        unsafe { core::slice::from_raw_parts(start as *const Relocation, self.dynamic(len) / size_of::<Relocation>()) }
    }

    /// Calls `f` for each slot that holds the address of a function from elsewhere, with the function's name.
    pub(crate) fn for_each_import(&self, mut f: impl FnMut(&CStr, GotSlot)) {
        let (Some(symbols), Some(names)) = (self.address(DT_SYMTAB), self.address(DT_STRTAB)) else { return };
        let tables = [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)];
        let all = tables.into_iter().flat_map(|(table, len)| self.relocations(table, len));
        for relocation in all.filter(|relocation| matches!(relocation.kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)) {
            // SAFETY: a relocation names an entry of the symbol table, that an entry of the string table.
            let name = unsafe {
                let symbol = &*(symbols as *const Symbol).add(relocation.symbol as usize);
                CStr::from_ptr((names as *const core::ffi::c_char).add(symbol.name as usize))
            };
            f(name, GotSlot { at: self.base + relocation.offset, read_only: self.read_only() });
        }
    }
}

fn page_of(address: usize) -> usize {
    address & !(PAGE - 1)
}

/// A word in an object's offset table.
#[derive(Debug)]
pub(crate) struct GotSlot {
    at: usize,
    /// What is write-protected around it.
    read_only: Range<usize>,
}

impl GotSlot {
    /// Makes all calls through this slot go to `function`.
    pub(crate) fn point_to(&self, function: usize) {
        // SAFETY: relocation found an aligned word here; other threads only ever load it, whole.
        let word = unsafe { &*(self.at as *const AtomicUsize) };
        if word.load(Relaxed) == function {
            return;
        }
        let page = page_of(self.at);
        let is_protected = self.read_only.contains(&page);
        // SAFETY: nobody loses access to the page meanwhile.
        if is_protected && unsafe { raw_syscall!(Sysno::mprotect, page, PAGE, PROT_READ_WRITE) } != 0 {
            return;
        }
        word.store(function, Relaxed);
        if is_protected {
            // SAFETY: as it was before.
            unsafe { raw_syscall!(Sysno::mprotect, page, PAGE, PROT_READ) };
        }
    }
}

/// Shows each loaded object to `f` until it answers `false`.
pub(crate) fn for_each_object<F: FnMut(&DlPhdrInfo) -> bool>(mut f: F) {
    extern "C" fn show<F: FnMut(&DlPhdrInfo) -> bool>(object: &DlPhdrInfo, _len: usize, f: &mut F) -> i32 {
        i32::from(!f(object))
    }
    if let Some(iterate) = weak::dl_iterate_phdr() {
        let callback: extern "C" fn(&DlPhdrInfo, usize, &mut F) -> i32 = show::<F>;
        // SAFETY: the callback gets back the `f` it was made for; a function pointer is an address whatever it takes.
        unsafe {
            iterate(
                core::mem::transmute::<extern "C" fn(&DlPhdrInfo, usize, &mut F) -> i32, weak::ShowObject>(callback),
                (&raw mut f).cast(),
            )
        };
    }
}
