//! FUSE's messages as far as one file needs them. Source: fuse(4); layouts of protocol 7.31. Numbers are in the machine's order.

/// What is spoken: the newest kernels speak it too.
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
/// Flags of OPEN's reply: past the page cache, no word at close (a process that dies would wait for its own answer), writes
/// side by side.
const OPEN_DIRECT_IO: u32 = 1 << 0;
const OPEN_NOFLUSH: u32 = 1 << 5;
const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

pub(super) const PUNCH_HOLE: u32 = 2;
pub(super) const ZERO_RANGE: u32 = 16;
const KEEP_SIZE: u32 = 1;

/// Bytes of a request's header, and of the structure in front of a write's data.
pub(super) const HEADER: usize = 40;
pub(super) const WRITE_HEADER: usize = 40;
const PAGE: u32 = 4096;
const REGULAR_FILE: u32 = 0o100_600;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FuseMessage<'a> {
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) body: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

impl<'a> FuseMessage<'a> {
    /// `None`: it is no request.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let body = bytes.get(HEADER..)?;
        (u32_at(bytes, 0)? as usize == bytes.len()).then_some(())?;
        Some(Self { opcode: u32_at(bytes, 4)?, unique: u64_at(bytes, 8)?, body })
    }

    /// READ and WRITE: offset and length.
    pub(super) fn range(&self) -> Option<(u64, u32)> {
        Some((u64_at(self.body, 8)?, u32_at(self.body, 16)?))
    }

    /// WRITE: its bytes.
    pub(super) fn data(&self) -> Option<&'a [u8]> {
        let (_, len) = self.range()?;
        self.body.get(WRITE_HEADER..)?.get(..len as usize)
    }

    /// FALLOCATE: offset, length, mode (without the bit that keeps the size, which the file always does).
    pub(super) fn fallocate(&self) -> Option<(u64, u64, u32)> {
        Some((u64_at(self.body, 8)?, u64_at(self.body, 16)?, u32_at(self.body, 24)? & !KEEP_SIZE))
    }

    /// INIT: the kernel's major version.
    pub(super) fn major(&self) -> Option<u32> {
        u32_at(self.body, 0)
    }
}

/// A reply's header with `len` bytes behind it; `error` is a positive errno, or 0.
pub(super) fn reply_header(unique: u64, error: i32, len: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&(16 + len as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&(-error).to_ne_bytes());
    bytes[8..].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

/// Structures of replies, field by field.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn padded(mut self, len: usize) -> Vec<u8> {
        self.0.resize(len, 0);
        self.0
    }
}

/// INIT's reply. `background`: requests that the kernel may have under way without anybody waiting for each.
pub(super) fn init(max_bytes: u32, background: u16) -> Vec<u8> {
    let flags = ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES;
    let fields = Fields::default().u32(MAJOR).u32(MINOR).u32(max_bytes).u32(flags);
    let fields = fields.u16(background).u16(background).u32(max_bytes).u32(1);
    fields.u16((max_bytes / PAGE) as u16).padded(64)
}

/// OPEN's reply.
pub(super) fn open() -> Vec<u8> {
    Fields::default().u64(0).u32(OPEN_DIRECT_IO | OPEN_NOFLUSH | OPEN_PARALLEL_DIRECT_WRITES).padded(16)
}

/// GETATTR's reply: valid at no time, as the size may change.
pub(super) fn attributes(size: u64) -> Vec<u8> {
    let fields = Fields::default().u64(0).u64(0).u64(1).u64(size).u64(size / 512);
    let times = fields.u64(0).u64(0).u64(0).u32(0).u32(0).u32(0);
    times.u32(REGULAR_FILE).u32(1).u32(0).u32(0).u32(0).u32(PAGE).padded(104)
}

/// STATFS's reply. The loop device takes the block size for its granule of discards.
pub(super) fn statistics(size: u64, block: u32) -> Vec<u8> {
    let fields = Fields::default().u64(size / u64::from(block)).u64(0).u64(0).u64(1).u64(0);
    fields.u32(block).u32(255).u32(block).padded(80)
}

/// WRITE's reply.
pub(super) fn written(len: u32) -> Vec<u8> {
    Fields::default().u32(len).padded(8)
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
        assert_eq!(init(1 << 20, 64).len(), 64);
        assert_eq!(open().len(), 16);
        assert_eq!(attributes(1).len(), 104);
        assert_eq!(statistics(1 << 20, 4096).len(), 80);
        assert_eq!(reply_header(9, 5, 4)[..8], [20, 0, 0, 0, 0xfb, 0xff, 0xff, 0xff]);
    }
}
