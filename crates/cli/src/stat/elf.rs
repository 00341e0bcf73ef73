//! The engine's note in an ELF object, as it lies in a process' memory.
//!
//! What is read is another process' to write: nothing in it is believed without a look.

use uringlet_sys::stats::NOTE_NAME;

/// Of an ELF file for this machine: enough for its headers.
pub(super) const HEAD: usize = 4096;
const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
/// The notes of real objects fit in a page.
const NOTES_MAX: u64 = 1 << 16;

/// A segment of notes: where it is mapped, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoteSegment {
    pub(super) address: u64,
    pub(super) len: usize,
}

/// What the engine's note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EngineNote {
    pub(super) layout: u32,
    /// Of the block of counters.
    pub(super) address: u64,
}

/// The segments of notes of an object whose first bytes are `head`, mapped at `start`.
pub(super) fn note_segments(head: &[u8], start: u64) -> Vec<NoteSegment> {
    // 64 bits, little-endian.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Vec::new();
    }
    let headers = program_headers(head).unwrap_or_default();
    let Some(first) = headers.iter().find(|header| header.kind == PT_LOAD && header.offset == 0) else { return Vec::new() };
    let bias = start.wrapping_sub(first.address);
    let segment =
        |header: &ProgramHeader| NoteSegment { address: bias.wrapping_add(header.address), len: header.len.min(NOTES_MAX) as usize };
    headers.iter().filter(|header| header.kind == PT_NOTE).map(segment).collect()
}

struct ProgramHeader {
    kind: u32,
    offset: u64,
    address: u64,
    len: u64,
}

fn program_headers(head: &[u8]) -> Option<Vec<ProgramHeader>> {
    let at = usize::try_from(u64_at(head, 32)?).ok()?;
    let (size, count) = (u16_at(head, 54)?, u16_at(head, 56)?);
    if at < FILE_HEADER || usize::from(size) != PROGRAM_HEADER {
        return None;
    }
    let headers = head.get(at..)?.chunks_exact(PROGRAM_HEADER).take(usize::from(count));
    headers
        .map(|h| Some(ProgramHeader { kind: u32_at(h, 0)?, offset: u64_at(h, 8)?, address: u64_at(h, 16)?, len: u64_at(h, 32)? }))
        .collect()
}

/// The engine's note among those of a segment.
pub(super) fn find_engine_note(segment: &[u8], address: u64) -> Option<EngineNote> {
    let mut at = 0;
    loop {
        let (name_len, data_len) = (u32_at(segment, at)? as usize, u32_at(segment, at + 4)? as usize);
        let name = segment.get(at + 12..)?.get(..name_len)?;
        let data_at = at + 12 + name_len.next_multiple_of(4);
        let data = segment.get(data_at..)?.get(..data_len)?;
        if name.strip_suffix(b"\0") == Some(NOTE_NAME.as_bytes()) && data_len == 8 {
            // The distance is counted from its own place.
            let distance = i64::from(u32_at(data, 4)?.cast_signed());
            return Some(EngineNote {
                layout: u32_at(data, 0)?,
                address: address.wrapping_add(data_at as u64 + 4).wrapping_add_signed(distance),
            });
        }
        at = data_at + data_len.next_multiple_of(4);
    }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
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

    #[test]
    fn the_engines_note_is_found_among_others() {
        let others = note("GNU", &[1, 2, 3]);
        let both = [others.clone(), note(NOTE_NAME, &[7, (-20_i32).cast_unsigned()])].concat();
        // The distance stands in the last word.
        let word = 0x1000 + both.len() as u64 - 4;
        assert_eq!(find_engine_note(&both, 0x1000), Some(EngineNote { layout: 7, address: word - 20 }));
        assert_eq!(find_engine_note(&others, 0x1000), None);
    }

    #[test]
    fn cut_or_wild_notes_are_no_notes() {
        let whole = note(NOTE_NAME, &[1, 2]);
        for len in 0..whole.len() {
            assert_eq!(find_engine_note(&whole[..len], 0), None);
        }
        assert_eq!(find_engine_note(&[0xff; 64], 0), None);
        assert_eq!(find_engine_note(&[0; 64], 0), None);
    }

    #[test]
    fn segments_move_with_the_object() {
        let mut head = vec![0; FILE_HEADER + 2 * PROGRAM_HEADER];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[32] = 64;
        head[54] = PROGRAM_HEADER as u8;
        head[56] = 2;
        head[FILE_HEADER] = PT_LOAD as u8;
        let second = FILE_HEADER + PROGRAM_HEADER;
        head[second] = PT_NOTE as u8;
        head[second + 16..second + 18].copy_from_slice(&[0x40, 0x02]);
        head[second + 32] = 32;
        assert_eq!(note_segments(&head, 0x7000_0000), [NoteSegment { address: 0x7000_0240, len: 32 }]);
        assert_eq!(note_segments(&head[..100], 0), []);
        assert_eq!(note_segments(b"#!/bin/sh", 0), []);
    }
}
