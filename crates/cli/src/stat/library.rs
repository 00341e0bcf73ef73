//! The version of an engine that is in a file.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

use uringlet_sys::stats::{LAYOUT_VERSION, StatsHeader};

use super::elf::{self, HEAD};

/// Bytes of [`StatsHeader::engine`].
const VERSION_BYTES: usize = 16;

/// The version of the engine in a library. `None`: there is none, or one that describes itself in
/// another way.
pub(crate) fn library_version(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let mut head = [0; HEAD];
    let len = file.read_at(&mut head, 0).ok()?;
    let head = &head[..len];
    // Addresses as in the file: as if its first segment were mapped where it is linked to.
    let notes = elf::note_segments(head, elf::link_address(head)?);
    let note = notes.into_iter().find_map(|segment| {
        let bytes = read(&file, elf::file_offset(head, segment.address)?, segment.len)?;
        elf::find_engine_note(&bytes, segment)
    })?;
    if note.layout != LAYOUT_VERSION {
        return None;
    }
    let at = elf::file_offset(head, note.address)? + offset_of!(StatsHeader, engine) as u64;
    let version = read(&file, at, VERSION_BYTES)?;
    let end = version.iter().position(|byte| *byte == 0).unwrap_or(version.len());
    String::from_utf8(version[..end].to_vec()).ok()
}

fn read(file: &File, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}
