//! What a transfer is refused for before anybody looks at its file.

use uringlet_abi::register::Iovec;
use uringlet_sys::{Errno, process};

/// All `RWF_*` up to `RWF_NOSIGNAL`.
pub(super) const RWF_KNOWN: u32 = 0x1ff;
/// Beyond it no address is a program's.
const USER_END: u64 = 1 << 56;

/// Whether these bytes can be nobody's memory.
pub(in crate::ops) fn is_beyond_memory(addr: u64, len: u64) -> bool {
    addr.saturating_add(len) > USER_END
}

/// Iovecs as readv(2) would take them.
pub(in crate::ops) fn iovecs(iovecs: &[Iovec]) -> Result<(), Errno> {
    if iovecs.iter().any(|v| v.len > i64::MAX as u64) {
        return Err(Errno::EINVAL);
    }
    if iovecs.iter().any(|v| is_beyond_memory(v.base, v.len)) { Err(Errno::EFAULT) } else { Ok(()) }
}

/// An I/O priority that ioprio_set(2) would take: class in the top three bits, level below.
pub(super) fn priority(ioprio: u16) -> Result<(), Errno> {
    const CAP_SYS_NICE: u32 = 23;
    match ioprio >> 13 {
        0 if ioprio & 7 == 0 => Ok(()),
        1 if !process::has_capability(CAP_SYS_NICE) => Err(Errno::EPERM),
        1..=3 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}
