//! Bytes of the program's memory for a tracer: copies that survive a bad address.

use uringlet_sys::trace::{RecordKind, TraceRecord, data_chunk_bytes};
use uringlet_sys::{UserPtr, fd_table, io, user};

const CHUNK: usize = data_chunk_bytes();
/// The longest path (`PATH_MAX`).
pub(super) const PATH: usize = 4096;
/// No name of an open file is recorded beyond this.
const NAME: usize = 512;

/// The name of a ring's descriptor, as the kernel has it.
const RING: &[u8] = b"anon_inode:[io_uring]";

/// Bytes that are to be recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataPlace {
    /// `argument`
    pub(super) argument: u16,
    pub(super) at: UserPtr,
    pub(super) len: usize,
    /// How many there are in all.
    pub(super) total: usize,
    /// They end with a NUL, if not before.
    pub(super) is_text: bool,
}

/// Records the bytes of a place as far as they can be read, for the request of `about`.
pub(super) fn record_data(about: TraceRecord, place: DataPlace, record: &mut dyn FnMut(&TraceRecord)) {
    let mut done = 0;
    loop {
        let mut data = TraceRecord { kind: RecordKind::Data as u8, detail: place.argument, ..about };
        let mut bytes = [0_u8; CHUNK];
        let wanted = CHUNK.min(place.len - done);
        let mut got = user::copy_in_user(io::ptr_of_mut(&mut bytes), place.at.add(done), wanted);
        let end = if place.is_text { bytes[..got].iter().position(|&byte| byte == 0) } else { None };
        got = end.unwrap_or(got);
        fill(&mut data, done, if place.is_text { done + got } else { place.total }, &bytes[..got]);
        record(&data);
        done += got;
        if got < wanted || end.is_some() || done == place.len {
            return;
        }
    }
}

fn fill(record: &mut TraceRecord, at: usize, total: usize, bytes: &[u8]) {
    record.len = bytes.len() as u32;
    record.payload = Default::default();
    record.payload[0] |= at as u64;
    record.payload[1] = total as u64;
    for (word, chunk) in record.payload[2..].iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(whole);
    }
}

/// Records what file a number is; `known_as`: the number that requests have for it.
pub(crate) fn record_file(about: TraceRecord, number: i32, known_as: i32, record: &mut dyn FnMut(&TraceRecord)) {
    let mut name = [0_u8; NAME];
    let len = match fd_table::ring_index(number) {
        // It is another file to the kernel.
        Some(_) => {
            name[..RING.len()].copy_from_slice(RING);
            RING.len()
        }
        None => io::path_of(number, &mut name).unwrap_or(0),
    };
    let mut at = 0;
    while at == 0 || at < len {
        let chunk = &name[at..len.min(at + CHUNK)];
        let mut file = TraceRecord { kind: RecordKind::File as u8, ..about };
        fill(&mut file, at, len, chunk);
        file.payload[0] |= u64::from(known_as.cast_unsigned()) << 32;
        record(&file);
        at += CHUNK;
    }
}
