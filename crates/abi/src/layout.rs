//! Layout of the ring's shared memory, and the file offsets to map it at (Linux 6.18). All in
//! bytes.

/// `IORING_OFF_SQ_RING`: mmap offset of the SQ ring (and, with `FEAT_SINGLE_MMAP`, the CQ ring).
pub const OFF_SQ_RING: u64 = 0;
/// `IORING_OFF_CQ_RING`.
pub const OFF_CQ_RING: u64 = 0x0800_0000;
/// `IORING_OFF_SQES`.
pub const OFF_SQES: u64 = 0x1000_0000;
/// `IORING_MAP_OFF_PARAM_REGION`: the memory of `IORING_REGISTER_MEM_REGION`.
pub const OFF_PARAM_REGION: u64 = 0x2000_0000;
/// `IORING_MAP_OFF_ZCRX_REGION`: refill rings of zero-copy receive, the instance's id shifted by
/// [`OFF_ZCRX_SHIFT`].
pub const OFF_ZCRX_REGION: u64 = 0x3000_0000;
/// `IORING_OFF_ZCRX_SHIFT`.
pub const OFF_ZCRX_SHIFT: u32 = 16;
/// `IORING_OFF_PBUF_RING`: kernel-allocated provided-buffer rings, group id shifted by
/// [`OFF_PBUF_SHIFT`].
pub const OFF_PBUF_RING: u64 = 0x8000_0000;
/// `IORING_OFF_PBUF_SHIFT`.
pub const OFF_PBUF_SHIFT: u32 = 16;
/// `IORING_OFF_MMAP_MASK`.
pub const OFF_MMAP_MASK: u64 = 0xf800_0000;

/// SQ head: written by the engine.
pub const SQ_HEAD: u32 = 0;
/// SQ tail: written by the program.
pub const SQ_TAIL: u32 = 4;
/// CQ head: written by the program.
pub const CQ_HEAD: u32 = 8;
/// CQ tail: written by the engine.
pub const CQ_TAIL: u32 = 12;
/// SQ mask.
pub const SQ_RING_MASK: u32 = 16;
/// CQ mask.
pub const CQ_RING_MASK: u32 = 20;
/// SQ entries.
pub const SQ_RING_ENTRIES: u32 = 24;
/// CQ entries.
pub const CQ_RING_ENTRIES: u32 = 28;
/// SQEs dropped because of a bad index in the SQ array.
pub const SQ_DROPPED: u32 = 32;
/// SQ flags, `IORING_SQ_*`: written by the engine.
pub const SQ_FLAGS: u32 = 36;
/// CQ flags, `IORING_CQ_*`: written by the program.
pub const CQ_FLAGS: u32 = 40;
/// CQEs lost because memory ran out.
pub const CQ_OVERFLOW: u32 = 44;
/// The first CQE.
pub const CQES: u32 = 64;

/// Head of a refill ring: written by the engine.
pub const ZCRX_HEAD: u32 = 0;
/// Tail of a refill ring: written by the program.
pub const ZCRX_TAIL: u32 = 4;
/// The first entry of a refill ring.
pub const ZCRX_RQES: u32 = 64;
/// Size of an entry of a refill ring.
pub const ZCRX_RQE: u32 = 16;
/// `IORING_ZCRX_AREA_SHIFT`: the area's id is above this bit of an offset.
pub const ZCRX_AREA_SHIFT: u32 = 48;

/// Most SQ entries of a ring.
pub const MAX_ENTRIES: u32 = 32768;
/// Most CQ entries of a ring.
pub const MAX_CQ_ENTRIES: u32 = 2 * MAX_ENTRIES;
