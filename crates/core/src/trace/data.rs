//! Bytes of the program's memory for a tracer: copies that survive a bad address.

use super::socket_name;
use crate::ops::FilledBytes;
use uringlet_abi::register::Iovec;
use uringlet_sys::io::Msghdr;
use uringlet_sys::trace::{RecordKind, TraceRecord, data_chunk_bytes};
use uringlet_sys::{UserPtr, fd_table, io, user};

const CHUNK: usize = data_chunk_bytes();
/// The longest path (`PATH_MAX`).
pub(super) const PATH: usize = 4096;
/// No name of an open file is recorded beyond this.
const NAME: usize = 512;

/// The name of a ring's descriptor, as the kernel has it.
const RING: &[u8] = b"anon_inode:[io_uring]";

/// How the kernel begins the name of a socket.
const SOCKET: &[u8] = b"socket:[";

/// Replaces the name of a socket by its addresses, if it has some. Returns the length.
fn name_socket(number: i32, name: &mut [u8; NAME], len: usize) -> usize {
    if socket_name::is_unsettled(number) {
        // The next request asks again.
        fd_table::forget_name(number);
    }
    let mut addresses = [0; NAME];
    match socket_name::write(number, &mut addresses) {
        Some(len) => {
            name[..len].copy_from_slice(&addresses[..len]);
            len
        }
        None => len,
    }
}

/// Bytes that are to be recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataPlace {
    /// `argument`
    pub(super) argument: u16,
    pub(super) at: UserPtr,
    pub(super) len: usize,
    /// Bytes of the same argument that stand before these, in another place.
    pub(super) before: usize,
    /// How many there are in all.
    pub(super) total: usize,
    /// They end with a NUL, if not before.
    pub(super) is_text: bool,
}

/// Records the bytes of a place as far as they can be read, for the request of `about`. Returns
/// whether all could be.
pub(super) fn record_data(about: TraceRecord, place: DataPlace, record: &mut dyn FnMut(&TraceRecord)) -> bool {
    let mut done = 0;
    loop {
        let mut data = TraceRecord { kind: RecordKind::Data as u8, detail: place.argument, ..about };
        let mut bytes = [0_u8; CHUNK];
        let wanted = CHUNK.min(place.len - done);
        let mut got = user::copy_in_user(io::ptr_of_mut(&mut bytes), place.at.add(done), wanted);
        let end = if place.is_text { bytes[..got].iter().position(|&byte| byte == 0) } else { None };
        got = end.unwrap_or(got);
        fill(&mut data, place.before + done, if place.is_text { done + got } else { place.total }, &bytes[..got]);
        record(&data);
        done += got;
        if got < wanted || end.is_some() || done == place.len {
            return got == wanted || end.is_some();
        }
    }
}

/// So many iovecs are recorded, and elements of other arrays.
pub(super) const ELEMENTS: usize = 8;

/// A number of bytes or elements that the program says.
pub(super) fn size_of_word(word: u64) -> usize {
    usize::try_from(word).unwrap_or(usize::MAX)
}

/// The first iovecs of a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstIovecs {
    iovecs: [Iovec; ELEMENTS],
    count: usize,
}

impl FirstIovecs {
    /// A copy; empty if they cannot be read.
    pub(super) fn read(at: UserPtr, count: usize) -> Self {
        let mut first = Self { count: count.min(ELEMENTS), ..Self::default() };
        if first.count > 0 && user::read_slice(&mut first.iovecs[..first.count], at).is_err() {
            first.count = 0;
        }
        first
    }

    /// Those of a request that has read or received.
    pub(crate) fn of(filled: FilledBytes) -> Self {
        match filled {
            FilledBytes::Buffer(at) => Self::one(at),
            FilledBytes::Vector(at, count) => Self::read(at, count),
            FilledBytes::Message(at) => match user::read::<Msghdr>(at) {
                Ok(header) => Self::read(UserPtr::at(header.iov), size_of_word(header.iovlen)),
                Err(_) => Self::default(),
            },
        }
    }

    /// One buffer.
    fn one(at: UserPtr) -> Self {
        let mut first = Self { count: 1, ..Self::default() };
        first.iovecs[0] = Iovec { base: at.addr() as u64, len: u64::MAX };
        first
    }

    /// The sum of their lengths, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.iovecs[..self.count].iter().fold(0, |sum, iovec| sum.saturating_add(size_of_word(iovec.len)))
    }

    /// Passes the places of the first `limit` of `total` bytes to `record`, which says whether to
    /// go on.
    pub(super) fn places(&self, argument: u16, limit: usize, total: usize, mut record: impl FnMut(DataPlace) -> bool) {
        let mut before = 0;
        for iovec in &self.iovecs[..self.count] {
            let len = size_of_word(iovec.len).min(limit.min(total) - before);
            if len > 0 && !record(DataPlace { argument, at: UserPtr::at(iovec.base), len, before, total, is_text: false }) {
                return;
            }
            before += len;
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
    let len = if name.starts_with(SOCKET) { name_socket(number, &mut name, len) } else { len };
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
