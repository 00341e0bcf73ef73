//! Finds the engine's note in an ELF object that is mapped in another process.
//!
//! The memory belongs to another process, so every value in it is checked.

use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD, PT_NOTE, ProgramHeader64};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use uringlet_sys::stats::NOTE_NAME;

use super::bytes::u32_at;

/// Length of an object's beginning that holds its headers, bytes.
pub(super) const HEAD: usize = 4096;
/// Real objects have less than a page of notes.
const NOTES_MAX: u64 = 1 << 16;

type ElfHeader = FileHeader64<LittleEndian>;
type ElfSegment = ProgramHeader64<LittleEndian>;

/// A segment of notes as it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoteSegment {
    pub(super) address: u64,
    pub(super) len: usize,
    /// Alignment of the notes, bytes.
    align: u64,
}

/// The content of the engine's note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EngineNote {
    pub(super) layout: u32,
    /// Address of the statistics block.
    pub(super) address: u64,
}

/// The note segments of an object whose first bytes are `head`, mapped at `start`.
pub(super) fn note_segments(head: &[u8], start: u64) -> Vec<NoteSegment> {
    let segments = program_headers(head).unwrap_or_default();
    let is_first = |segment: &&ElfSegment| segment.p_type(LittleEndian) == PT_LOAD && segment.p_offset(LittleEndian) == 0;
    let Some(first) = segments.iter().find(is_first) else { return Vec::new() };
    let bias = start.wrapping_sub(first.p_vaddr(LittleEndian));
    let mapped = |segment: &ElfSegment| NoteSegment {
        address: bias.wrapping_add(segment.p_vaddr(LittleEndian)),
        len: segment.p_filesz(LittleEndian).min(NOTES_MAX) as usize,
        align: segment.p_align(LittleEndian),
    };
    segments.iter().filter(|segment| segment.p_type(LittleEndian) == PT_NOTE).map(mapped).collect()
}

/// The address that the first byte of an object is linked to.
pub(super) fn link_address(head: &[u8]) -> Option<u64> {
    let is_first = |segment: &&ElfSegment| segment.p_type(LittleEndian) == PT_LOAD && segment.p_offset(LittleEndian) == 0;
    program_headers(head).ok()?.iter().find(is_first).map(|first| first.p_vaddr(LittleEndian))
}

/// Where the byte of this link address is in the object's file.
pub(super) fn file_offset(head: &[u8], address: u64) -> Option<u64> {
    let offset = |segment: &ElfSegment| {
        let within = address.checked_sub(segment.p_vaddr(LittleEndian))?;
        (segment.p_type(LittleEndian) == PT_LOAD && within < segment.p_filesz(LittleEndian))
            .then(|| segment.p_offset(LittleEndian) + within)
    };
    program_headers(head).ok()?.iter().find_map(offset)
}

fn program_headers(head: &[u8]) -> object::read::Result<&[ElfSegment]> {
    let header = ElfHeader::parse(head)?;
    if header.is_little_endian() { header.program_headers(LittleEndian, head) } else { Ok(&[]) }
}

/// The engine's note in the bytes of a segment.
pub(super) fn find_engine_note(bytes: &[u8], segment: NoteSegment) -> Option<EngineNote> {
    let mut notes = NoteIterator::<ElfHeader>::new(LittleEndian, segment.align, bytes).ok()?;
    // A malformed note ends the search.
    while let Ok(Some(note)) = notes.next() {
        let data = note.desc();
        if note.name() == NOTE_NAME.as_bytes() && data.len() == 8 {
            // The second word is the distance from itself to the block.
            let distance = i64::from(u32_at(data, 4)?.cast_signed());
            let word = (data.as_ptr().addr() - bytes.as_ptr().addr()) as u64 + 4;
            let address = segment.address.wrapping_add(word).wrapping_add_signed(distance);
            return Some(EngineNote { layout: u32_at(data, 0)?, address });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &str, data: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len() as u32 + 1, data.len() as u32 * 4, 1] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(name.bytes());
        bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
        bytes.extend(data.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    fn find(bytes: &[u8], address: u64) -> Option<EngineNote> {
        find_engine_note(bytes, NoteSegment { address, len: bytes.len(), align: 4 })
    }

    #[test]
    fn the_engine_note_is_found_among_others() {
        let others = note("GNU", &[1, 2, 3]);
        let both = [others.clone(), note(NOTE_NAME, &[7, (-20_i32).cast_unsigned()])].concat();
        // The distance is the last word.
        let word = 0x1000 + both.len() as u64 - 4;
        assert_eq!(find(&both, 0x1000), Some(EngineNote { layout: 7, address: word - 20 }));
        assert_eq!(find(&others, 0x1000), None);
    }

    #[test]
    fn truncated_and_malformed_notes_are_ignored() {
        let whole = note(NOTE_NAME, &[1, 2]);
        for len in 0..whole.len() {
            assert_eq!(find(&whole[..len], 0), None);
        }
        assert_eq!(find(&[0xff; 64], 0), None);
        assert_eq!(find(&[0; 64], 0), None);
    }

    #[test]
    fn note_segments_are_relocated_with_the_object() {
        const FILE_HEADER: usize = size_of::<ElfHeader>();
        const PROGRAM_HEADER: usize = size_of::<ElfSegment>();
        let mut head = vec![0; FILE_HEADER + 2 * PROGRAM_HEADER];
        head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        head[32] = 64;
        head[54] = PROGRAM_HEADER as u8;
        head[56] = 2;
        head[FILE_HEADER] = 1;
        let second = FILE_HEADER + PROGRAM_HEADER;
        head[second] = 4;
        head[second + 16..second + 18].copy_from_slice(&[0x40, 0x02]);
        head[second + 32] = 32;
        head[second + 48] = 4;
        assert_eq!(note_segments(&head, 0x7000_0000), [NoteSegment { address: 0x7000_0240, len: 32, align: 4 }]);
        assert_eq!(note_segments(&head[..100], 0), []);
        assert_eq!(note_segments(b"#!/bin/sh", 0), []);
    }
}
