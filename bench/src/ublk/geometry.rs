//! The null device and the operations on it.

/// Size of the device, bytes.
pub(super) const SIZE: u64 = 1 << 30;
/// Longest request, bytes.
pub(super) const MAX_BYTES: u32 = 1 << 20;

/// Numbered as in the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UblkOp {
    Read = 0,
    Write = 1,
    Flush = 2,
}

/// Where the server finds a write's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataPath {
    /// In the buffer of the tag.
    Plain,
    /// In a buffer taken from a pool when the write arrived: NEED_GET_DATA.
    GetData,
    /// In a buffer of the pool, to which the server copied it.
    Copy,
}
