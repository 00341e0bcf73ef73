//! What the headers of a static executable say. Pure: bytes in, a description or an error out.
//!
//! The checks are those of the kernel's ELF loader, and a few that it leaves to a later crash:
//! what passes can be mapped, and its first instruction lies in its code.

use alloc::vec::Vec;
use core::ops::Range;

use uringlet_sys::linux::elf_uapi::{ET_DYN, ET_EXEC, PF_R, PF_W, PF_X, PT_GNU_STACK, PT_INTERP, PT_LOAD, elf64_hdr, elf64_phdr};
use uringlet_sys::linux::general::{PROT_EXEC, PROT_READ, PROT_WRITE};

use crate::arch::{ELF_MACHINE, PAGE};

const PAGE_BYTES: u64 = PAGE as u64;
/// The first address that no program has.
const ADDRESS_END: u64 = 1 << 47;
/// The kernel reads no longer table.
const MAX_TABLE_BYTES: usize = 64 << 10;

/// Bytes of the file header.
pub(crate) const HEADER_BYTES: usize = size_of::<elf64_hdr>();
const ENTRY_BYTES: usize = size_of::<elf64_phdr>();

/// Why a file is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageError {
    NotElf,
    Foreign,
    Truncated,
    Dynamic,
    BadHeaders,
    BadEntry,
}

impl ImageError {
    /// For the user.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NotElf => "is not an ELF file",
            Self::Foreign => "is built for another architecture; uringlet attaches to 64-bit x86 programs",
            Self::Truncated => "is a truncated ELF file; install it again",
            Self::Dynamic => "is dynamically linked: its dynamic linker has to start it",
            Self::BadHeaders => "is a damaged ELF file: its program headers contradict each other; install it again",
            Self::BadEntry => "is a damaged ELF file: its first instruction is not in its code; install it again",
        }
    }
}

/// Where the table of program headers lies in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    is_relocatable: bool,
    entry: u64,
    table: u64,
    count: u16,
}

/// A segment that is mapped. Addresses as in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// What comes from the file.
    pub(crate) file: Range<u64>,
    /// Where that starts in the file.
    pub(crate) offset: u64,
    /// The end of the zeros behind.
    pub(crate) end: u64,
    /// `PROT_*`
    pub(crate) protection: u32,
}

impl Segment {
    fn is_code(&self) -> bool {
        self.protection & PROT_EXEC != 0
    }
}

/// A static executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// It runs at any address: a static PIE.
    pub(crate) is_relocatable: bool,
    pub(crate) entry: u64,
    /// Ascending, without overlaps.
    pub(crate) segments: Vec<Segment>,
    /// Where its program headers are in memory; 0: in no segment.
    pub(crate) headers: u64,
    pub(crate) header_count: u16,
    /// The largest alignment that a segment asks for, bytes.
    pub(crate) align: u64,
    /// It was linked to run code on its stack.
    pub(crate) has_executable_stack: bool,
}

/// The array at `at`.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    field(bytes, at).map_or(0, u64::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    field(bytes, at).map_or(0, u16::from_le_bytes)
}

impl Header {
    /// Reads the first bytes of a file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ImageError> {
        /// `\x7fELF`, 64 bits, little-endian.
        const IDENT: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
        if bytes.get(..4) != Some(&IDENT[..4]) {
            return Err(ImageError::NotElf);
        }
        if bytes.len() < HEADER_BYTES {
            return Err(ImageError::Truncated);
        }
        let machine = half(bytes, core::mem::offset_of!(elf64_hdr, e_machine));
        if !bytes.starts_with(&IDENT) || machine != ELF_MACHINE {
            return Err(ImageError::Foreign);
        }
        let kind = u32::from(half(bytes, core::mem::offset_of!(elf64_hdr, e_type)));
        let header = Self {
            is_relocatable: kind == ET_DYN,
            entry: word(bytes, core::mem::offset_of!(elf64_hdr, e_entry)),
            table: word(bytes, core::mem::offset_of!(elf64_hdr, e_phoff)),
            count: half(bytes, core::mem::offset_of!(elf64_hdr, e_phnum)),
        };
        let entry_bytes = usize::from(half(bytes, core::mem::offset_of!(elf64_hdr, e_phentsize)));
        let is_sound = [ET_EXEC, ET_DYN].contains(&kind) && entry_bytes == ENTRY_BYTES;
        if !is_sound || header.count == 0 || header.table_bytes() > MAX_TABLE_BYTES {
            return Err(ImageError::BadHeaders);
        }
        Ok(header)
    }

    /// Where the program headers start in the file.
    pub(crate) fn table(&self) -> u64 {
        self.table
    }

    /// Their length.
    pub(crate) fn table_bytes(&self) -> usize {
        usize::from(self.count) * ENTRY_BYTES
    }
}

impl Image {
    /// Reads the program headers, which are all of `table`, of a file of `file_bytes`.
    pub(crate) fn parse(header: &Header, table: &[u8], file_bytes: u64) -> Result<Self, ImageError> {
        if table.len() < header.table_bytes() {
            return Err(ImageError::Truncated);
        }
        let mut image = Self {
            is_relocatable: header.is_relocatable,
            entry: header.entry,
            segments: Vec::new(),
            headers: 0,
            header_count: header.count,
            align: PAGE_BYTES,
            has_executable_stack: false,
        };
        for entry in table.chunks_exact(ENTRY_BYTES).take(usize::from(header.count)) {
            image.add(entry, file_bytes)?;
        }
        let segments = image.segments.iter();
        let first = segments.clone().find(|s| s.offset <= header.table && header.table - s.offset < s.file.end - s.file.start);
        image.headers = first.map_or(0, |s| s.file.start + (header.table - s.offset));
        let is_code = |s: &Segment| s.is_code() && s.file.contains(&header.entry);
        if !segments.clone().any(is_code) {
            return Err(ImageError::BadEntry);
        }
        Ok(image)
    }

    fn add(&mut self, entry: &[u8], file_bytes: u64) -> Result<(), ImageError> {
        let flags = field(entry, core::mem::offset_of!(elf64_phdr, p_flags)).map_or(0, u32::from_le_bytes);
        match field(entry, core::mem::offset_of!(elf64_phdr, p_type)).map_or(0, u32::from_le_bytes) {
            PT_INTERP => return Err(ImageError::Dynamic),
            PT_GNU_STACK => self.has_executable_stack = flags & PF_X != 0,
            PT_LOAD => self.add_segment(entry, flags, file_bytes)?,
            _ => {}
        }
        Ok(())
    }

    fn add_segment(&mut self, entry: &[u8], flags: u32, file_bytes: u64) -> Result<(), ImageError> {
        let at = |offset| word(entry, offset);
        let offset = at(core::mem::offset_of!(elf64_phdr, p_offset));
        let start = at(core::mem::offset_of!(elf64_phdr, p_vaddr));
        let (from_file, in_memory) = (at(core::mem::offset_of!(elf64_phdr, p_filesz)), at(core::mem::offset_of!(elf64_phdr, p_memsz)));
        let align = at(core::mem::offset_of!(elf64_phdr, p_align));
        if in_memory == 0 {
            return Ok(());
        }
        let end = start.checked_add(in_memory).filter(|&end| end <= ADDRESS_END).ok_or(ImageError::BadHeaders)?;
        let file_end = offset.checked_add(from_file).ok_or(ImageError::BadHeaders)?;
        let follows = self.segments.last().is_none_or(|before| before.end <= start);
        if from_file > in_memory || start % PAGE_BYTES != offset % PAGE_BYTES || !follows {
            return Err(ImageError::BadHeaders);
        }
        if file_end > file_bytes {
            return Err(ImageError::Truncated);
        }
        if align.is_power_of_two() {
            self.align = self.align.max(align);
        }
        let protections = [(PF_R, PROT_READ), (PF_W, PROT_WRITE), (PF_X, PROT_EXEC)];
        let protection = protections.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, bit)| all | bit);
        self.segments.push(Segment { file: start..start + from_file, offset, end, protection });
        Ok(())
    }

    /// The pages it takes. There is at least one segment: that of the entry.
    pub(crate) fn span(&self) -> Range<u64> {
        let start = self.segments.first().map_or(0, |s| s.file.start);
        let end = self.segments.last().map_or(0, |s| s.end);
        page_start(start)..end.next_multiple_of(PAGE_BYTES)
    }

    /// From the first byte of code to the last, and of what came from the file: as the kernel
    /// counts them for `/proc/self/stat`.
    pub(crate) fn code_and_data(&self) -> (Range<u64>, Range<u64>) {
        let code = || self.segments.iter().filter(|s| s.is_code()).map(|s| &s.file);
        let code_range = code().map(|r| r.start).min().unwrap_or(0)..code().map(|r| r.end).max().unwrap_or(0);
        let starts = self.segments.iter().map(|s| s.file.start).max().unwrap_or(0);
        (code_range, starts..self.segments.iter().map(|s| s.file.end).max().unwrap_or(0))
    }
}

/// The page of an address.
pub(crate) fn page_start(address: u64) -> u64 {
    address & !(PAGE_BYTES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::address;
    use std::vec;

    const FILE_BYTES: u64 = 0x10000;

    /// (type, flags, offset, address, bytes from the file, bytes in memory)
    type Entry = (u32, u32, u64, u64, u64, u64);

    const CODE: Entry = (PT_LOAD, PF_R | PF_X, 0, 0x40_0000, 0x1000, 0x1000);
    const DATA: Entry = (PT_LOAD, PF_R | PF_W, 0x1800, 0x40_2800, 0x100, 0x5000);

    fn file(kind: u32, entry: u64, entries: &[Entry]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16..18].copy_from_slice(&kind.to_le_bytes()[..2]);
        bytes[18..20].copy_from_slice(&ELF_MACHINE.to_le_bytes());
        bytes[24..32].copy_from_slice(&entry.to_le_bytes());
        bytes[32..40].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
        bytes[54..56].copy_from_slice(&ENTRY_BYTES.to_le_bytes()[..2]);
        bytes[56..58].copy_from_slice(&entries.len().to_le_bytes()[..2]);
        for &(kind, flags, offset, start, from_file, in_memory) in entries {
            for word in [u64::from(kind) | u64::from(flags) << 32, offset, start, start, from_file, in_memory, PAGE_BYTES] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Image, ImageError> {
        let header = Header::parse(bytes)?;
        let start = usize::try_from(header.table()).unwrap_or(usize::MAX).min(bytes.len());
        Image::parse(&header, &bytes[start..], FILE_BYTES)
    }

    fn of(entries: &[Entry]) -> Result<Image, ImageError> {
        parse(&file(ET_EXEC, 0x40_0800, entries))
    }

    #[test]
    fn a_program_is_described() {
        let image = of(&[CODE, DATA, (PT_GNU_STACK, PF_R | PF_W | PF_X, 0, 0, 0, 0)]).expect("a program");
        assert_eq!((image.is_relocatable, image.entry, image.has_executable_stack), (false, 0x40_0800, true));
        assert_eq!(image.span(), 0x40_0000..0x40_8000);
        assert_eq!((image.headers, image.header_count), (0x40_0040, 3));
        assert_eq!(image.code_and_data(), (0x40_0000..0x40_1000, 0x40_2800..0x40_2900));
        let data = &image.segments[1];
        assert_eq!((data.file.clone(), data.end, data.protection), (0x40_2800..0x40_2900, 0x40_7800, PROT_READ | PROT_WRITE));
        assert!(parse(&file(ET_DYN, 0x40_0800, &[CODE])).is_ok_and(|image| image.is_relocatable));
    }

    #[test]
    fn bad_headers_are_refused() {
        let (kind, flags, offset, start, from_file, in_memory) = CODE;
        assert_eq!(of(&[CODE, (PT_INTERP, PF_R, 0, 0, 8, 8)]), Err(ImageError::Dynamic));
        assert_eq!(of(&[DATA]), Err(ImageError::BadEntry));
        assert_eq!(of(&[]), Err(ImageError::BadHeaders));
        assert_eq!(of(&[DATA, CODE]), Err(ImageError::BadHeaders), "descending");
        assert_eq!(of(&[CODE, CODE]), Err(ImageError::BadHeaders), "overlapping");
        assert_eq!(of(&[(kind, flags, offset, start, in_memory + 1, in_memory)]), Err(ImageError::BadHeaders));
        assert_eq!(of(&[(kind, flags, offset + 1, start, from_file, in_memory)]), Err(ImageError::BadHeaders));
        assert_eq!(of(&[(kind, flags, offset, start, from_file, u64::MAX)]), Err(ImageError::BadHeaders));
        assert_eq!(of(&[(kind, flags, 0xf000, start, 0x2000, 0x2000)]), Err(ImageError::Truncated));
        assert_eq!(parse(b"#!/bin/sh"), Err(ImageError::NotElf));
        assert_eq!(parse(&file(ET_EXEC, 0x40_0800, &[CODE])[..40]), Err(ImageError::Truncated));
        assert_eq!(parse(&file(ET_EXEC, 0x40_0800, &[CODE])[..100]), Err(ImageError::Truncated));
        let mut foreign = file(ET_EXEC, 0x40_0800, &[CODE]);
        foreign[18] = 0xb7;
        assert_eq!(parse(&foreign), Err(ImageError::Foreign));
    }

    #[test]
    fn random_headers_are_refused_or_can_be_mapped() {
        let whole = file(ET_DYN, 0x40_0800, &[CODE, DATA]);
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state >> 33
        };
        for _ in 0..200_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + next() % 3 {
                let at = address(next()) % bytes.len();
                bytes[at] = next().to_le_bytes()[0];
            }
            let Ok(image) = parse(&bytes) else { continue };
            let span = image.span();
            assert!(span.end <= ADDRESS_END + PAGE_BYTES && span.start < span.end);
            assert!(image.segments.is_sorted_by(|a, b| a.end <= b.file.start));
            assert!(image.segments.iter().all(|s| s.file.end <= s.end && s.file.start <= s.file.end));
        }
    }
}
