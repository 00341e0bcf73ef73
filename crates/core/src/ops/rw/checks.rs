//! Checks of a transfer before it is tried.

use crate::file::FileKind;
use crate::ops::issue::OpFile;
use uringlet_sys::required_calls::is_denial;
use uringlet_sys::{Errno, process};

/// All `RWF_*` up to `RWF_NOSIGNAL`.
pub(super) const RWF_KNOWN: u32 = 0x1ff;
/// `RWF_ATOMIC`, `RWF_DONTCACHE`: for files with positions only.
pub(super) const RWF_OF_FILES: u32 = 0xc0;
pub(super) const RWF_NOSIGNAL: u32 = 0x100;
/// `RWF_APPEND` and `RWF_NOAPPEND`: not together, and without a meaning on sockets.
pub(super) const RWF_CONTRADICTION: u32 = 0x30;

/// Whether an `IORING_SETUP_IOPOLL` ring takes transfers of this file: those that bypass the page
/// cache. They are executed as on any other ring.
#[cold]
pub(super) fn may_be_polled(file: OpFile) -> bool {
    let kind = if file.is_fixed { file.kind() } else { FileKind::refresh(file.fd) };
    kind.is_direct()
}

/// Checks an I/O priority as ioprio_set(2) does: class in the top three bits, level below.
pub(super) fn priority(ioprio: u16) -> Result<(), Errno> {
    const CAP_SYS_NICE: u32 = 23;
    match ioprio >> 13 {
        0 if ioprio & 7 == 0 => Ok(()),
        1 if !process::has_capability(CAP_SYS_NICE) => Err(Errno::EPERM),
        1..=3 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether a transfer failed because it was not to wait: the file knows no `RWF_NOWAIT`, or a
/// filter denies preadv2(2). An error of the file itself comes again from the transfer that waits.
pub(in crate::ops) const fn refuses_nowait(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP) || is_denial(errno)
}
