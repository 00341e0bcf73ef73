//! FUSE's messages, as far as a filesystem of one file needs them. Numbers are in native byte
//! order.
//!
//! Source: fuse(4); layouts of protocol 7.31.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol version spoken here; newer kernels support it too.
pub(super) const MAJOR: u32 = 7;
const MINOR: u32 = 31;

pub(super) mod op {
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
}

const ASYNC_READ: u32 = 1 << 0;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;
/// Flags of OPEN's reply: bypass the page cache; no FLUSH at close (a dying process would wait for
/// its own answer); writes in parallel.
const OPEN_DIRECT_IO: u32 = 1 << 0;
const OPEN_NOFLUSH: u32 = 1 << 5;
const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

pub(super) const PUNCH_HOLE: u32 = 2;
pub(super) const ZERO_RANGE: u32 = 16;
const KEEP_SIZE: u32 = 1;

/// Bytes of a request's header, and of the structure in front of a write's data.
pub(super) const HEADER: usize = size_of::<InHeader>();
pub(super) const WRITE_HEADER: usize = size_of::<TransferIn>();
const PAGE: u32 = 4096;
const REGULAR_FILE: u32 = 0o100_600;

/// `struct fuse_in_header`
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct InHeader {
    len: u32,
    opcode: u32,
    unique: u64,
    node: u64,
    uid: u32,
    gid: u32,
    pid: u32,
    padding: u32,
}

/// `struct fuse_read_in` and `struct fuse_write_in`
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TransferIn {
    handle: u64,
    offset: u64,
    size: u32,
    transfer_flags: u32,
    lock_owner: u64,
    flags: u32,
    padding: u32,
}

/// `struct fuse_fallocate_in`
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FallocateIn {
    handle: u64,
    offset: u64,
    len: u64,
    mode: u32,
    padding: u32,
}

/// `struct fuse_out_header`
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct OutHeader {
    len: u32,
    error: i32,
    unique: u64,
}

/// `struct fuse_init_out`
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct InitOut {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
    max_background: u16,
    congestion_threshold: u16,
    max_write: u32,
    time_granularity: u32,
    max_pages: u16,
    map_alignment: u16,
    unused: [u32; 8],
}

/// `struct fuse_open_out`
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct OpenOut {
    handle: u64,
    flags: u32,
    padding: u32,
}

/// `struct fuse_attr_out`
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct AttributesOut {
    valid_s: u64,
    valid_ns: u32,
    padding: u32,
    inode: u64,
    size: u64,
    blocks: u64,
    times_s: [u64; 3],
    times_ns: [u32; 3],
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    block_size: u32,
    flags: u32,
}

/// `struct fuse_statfs_out`
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct StatfsOut {
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    files: u64,
    files_free: u64,
    block_size: u32,
    name_max: u32,
    fragment_size: u32,
    padding: u32,
    spare: [u32; 6],
}

/// `struct fuse_write_out`
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct WriteOut {
    size: u32,
    padding: u32,
}

/// A request of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FuseMessage<'a> {
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) body: &'a [u8],
}

impl<'a> FuseMessage<'a> {
    /// `None`: not a whole request.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = InHeader::read_from_prefix(bytes).ok()?;
        (header.len as usize == bytes.len()).then_some(Self { opcode: header.opcode, unique: header.unique, body })
    }

    fn field<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.body).ok().map(|(field, _)| field)
    }

    /// READ and WRITE: offset and length.
    pub(super) fn range(&self) -> Option<(u64, u32)> {
        self.field().map(|TransferIn { offset, size, .. }| (offset, size))
    }

    /// WRITE: its bytes.
    pub(super) fn data(&self) -> Option<&'a [u8]> {
        let (_, len) = self.range()?;
        self.body.get(WRITE_HEADER..)?.get(..len as usize)
    }

    /// FALLOCATE: offset, length, and mode without KEEP_SIZE, which always holds for this file.
    pub(super) fn fallocate(&self) -> Option<(u64, u64, u32)> {
        self.field().map(|FallocateIn { offset, len, mode, .. }| (offset, len, mode & !KEEP_SIZE))
    }

    /// INIT: the kernel's major version.
    pub(super) fn major(&self) -> Option<u32> {
        self.field()
    }
}

/// A reply's header with `len` bytes behind it; `error` is a positive errno, or 0.
pub(super) fn reply_header(unique: u64, error: i32, len: usize) -> [u8; 16] {
    zerocopy::transmute!(OutHeader { len: 16 + len as u32, error: -error, unique })
}

/// INIT's reply. `background`: requests that the kernel may have in flight without a thread that
/// waits for each.
pub(super) fn init(max_bytes: u32, background: u16) -> Vec<u8> {
    let init = InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: max_bytes,
        flags: ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES,
        max_background: background,
        congestion_threshold: background,
        max_write: max_bytes,
        time_granularity: 1,
        max_pages: (max_bytes / PAGE) as u16,
        ..InitOut::default()
    };
    init.as_bytes().to_vec()
}

/// OPEN's reply.
pub(super) fn open() -> Vec<u8> {
    let flags = OPEN_DIRECT_IO | OPEN_NOFLUSH | OPEN_PARALLEL_DIRECT_WRITES;
    OpenOut { flags, ..OpenOut::default() }.as_bytes().to_vec()
}

/// GETATTR's reply. It is valid for no time, as the size may change.
pub(super) fn attributes(size: u64) -> Vec<u8> {
    let blocks = size / 512;
    let attributes = AttributesOut { inode: 1, size, blocks, mode: REGULAR_FILE, links: 1, block_size: PAGE, ..AttributesOut::default() };
    attributes.as_bytes().to_vec()
}

/// STATFS's reply. The loop device takes the block size for its discard granularity.
pub(super) fn statistics(size: u64, block_size: u32) -> Vec<u8> {
    let blocks = size / u64::from(block_size);
    let statistics = StatfsOut { blocks, files: 1, block_size, name_max: 255, fragment_size: block_size, ..StatfsOut::default() };
    statistics.as_bytes().to_vec()
}

/// WRITE's reply.
pub(super) fn written(size: u32) -> Vec<u8> {
    WriteOut { size, padding: 0 }.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_the_wrong_length_is_rejected() {
        let mut bytes = vec![0; HEADER + WRITE_HEADER + 3];
        assert_eq!(FuseMessage::parse(&bytes), None);
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4] = op::WRITE as u8;
        bytes[HEADER + 16] = 3;
        let message = FuseMessage::parse(&bytes).unwrap();
        assert_eq!((message.range(), message.data()), (Some((0, 3)), Some(&[0, 0, 0][..])));
        bytes[HEADER + 16] = 4;
        assert_eq!(FuseMessage::parse(&bytes).unwrap().data(), None);
        assert_eq!(FuseMessage::parse(&bytes[..HEADER - 1]), None);
        assert_eq!(FuseMessage { opcode: op::FALLOCATE, unique: 1, body: &[0; 27] }.fallocate(), None);
    }

    #[test]
    fn replies_have_the_sizes_the_kernel_expects() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let init_words = [&[7, 31, 1 << 20, 0x40_8021, 64 << 16 | 64, 1 << 20, 1, 256][..], &[0; 8]].concat();
        assert_eq!(init(1 << 20, 64), words(&init_words));
        assert_eq!(open(), words(&[0, 0, 0x61, 0]));
        let attribute_words = [&[0, 0, 0, 0, 1, 0, 1024, 0, 2, 0][..], &[0; 9], &[0o100_600, 1, 0, 0, 0, 4096, 0]].concat();
        assert_eq!(attributes(1024), words(&attribute_words));
        let statistics_words = [&[256, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4096, 255, 4096][..], &[0; 7]].concat();
        assert_eq!(statistics(1 << 20, 4096), words(&statistics_words));
        assert_eq!(written(9), words(&[9, 0]));
        assert_eq!(reply_header(9, 5, 4)[..8], [20, 0, 0, 0, 0xfb, 0xff, 0xff, 0xff]);
    }
}
