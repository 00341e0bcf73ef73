//! `IORING_REGISTER_*` and the structures of io_uring_register(2).
#![allow(missing_docs)]

pub const BUFFERS: u32 = 0;
pub const UNREGISTER_BUFFERS: u32 = 1;
pub const FILES: u32 = 2;
pub const UNREGISTER_FILES: u32 = 3;
pub const EVENTFD: u32 = 4;
pub const UNREGISTER_EVENTFD: u32 = 5;
pub const FILES_UPDATE: u32 = 6;
pub const EVENTFD_ASYNC: u32 = 7;
pub const PROBE: u32 = 8;
pub const PERSONALITY: u32 = 9;
pub const UNREGISTER_PERSONALITY: u32 = 10;
pub const RESTRICTIONS: u32 = 11;
pub const ENABLE_RINGS: u32 = 12;
pub const FILES2: u32 = 13;
pub const FILES_UPDATE2: u32 = 14;
pub const BUFFERS2: u32 = 15;
pub const BUFFERS_UPDATE: u32 = 16;
pub const IOWQ_AFF: u32 = 17;
pub const UNREGISTER_IOWQ_AFF: u32 = 18;
pub const IOWQ_MAX_WORKERS: u32 = 19;
pub const RING_FDS: u32 = 20;
pub const UNREGISTER_RING_FDS: u32 = 21;
pub const PBUF_RING: u32 = 22;
pub const UNREGISTER_PBUF_RING: u32 = 23;
pub const SYNC_CANCEL: u32 = 24;
pub const FILE_ALLOC_RANGE: u32 = 25;
pub const PBUF_STATUS: u32 = 26;
pub const NAPI: u32 = 27;
pub const UNREGISTER_NAPI: u32 = 28;
pub const CLOCK: u32 = 29;
pub const CLONE_BUFFERS: u32 = 30;
pub const SEND_MSG_RING: u32 = 31;
pub const ZCRX_IFQ: u32 = 32;
pub const RESIZE_RINGS: u32 = 33;
pub const MEM_REGION: u32 = 34;
pub const QUERY: u32 = 35;
pub const ZCRX_CTRL: u32 = 36;
pub const BPF_FILTER: u32 = 37;
/// The highest operation that Linux 7.0 has.
pub const LAST: u32 = BPF_FILTER;

/// `IO_URING_QUERY_*`: what `IORING_REGISTER_QUERY` can be asked.
pub mod query {
    pub const OPCODES: u32 = 0;
    pub const ZCRX: u32 = 1;
    pub const SCQ: u32 = 2;
    /// One past the last.
    pub const NR: u32 = 3;
}

/// `struct io_uring_query_hdr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct QueryHdr {
    pub next_entry: u64,
    pub query_data: u64,
    pub query_op: u32,
    pub size: u32,
    pub result: i32,
    pub resv: [u32; 3],
}

/// `IORING_REGISTER_USE_REGISTERED_RING`: the fd is an index of a registered ring.
pub const USE_REGISTERED_RING: u32 = 1 << 31;
/// `IORING_REGISTER_FILES_SKIP`.
pub const FILES_SKIP: i32 = -2;
/// `IORING_RSRC_REGISTER_SPARSE`.
pub const RSRC_SPARSE: u32 = 1 << 0;
/// `IO_URING_OP_SUPPORTED`.
pub const OP_SUPPORTED: u16 = 1 << 0;
/// `IOU_PBUF_RING_MMAP`.
pub const PBUF_RING_MMAP: u16 = 1;
/// `IOU_PBUF_RING_INC`.
pub const PBUF_RING_INC: u16 = 2;

/// `IORING_RESTRICTION_REGISTER_OP`: allows a register operation.
pub const RESTRICTION_REGISTER_OP: u16 = 0;
/// `IORING_RESTRICTION_SQE_OP`: allows an opcode.
pub const RESTRICTION_SQE_OP: u16 = 1;
/// `IORING_RESTRICTION_SQE_FLAGS_ALLOWED`.
pub const RESTRICTION_SQE_FLAGS_ALLOWED: u16 = 2;
/// `IORING_RESTRICTION_SQE_FLAGS_REQUIRED`.
pub const RESTRICTION_SQE_FLAGS_REQUIRED: u16 = 3;

/// `struct io_uring_restriction`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Restriction {
    pub opcode: u16,
    /// A register operation, an opcode, or `IOSQE_*`.
    pub value: u8,
    pub resv: u8,
    pub resv2: [u32; 3],
}

/// `struct io_uring_napi`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NapiReg {
    pub busy_poll_to: u32,
    pub prefer_busy_poll: u8,
    /// `IO_URING_NAPI_*`.
    pub opcode: u8,
    pub pad: [u8; 2],
    /// How devices are tracked, or the id of one.
    pub op_param: u32,
    pub resv: u32,
}
const _: () = assert!(size_of::<NapiReg>() == 16);

/// `IO_URING_NAPI_REGISTER_OP`.
pub const NAPI_REGISTER_OP: u8 = 0;
/// `IO_URING_NAPI_STATIC_ADD_ID`.
pub const NAPI_STATIC_ADD_ID: u8 = 1;
/// `IO_URING_NAPI_STATIC_DEL_ID`.
pub const NAPI_STATIC_DEL_ID: u8 = 2;
/// `IO_URING_NAPI_TRACKING_DYNAMIC`.
pub const NAPI_TRACKING_DYNAMIC: u32 = 0;
/// `IO_URING_NAPI_TRACKING_STATIC`.
pub const NAPI_TRACKING_STATIC: u32 = 1;
/// `IO_URING_NAPI_TRACKING_INACTIVE`.
pub const NAPI_TRACKING_INACTIVE: u32 = 255;

/// `struct io_uring_zcrx_ifq_reg`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ZcrxReg {
    pub if_idx: u32,
    pub if_rxq: u32,
    pub rq_entries: u32,
    /// `ZCRX_REG_*`.
    pub flags: u32,
    /// Of a [`ZcrxArea`].
    pub area_ptr: u64,
    /// Of a [`RegionDesc`].
    pub region_ptr: u64,
    pub offsets: ZcrxOffsets,
    pub zcrx_id: u32,
    pub rx_buf_len: u32,
    pub resv: [u64; 3],
}
const _: () = assert!(size_of::<ZcrxReg>() == 96);

/// `struct io_uring_zcrx_offsets`: of a refill ring, bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ZcrxOffsets {
    pub head: u32,
    pub tail: u32,
    pub rqes: u32,
    pub resv2: u32,
    pub resv: [u64; 2],
}

/// `struct io_uring_zcrx_area_reg`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ZcrxArea {
    pub addr: u64,
    pub len: u64,
    pub rq_area_token: u64,
    /// `IORING_ZCRX_AREA_*`.
    pub flags: u32,
    pub dmabuf_fd: u32,
    pub resv: [u64; 2],
}
const _: () = assert!(size_of::<ZcrxArea>() == 48);

/// `struct io_uring_zcrx_rqe`: an entry of a refill ring.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ZcrxRefill {
    pub off: u64,
    pub len: u32,
    pub pad: u32,
}
const _: () = assert!(size_of::<ZcrxRefill>() == 16);

/// `struct zcrx_ctrl`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ZcrxControl {
    pub zcrx_id: u32,
    /// `ZCRX_CTRL_*`.
    pub op: u32,
    pub resv: [u64; 2],
    /// The operation's own.
    pub args: [u64; 6],
}
const _: () = assert!(size_of::<ZcrxControl>() == 72);

/// `ZCRX_REG_IMPORT`: an instance that another ring has exported.
pub const ZCRX_REG_IMPORT: u32 = 1;
/// `ZCRX_REG_NODEV`: an instance without a network device.
pub const ZCRX_REG_NODEV: u32 = 2;
/// `IORING_ZCRX_AREA_DMABUF`.
pub const ZCRX_AREA_DMABUF: u32 = 1;
/// `ZCRX_CTRL_FLUSH_RQ`: read the refill ring.
pub const ZCRX_CTRL_FLUSH_RQ: u32 = 0;
/// `ZCRX_CTRL_EXPORT`: a descriptor by which other rings import the instance.
pub const ZCRX_CTRL_EXPORT: u32 = 1;

/// `struct io_uring_task_restriction`, without the list that follows it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TaskRestriction {
    pub flags: u16,
    pub nr_res: u16,
    pub resv: [u32; 3],
}

/// `IO_URING_BPF_CMD_FILTER`.
pub const BPF_CMD_FILTER: u16 = 1;
/// `IO_URING_BPF_FILTER_DENY_REST`: deny opcodes that have no filter.
pub const BPF_FILTER_DENY_REST: u32 = 1 << 0;
/// `IO_URING_BPF_FILTER_SZ_STRICT`: refuse another size of the opcode's data.
pub const BPF_FILTER_SZ_STRICT: u32 = 1 << 1;

/// `struct io_uring_bpf` with a `struct io_uring_bpf_filter` in it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct BpfFilterReg {
    pub cmd_type: u16,
    pub cmd_flags: u16,
    pub resv: u32,
    pub opcode: u32,
    pub flags: u32,
    /// Instructions.
    pub filter_len: u32,
    /// Bytes of what the filter sees beside what all opcodes have.
    pub pdu_size: u8,
    pub filter_resv: [u8; 3],
    pub filter_ptr: u64,
    pub resv2: [u64; 5],
}

/// `struct io_uring_clock_register`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ClockReg {
    pub clockid: u32,
    pub resv: [u32; 3],
}

/// `IORING_MEM_REGION_REG_WAIT_ARG`.
pub const MEM_REGION_WAIT_ARG: u64 = 1 << 0;
/// `IORING_MEM_REGION_TYPE_USER`.
pub const MEM_REGION_TYPE_USER: u32 = 1 << 0;
/// `IORING_REG_WAIT_TS`.
pub const REG_WAIT_TS: u32 = 1 << 0;

/// `struct io_uring_mem_region_reg`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MemRegion {
    pub region_uptr: u64,
    pub flags: u64,
    pub resv: [u64; 2],
}

/// `struct io_uring_region_desc`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RegionDesc {
    pub user_addr: u64,
    pub size: u64,
    pub flags: u32,
    pub id: u32,
    pub mmap_offset: u64,
    pub resv: [u64; 4],
}

/// `struct io_uring_reg_wait`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RegisteredWait {
    pub ts: crate::Timespec,
    pub min_wait_usec: u32,
    pub flags: u32,
    pub sigmask: u64,
    pub sigmask_sz: u32,
    pub pad: [u32; 3],
    pub pad2: [u64; 2],
}

/// `IORING_REGISTER_SRC_REGISTERED`.
pub const CLONE_SRC_REGISTERED: u32 = 1 << 0;
/// `IORING_REGISTER_DST_REPLACE`.
pub const CLONE_DST_REPLACE: u32 = 1 << 1;

/// `struct io_uring_clone_buffers`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CloneBuffers {
    pub src_fd: u32,
    pub flags: u32,
    pub src_off: u32,
    pub dst_off: u32,
    pub nr: u32,
    pub pad: [u32; 3],
}

/// `struct io_uring_files_update`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct FilesUpdate {
    pub offset: u32,
    pub resv: u32,
    pub fds: u64,
}

/// `struct io_uring_rsrc_register`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RsrcRegister {
    pub nr: u32,
    pub flags: u32,
    pub resv2: u64,
    pub data: u64,
    pub tags: u64,
}

/// `struct io_uring_rsrc_update2`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RsrcUpdate2 {
    pub offset: u32,
    pub resv: u32,
    pub data: u64,
    pub tags: u64,
    pub nr: u32,
    pub resv2: u32,
}

/// `struct io_uring_rsrc_update`, as ring fds are registered with it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RsrcUpdate {
    pub offset: u32,
    pub resv: u32,
    pub data: u64,
}

/// `struct io_uring_buf_reg`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct BufReg {
    pub ring_addr: u64,
    pub ring_entries: u32,
    pub bgid: u16,
    pub flags: u16,
    pub min_left: u32,
    pub resv: [u32; 5],
}

/// `struct io_uring_buf_status`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct BufStatus {
    pub buf_group: u32,
    pub head: u32,
    pub resv: [u32; 8],
}

/// `struct io_uring_sync_cancel_reg`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SyncCancelReg {
    pub addr: u64,
    pub fd: i32,
    pub flags: u32,
    pub timeout: crate::Timespec,
    pub opcode: u8,
    pub pad: [u8; 7],
    pub pad2: [u64; 3],
}

/// `struct io_uring_file_index_range`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct FileIndexRange {
    pub off: u32,
    pub len: u32,
    pub resv: u64,
}

/// `struct iovec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Iovec {
    pub base: u64,
    pub len: u64,
}

const _: () = {
    assert!(size_of::<RsrcRegister>() == 32);
    assert!(size_of::<RsrcUpdate2>() == 32);
    assert!(size_of::<QueryHdr>() == 40);
    assert!(size_of::<CloneBuffers>() == 32);
    assert!(size_of::<ClockReg>() == 16);
    assert!(size_of::<MemRegion>() == 32);
    assert!(size_of::<RegionDesc>() == 64);
    assert!(size_of::<RegisteredWait>() == 64);
    assert!(size_of::<BufReg>() == 40);
    assert!(size_of::<SyncCancelReg>() == 64);
};
