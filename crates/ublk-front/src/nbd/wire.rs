//! The NBD protocol as data: numbers, and headers of fixed size. All numbers are big-endian.
//!
//! Source: the protocol's public description, `doc/proto.md` of NetworkBlockDevice/nbd.

use uringlet_sys::Errno;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Begin a connection: `NBDMAGIC`, `IHAVEOPT`.
pub(super) const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags of server and client.
pub(super) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

pub(super) mod option_reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = 0x8000_0001;
    pub(crate) const ERR_INVALID: u32 = 0x8000_0003;
    pub(crate) const ERR_UNKNOWN: u32 = 0x8000_0006;
}

pub(super) mod info_type {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: features of an export.
pub(super) mod transmission_flag {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const ROTATIONAL: u16 = 1 << 4;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const DONT_FRAGMENT: u16 = 1 << 7;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
    pub(crate) const CACHE: u16 = 1 << 10;
    pub(crate) const FAST_ZERO: u16 = 1 << 11;
}

pub(super) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub(super) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DONT_FRAGMENT: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of structured replies.
pub(super) mod chunk {
    /// Flag: the command's last chunk.
    pub(crate) const DONE: u16 = 1 << 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = 0x8001;
}

/// The supported metadata context, and its number on the wire.
pub(super) const ALLOCATION: &str = "base:allocation";
pub(super) const ALLOCATION_ID: u32 = 1;

/// Longest data of an option. Names have at most 4096 bytes, so more data is not NBD.
pub(super) const OPTION_MAX: u32 = 64 * 1024;
/// Longest read or write, bytes: the length that every client may rely upon.
pub(super) const PAYLOAD_MAX: u32 = 32 << 20;
/// A longer write ends the connection.
pub(super) const PAYLOAD_DISCONNECT: u32 = 64 << 20;

/// Header of a client's option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct OptionHeader {
    pub(super) magic: U64,
    pub(super) option: U32,
    pub(super) len: U32,
}

/// The server's first message.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Greeting {
    pub(super) init_magic: U64,
    pub(super) option_magic: U64,
    pub(super) flags: U16,
}

/// Header of the reply to an option; `len` bytes follow.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct OptionReplyHeader {
    pub(super) magic: U64,
    pub(super) option: U32,
    pub(super) kind: U32,
    pub(super) len: U32,
}

/// Size and transmission flags of an export.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct ExportInfo {
    pub(super) size: U64,
    pub(super) flags: U16,
}

/// Block sizes of an export, bytes.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct BlockSizeInfo {
    pub(super) minimum: U32,
    pub(super) preferred: U32,
    pub(super) maximum: U32,
}

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRequest {
    magic: U32,
    flags: U16,
    command: U16,
    cookie: U64,
    offset: U64,
    len: U32,
}

/// Header of a command; a write's data follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHeader {
    pub(super) flags: u16,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl RequestHeader {
    pub(super) const SIZE: usize = size_of::<RawRequest>();

    /// `None`: the magic number is missing, so the stream is out of step.
    pub(super) fn parse(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let raw: RawRequest = zerocopy::transmute!(*bytes);
        let header = Self {
            flags: raw.flags.get(),
            command: raw.command.get(),
            cookie: raw.cookie.get(),
            offset: raw.offset.get(),
            len: raw.len.get(),
        };
        (raw.magic == REQUEST_MAGIC).then_some(header)
    }
}

/// Takes numbers and bytes from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireReader<'a>(pub(super) &'a [u8]);

impl<'a> WireReader<'a> {
    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A string preceded by its length.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()?;
        std::str::from_utf8(self.bytes(len as usize)?).ok()
    }
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct SimpleReply {
    magic: U32,
    error: U32,
    cookie: U64,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct ChunkHeader {
    magic: U32,
    flags: U16,
    kind: U16,
    cookie: U64,
    len: U32,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct ErrorChunk {
    header: ChunkHeader,
    error: U32,
    message_len: U16,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct DataChunkHeader {
    header: ChunkHeader,
    offset: U64,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct BlockStatusChunk {
    header: ChunkHeader,
    context: U32,
    extent_len: U32,
    extent_flags: U32,
}

/// The header of a simple reply.
pub(super) fn simple_reply(cookie: u64, error: u32) -> Vec<u8> {
    SimpleReply { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: cookie.into() }.as_bytes().to_vec()
}

/// The header of a chunk that `len` bytes follow.
fn chunk_header(cookie: u64, flags: u16, kind: u16, len: u32) -> ChunkHeader {
    let magic = STRUCTURED_REPLY_MAGIC.into();
    ChunkHeader { magic, flags: flags.into(), kind: kind.into(), cookie: cookie.into(), len: len.into() }
}

/// A chunk that reports a command's error.
pub(super) fn error_chunk(cookie: u64, error: u32) -> Vec<u8> {
    let header = chunk_header(cookie, chunk::DONE, chunk::ERROR, 6);
    ErrorChunk { header, error: error.into(), message_len: U16::ZERO }.as_bytes().to_vec()
}

/// The header of a chunk of `len` bytes of data at `offset` of the export.
pub(super) fn data_chunk(cookie: u64, flags: u16, offset: u64, len: u32) -> Vec<u8> {
    let header = chunk_header(cookie, flags, chunk::OFFSET_DATA, len + 8);
    DataChunkHeader { header, offset: offset.into() }.as_bytes().to_vec()
}

/// A chunk with one extent of `len` bytes that is allocated.
pub(super) fn allocated_chunk(cookie: u64, len: u32) -> Vec<u8> {
    let header = chunk_header(cookie, chunk::DONE, chunk::BLOCK_STATUS, 12);
    let context = ALLOCATION_ID.into();
    BlockStatusChunk { header, context, extent_len: len.into(), extent_flags: U32::ZERO }.as_bytes().to_vec()
}

/// The protocol's error number of an errno.
pub(super) fn error_number(errno: Errno) -> u32 {
    match errno {
        Errno::EPERM => 1,
        Errno::ENOMEM => 12,
        Errno::EINVAL => 22,
        Errno::ENOSPC => 28,
        Errno::EOVERFLOW => 75,
        Errno::EOPNOTSUPP => 95,
        Errno::ESHUTDOWN => 108,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_the_magic_is_rejected() {
        let mut bytes = [0; RequestHeader::SIZE];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[5] = 1;
        bytes[7] = 6;
        bytes[15] = 9;
        bytes[22] = 2;
        bytes[27] = 4;
        let header = RequestHeader { flags: 1, command: command::WRITE_ZEROES, cookie: 9, offset: 512, len: 4 };
        assert_eq!(RequestHeader::parse(&bytes), Some(header));
        bytes[0] ^= 1;
        assert_eq!(RequestHeader::parse(&bytes), None);
    }

    #[test]
    fn wire_reader_stops_at_the_end() {
        let mut fields = WireReader(&[0, 0, 0, 5, b'a', b'b']);
        assert_eq!(fields.string(), None);
        assert_eq!(WireReader(&[0, 0, 0]).u32(), None);
        assert_eq!(WireReader(&[0, 0, 0, 1, 0xff]).string(), None);
        assert_eq!(WireReader(&[0, 0, 0, 1, b'x', 7]).string(), Some("x"));
    }

    #[test]
    fn replies_have_the_bytes_of_the_protocol() {
        let chunk = |flags, kind, len| [&[0x66, 0x8e, 0x33, 0xef, 0, flags][..], kind, &[0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, len]].concat();
        assert_eq!(simple_reply(0x201, 22), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 2, 1]);
        assert_eq!(error_chunk(0x201, 5), [&chunk(1, &[0x80, 1], 6)[..], &[0, 0, 0, 5, 0, 0]].concat());
        assert_eq!(data_chunk(0x201, 0, 512, 3), [&chunk(0, &[0, 1], 11)[..], &[0, 0, 0, 0, 0, 0, 2, 0]].concat());
        assert_eq!(allocated_chunk(0x201, 512), [&chunk(1, &[0, 5], 12)[..], &[0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0]].concat());
    }
}
