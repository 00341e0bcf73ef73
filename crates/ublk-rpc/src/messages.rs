//! The messages of `proto/blockstore.proto`, written by hand so that builds need no `protoc`. A
//! test compares them with the file.

use bytes::Bytes;

/// Longest read or write, bytes.
pub const IO_MAX: u32 = 1 << 20;

/// Paths of the methods.
pub(crate) mod path {
    pub(crate) const OPEN: &str = "/uringlet.blockstore.v1.BlockStore/Open";
    pub(crate) const READ: &str = "/uringlet.blockstore.v1.BlockStore/Read";
    pub(crate) const WRITE: &str = "/uringlet.blockstore.v1.BlockStore/Write";
    pub(crate) const FLUSH: &str = "/uringlet.blockstore.v1.BlockStore/Flush";
    pub(crate) const DISCARD: &str = "/uringlet.blockstore.v1.BlockStore/Discard";
    pub(crate) const WRITE_ZEROES: &str = "/uringlet.blockstore.v1.BlockStore/WriteZeroes";
}

/// The field number of `data` in every message.
pub(crate) const DATA: u32 = 15;

/// Opens a session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct OpenRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) owner: Bytes,
    #[prost(bool, tag = "2")]
    pub(crate) takeover: bool,
    #[prost(bool, tag = "3")]
    pub(crate) resume: bool,
    #[prost(fixed64, tag = "4")]
    pub(crate) volume_hash: u64,
}

/// The session's number, and the volume's properties.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct OpenReply {
    #[prost(fixed64, tag = "1")]
    pub(crate) session: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) size: u64,
    #[prost(string, tag = "3")]
    pub(crate) volume: String,
    #[prost(bool, tag = "4")]
    pub(crate) read_only: bool,
    #[prost(bool, tag = "5")]
    pub(crate) volatile_cache: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ReadRequest {
    #[prost(fixed64, tag = "1")]
    pub(crate) session: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) offset: u64,
    #[prost(uint32, tag = "3")]
    pub(crate) length: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ReadReply {
    #[prost(bytes = "bytes", tag = "15")]
    pub(crate) data: Bytes,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct WriteRequest {
    #[prost(fixed64, tag = "1")]
    pub(crate) session: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) offset: u64,
    #[prost(bool, tag = "3")]
    pub(crate) fua: bool,
    #[prost(bytes = "bytes", tag = "15")]
    pub(crate) data: Bytes,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct FlushRequest {
    #[prost(fixed64, tag = "1")]
    pub(crate) session: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(fixed64, tag = "1")]
    pub(crate) session: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) offset: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) length: u64,
    #[prost(bool, tag = "4")]
    pub(crate) may_unmap: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Done {}
