//! The loaded objects and what their program headers say.

use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;

use uringlet_sys::linux::elf_uapi::{PF_R, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE, elf64_hdr, elf64_phdr};

use crate::arch::weak_address;
use crate::convert::address;
use crate::libc_symbols;
use crate::symbol_table::SymbolTable;

/// The beginning of libc's `struct dl_phdr_info`, which all versions share.
#[repr(C)]
struct PhdrInfo {
    base: u64,
    name: *const c_char,
    headers: *const elf64_phdr,
    count: u16,
}

/// A loaded object. Addresses are of the process.
#[derive(Clone, Debug)]
pub(crate) struct LoadedObject {
    /// Empty for the program itself.
    pub(crate) name: Vec<u8>,
    pub(crate) base: u64,
    pub(crate) readable: Vec<Range<u64>>,
    pub(crate) executable: Vec<Range<u64>>,
    pub(crate) build_id: Vec<u8>,
    pub(crate) eh_frame_hdr: Option<u64>,
    pub(crate) dynamic: Option<u64>,
    /// A program without a dynamic linker: its libc and runtime are part of it, so every call that
    /// concerns the engine is made in its own code.
    pub(crate) is_static: bool,
    /// The words that a static program will store before its first call, by address. The data holds
    /// zeros there so far.
    relocated: Vec<(u64, u64)>,
}

impl LoadedObject {
    /// From its lowest mapped address to its highest.
    pub(crate) fn span(&self) -> Range<u64> {
        let start = self.readable.iter().map(|r| r.start).min().unwrap_or(self.base);
        let end = self.readable.iter().map(|r| r.end).max().unwrap_or(self.base);
        start..end
    }

    pub(crate) fn contains(&self, address: usize) -> bool {
        self.readable.iter().chain(&self.executable).any(|r| r.contains(&(address as u64)))
    }

    /// The bytes in a range, if all of it is readable and mapped from the file.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let inside = |r: &Range<u64>| r.start <= range.start && range.start <= range.end && range.end <= r.end;
        self.readable.iter().any(inside).then(|| {
            // SAFETY: the range lies in a readable segment of an object that stays loaded
            // meanwhile: in the constructor no other thread runs, later the dynamic linker's lock
            // is held.
            unsafe { core::slice::from_raw_parts(range.start as *const u8, address(range.end - range.start)) }
        })
    }

    /// The object as if it had stored these words already; they are sorted.
    pub(super) fn with_relocated(&self, relocated: Vec<(u64, u64)>) -> Self {
        Self { relocated, ..self.clone() }
    }

    /// The aligned words of its data, with their addresses.
    pub(crate) fn data_words(&self) -> impl Iterator<Item = (u64, u64)> {
        let data = self.readable.iter().filter(|segment| !self.executable.contains(segment));
        data.flat_map(|segment| self.words_in(segment)).chain(self.relocated.iter().copied())
    }

    /// The aligned words of all of it. A linker may have put constants among the code.
    pub(super) fn stored_words(&self) -> impl Iterator<Item = u64> {
        let words = self.readable.iter().flat_map(|segment| self.words_in(segment));
        words.chain(self.relocated.iter().copied()).map(|(_, word)| word)
    }

    fn words_in(&self, segment: &Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        const WORD: usize = size_of::<u64>();
        let start = segment.start.next_multiple_of(WORD as u64);
        let bytes = self.bytes(start..segment.end).unwrap_or_default();
        let words = bytes.chunks_exact(WORD).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        (start..).step_by(WORD).zip(words)
    }

    /// Whether code may be there.
    pub(super) fn is_executable(&self, address: u64) -> bool {
        self.executable.iter().any(|segment| segment.contains(&address))
    }

    /// The array at `at`, if it is readable.
    pub(crate) fn field<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        self.bytes(at..at.checked_add(N as u64)?)?.try_into().ok()
    }

    pub(crate) fn u32_at(&self, at: u64) -> Option<u32> {
        self.field(at).map(u32::from_le_bytes)
    }

    pub(crate) fn u64_at(&self, at: u64) -> Option<u64> {
        let relocated = self.relocated.binary_search_by_key(&at, |&(place, _)| place);
        relocated.ok().map(|index| self.relocated[index].1).or_else(|| self.field(at).map(u64::from_le_bytes))
    }

    /// libc and the dynamic linker stay as they are: their own calls never concern a ring, and
    /// thread cancellation relies on every byte of them. So do the vDSO and this object.
    pub(crate) fn is_exempt(&self) -> bool {
        const EXEMPT: [&[u8]; 4] = [b"linux-vdso.so.1", b"linux-gate.so.1", b"libpthread.so.0", b"ld-linux-x86-64.so.2"];
        let file = self.name.rsplit(|&b| b == b'/').next().unwrap_or_default();
        let residents = [loaded as *const () as usize, weak_address!("__errno_location"), weak_address!("_r_debug")];
        EXEMPT.contains(&file) || residents.iter().any(|&address| address != 0 && self.contains(address))
    }

    /// Its dynamic symbols.
    pub(crate) fn symbols(&self) -> Option<SymbolTable> {
        // SAFETY: the object's own tables; it stays loaded meanwhile.
        self.dynamic.map(|dynamic| unsafe { SymbolTable::new(address(self.base), address(dynamic)) })
    }

    /// The value of an entry of the dynamic section.
    pub(crate) fn dynamic_entry(&self, tag: u64) -> Option<u64> {
        let mut at = self.dynamic?;
        loop {
            match self.u64_at(at)? {
                0 => return None,
                t if t == tag => return self.u64_at(at + 8),
                _ => at += 16,
            }
        }
    }

    /// The library that the dynamic linker has loaded at `base`. Every static linker puts the
    /// headers into the first segment, and that to the beginning.
    fn at(base: usize, name: usize) -> Option<Self> {
        const MAGIC: u32 = 0x464c_457f;
        if base == 0 {
            return None;
        }
        // SAFETY: see above; the name is the linker's own.
        unsafe {
            let header = &*(base as *const elf64_hdr);
            let headers = (base + address(header.e_phoff)) as *const elf64_phdr;
            let info = PhdrInfo { base: base as u64, name: name as *const c_char, headers, count: header.e_phnum };
            ((base as *const u32).read() == MAGIC).then(|| Self::from_info(&info))
        }
    }

    /// The static program that is mapped from the file `name`, with its table of headers at
    /// `headers`; 0: that is not mapped, so nothing of the program is known.
    pub(crate) fn of_static(name: &[u8], base: u64, headers: u64, count: u16) -> Self {
        let info = PhdrInfo { base, name: core::ptr::null(), headers: headers as *const elf64_phdr, count };
        // SAFETY: the loader has checked and mapped the table.
        let object = unsafe { Self::from_info(&info) };
        Self { name: name.to_vec(), is_static: true, ..object }
    }

    /// # Safety
    /// `info` is what dl_iterate_phdr passes.
    unsafe fn from_info(info: &PhdrInfo) -> Self {
        // SAFETY: the dynamic linker's own table of the object's headers, and its name.
        let (headers, name) = unsafe {
            let headers = if info.headers.is_null() { &[] } else { core::slice::from_raw_parts(info.headers, usize::from(info.count)) };
            (headers, if info.name.is_null() { c"" } else { CStr::from_ptr(info.name) })
        };
        let mut object = Self {
            name: name.to_bytes().to_vec(),
            base: info.base,
            readable: Vec::new(),
            executable: Vec::new(),
            build_id: Vec::new(),
            eh_frame_hdr: None,
            dynamic: None,
            is_static: false,
            relocated: Vec::new(),
        };
        for header in headers {
            object.add_header(header);
        }
        let notes = headers.iter().filter(|h| h.p_type == PT_NOTE);
        for note in notes {
            let start = object.base.wrapping_add(note.p_vaddr);
            if object.build_id.is_empty()
                && let Some(id) = object.bytes(start..start + note.p_memsz).and_then(build_id)
            {
                object.build_id = id.to_vec();
            }
        }
        object
    }

    fn add_header(&mut self, header: &elf64_phdr) {
        let start = self.base.wrapping_add(header.p_vaddr);
        match header.p_type {
            PT_LOAD => {
                // Up to the file's end: zeros lie behind.
                let range = start..start + header.p_filesz.min(header.p_memsz);
                if header.p_flags & PF_R != 0 {
                    self.readable.push(range.clone());
                    if header.p_flags & PF_X != 0 {
                        self.executable.push(range);
                    }
                }
            }
            PT_DYNAMIC => self.dynamic = Some(start),
            PT_GNU_EH_FRAME => self.eh_frame_hdr = Some(start),
            _ => {}
        }
    }
}

/// The build-id that the linker wrote, among the notes of a segment: GNU's, or else Go's. Go's is
/// a digest of what the program was built from; one that the builder chose says nothing.
fn build_id(notes: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    const NT_GO_BUILD_ID: u32 = 4;
    let gnu = || find_note(notes, b"GNU\0", NT_GNU_BUILD_ID).filter(|id| (4..=64).contains(&id.len()));
    let go = || find_note(notes, b"Go\0\0", NT_GO_BUILD_ID).filter(|id| (40..=120).contains(&id.len()) && id.contains(&b'/'));
    gnu().or_else(go)
}

/// The content of the note with this name, padded to four bytes.
fn find_note<'a>(mut notes: &'a [u8], name: &[u8; 4], kind: u32) -> Option<&'a [u8]> {
    loop {
        let word = |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?));
        let (name_len, len, kind_here) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let at = 12 + name_len.next_multiple_of(4);
        let content = notes.get(at..at.checked_add(len)?)?;
        if kind_here == kind && notes.get(12..16) == Some(name) && name_len == 4 {
            return Some(content);
        }
        notes = notes.get(at + len.next_multiple_of(4)..)?;
    }
}

type Callback = unsafe extern "C" fn(*mut PhdrInfo, usize, *mut c_void) -> c_int;

unsafe extern "C" fn collect(info: *mut PhdrInfo, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid entry, and our vector.
    unsafe { (*data.cast::<Vec<LoadedObject>>()).push(LoadedObject::from_info(&*info)) };
    0
}

/// All objects in the process, in search order.
pub(crate) fn loaded() -> Vec<LoadedObject> {
    let mut objects: Vec<LoadedObject> = Vec::new();
    let iterate = libc_symbols::address_of(c"dl_iterate_phdr");
    if iterate != 0 {
        // SAFETY: the signature it has in glibc and musl; `collect` gets back the vector it
        // expects.
        unsafe {
            let iterate: unsafe extern "C" fn(Callback, *mut c_void) -> c_int = core::mem::transmute(iterate);
            iterate(collect, (&raw mut objects).cast());
        }
    }
    for (base, name) in libc_symbols::objects_elsewhere() {
        // The dynamic linker is in every namespace.
        if objects.iter().all(|object| object.base != base as u64) {
            objects.extend(LoadedObject::at(base, name));
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_id_is_found_behind_other_notes() {
        let mut notes = Vec::new();
        for (kind, name, content) in [(1_u32, &b"GNU\0"[..], &[9; 16][..]), (3, b"Go\0\0", &[8; 20]), (3, b"GNU\0", &[7; 20])] {
            notes.extend_from_slice(&4_u32.to_le_bytes());
            notes.extend_from_slice(&crate::convert::count(content.len()).to_le_bytes());
            notes.extend_from_slice(&kind.to_le_bytes());
            notes.extend_from_slice(name);
            notes.extend_from_slice(content);
        }
        assert_eq!(build_id(&notes), Some(&[7; 20][..]));
        assert_eq!(build_id(&notes[..40]), None);
        assert_eq!(build_id(&[0xff; 64]), None);
    }

    #[test]
    fn go_build_id_serves_where_the_linker_wrote_none() {
        let note = |id: &[u8]| {
            let words = [4, crate::convert::count(id.len()), 4].map(u32::to_le_bytes).concat();
            [&words[..], b"Go\0\0", id, &[0; 4][..id.len().next_multiple_of(4) - id.len()]].concat()
        };
        let id = [&[b'a'; 20][..], b"/", &[b'b'; 62]].concat();
        assert_eq!(build_id(&note(&id)), Some(&id[..]));
        assert_eq!(build_id(&note(b"redacted")), None);
        let both = [note(&id), [4_u32, 20, 3].map(u32::to_le_bytes).concat(), b"GNU\0".to_vec(), vec![7; 20]].concat();
        assert_eq!(build_id(&both), Some(&[7; 20][..]));
    }

    #[test]
    fn this_program_is_one_of_the_objects() {
        let me = build_id_is_found_behind_other_notes as *const () as usize;
        assert_eq!(loaded().iter().filter(|o| o.contains(me)).count(), 1);
    }
}
