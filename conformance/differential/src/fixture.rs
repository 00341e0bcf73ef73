//! The descriptors and addresses of a scenario: the same numbers on both runners, so that a
//! scenario is plain data.

/// The arena: all memory that SQEs point to.
pub(crate) const ARENA: u64 = 0x10_0000_0000;
/// A request's own part of the arena: data, then [`AUX`] for iovecs, paths and times, then
/// [`AUX2`].
pub(crate) const CHUNK: u64 = 16 << 10;
pub(crate) const AUX: u64 = 8 << 10;
pub(crate) const AUX2: u64 = 12 << 10;
/// Limit of requests per scenario.
pub(crate) const MAX_OPS: u64 = 128;
/// Provided buffers: group, then number.
pub(crate) const PROVIDED: u64 = ARENA + (4 << 20);
pub(crate) const PROVIDED_LEN: u64 = 512;
/// The ring of buffer group [`RING_GROUP`].
pub(crate) const BUF_RING: u64 = ARENA + (5 << 20);
/// The ring of buffer group [`INC_GROUP`].
pub(crate) const INC_RING: u64 = BUF_RING + 4096;
pub(crate) const BUF_RING_ENTRIES: u16 = 16;
/// Registered buffers.
pub(crate) const FIXED_BUFFERS: u64 = ARENA + (6 << 20);
pub(crate) const FIXED_BUFFER_LEN: u64 = 16 << 10;
pub(crate) const N_FIXED_BUFFERS: u64 = 3;
/// Words for futexes, which stay 0.
pub(crate) const FUTEXES: u64 = ARENA + (7 << 20);
pub(crate) const ARENA_LEN: u64 = 8 << 20;
/// A read-only page.
pub(crate) const READ_ONLY: u64 = ARENA + ARENA_LEN;
/// An unmapped address.
pub(crate) const UNMAPPED: u64 = ARENA - (1 << 20);

/// Buffer groups: one filled by PROVIDE_BUFFERS, two registered rings, one that does not exist.
pub(crate) const LEGACY_GROUP: u16 = 1;
pub(crate) const RING_GROUP: u16 = 2;
/// A ring with incremental consumption (IOU_PBUF_RING_INC).
pub(crate) const INC_GROUP: u16 = 3;
pub(crate) const NO_GROUP: u16 = 9;

/// Regular files: read-write, append, read-only, direct, write-only.
pub(crate) const FILES: [i32; 5] = [100, 101, 102, 103, 104];
pub(crate) const DIRECT_FILE: i32 = 103;
/// Read ends; the write end is the next number. The last pipe is non-blocking, the one before holds
/// one page.
pub(crate) const PIPES: [i32; 5] = [110, 112, 114, 116, 118];
/// One end; the other is the next number. Three stream pairs (the third non-blocking), then a
/// datagram pair.
pub(crate) const SOCKETS: [i32; 4] = [120, 122, 124, 126];
/// As [`SOCKETS`], over the loopback: a TCP connection, and a pair of connected UDP sockets.
pub(crate) const TCP: i32 = 128;
pub(crate) const UDP: i32 = 144;
pub(crate) const EVENTS: [i32; 2] = [130, 131];
pub(crate) const DIRECTORY: i32 = 132;
pub(crate) const EPOLL: i32 = 133;
pub(crate) const NULL: i32 = 134;
pub(crate) const ZERO: i32 = 135;
/// A listening unix socket with the name `listener`.
pub(crate) const LISTENER: i32 = 140;
/// Unconnected sockets.
pub(crate) const FRESH_SOCKETS: [i32; 2] = [141, 142];
/// An eventfd for completion notifications, whose count is not compared.
pub(crate) const NOTIFIED: i32 = 143;
/// Duplicates of /dev/null, for CLOSE.
pub(crate) const VICTIMS: [i32; 4] = [150, 151, 152, 153];
/// Never open.
pub(crate) const CLOSED: i32 = 199;
/// Placeholders for the ring's own descriptor, and for that of another ring with a file table.
pub(crate) const OWN_RING: i32 = 1000;
pub(crate) const OTHER_RING: i32 = 1001;
/// First number for descriptors that requests create.
pub(crate) const ADOPTED: i32 = 200;

/// The initial file table; -1 is an empty slot.
pub(crate) const TABLE: [i32; 20] =
    [100, 101, 102, 103, 110, 111, 112, 113, 120, 121, 126, 127, 130, -1, -1, -1, TCP, TCP + 1, UDP, UDP + 1];
pub(crate) const NAMES: [&str; 5] = ["n0", "n1", "n2", "d0", "d0/n3"];

/// The address of a provided buffer.
pub(crate) fn provided(group: u16, bid: u16) -> u64 {
    PROVIDED + (u64::from(group) << 16) + u64::from(bid) * PROVIDED_LEN
}
