//! Paths that exist only in a kernel with ublk_drv: `/dev/ublk-control`, `/dev/ublkcN`,
//! `/sys/class/ublk-char`, `/sys/module/ublk_drv`.
//!
//! The kernel is asked first. If it does not open one, the engine does. If it does not find one,
//! the call is repeated for what stands in for it: `/dev/null`, `/`, and a folder of the broker's.

use alloc::ffi::CString;
use core::ffi::{CStr, c_char};

use uringlet_core::ENGINE;
use uringlet_sys::linux::general::{O_ACCMODE, O_CREAT, O_RDONLY};
use uringlet_sys::{Errno, UserPtr};
use uringlet_ublk::remote::BROKER_FILES;

use crate::{backend, in_use};

/// Where a program's strings may be: above the page that no program maps, below the kernel.
const USER_ADDRESSES: core::ops::Range<usize> = 0x1_0000..1 << 47;
/// The engine's files begin with one of these.
pub(crate) const OPENED: [&[u8]; 2] = [b"/dev/ublk", b"/dev/uringlet/"];
/// Paths with a stand-in begin with one of these.
pub(crate) const LOOKED_UP: [&[u8]; 3] = [b"/dev/ublk", b"/sys/class/ublk-char", b"/sys/module/ublk_drv"];

/// Folders among them.
const LISTED: [&[u8]; 2] = [b"/sys/class/ublk-char", b"/sys/module/ublk_drv"];

/// Whether the string at `path` begins with one of these. It was the path of a call that the kernel
/// has just failed.
///
/// Mostly the kernel has read the path, to its NUL. A seccomp filter may have failed the call
/// before that. So an address that no string can have is not read; others are the program's
/// strings, by what libc's function asks for. No system call may find that out: the filter may kill
/// for it.
fn begins_with(path: usize, prefixes: &[&[u8]]) -> bool {
    let bytes = path as *const u8;
    // SAFETY: see above; no byte behind a difference or the NUL is read.
    let begins = |prefix: &&[u8]| prefix.iter().enumerate().all(|(i, &byte)| unsafe { bytes.add(i).read() } == byte);
    USER_ADDRESSES.contains(&path) && prefixes.iter().any(begins)
}

/// Whether the path of a failed open may be the engine's.
pub(crate) fn may_be_opened(path: usize, errno: Errno) -> bool {
    let is_missing = matches!(errno, Errno::ENOENT | Errno::ENXIO | Errno::ENODEV | Errno::ENOTDIR | Errno::EACCES | Errno::EPERM);
    is_missing && !backend::has_kernels_rings() && begins_with(path, &OPENED)
}

/// Opens the path that [`may_be_opened`]: a descriptor or -errno; `None`: the kernel's error
/// stands.
pub(crate) fn open(path: usize, flags: u32, errno: Errno) -> Option<isize> {
    in_use::begin();
    ENGINE.open(UserPtr::new(path), flags, errno)
}

/// Whether the path of a failed lookup may have a stand-in.
pub(crate) fn may_have_stand_in(path: usize, errno: Errno) -> bool {
    errno == Errno::ENOENT && !backend::has_kernels_rings() && begins_with(path, &LOOKED_UP)
}

/// Whether the path of a failed open may be that of a folder with a stand-in, opened to be listed.
pub(crate) fn may_be_listed(path: usize, flags: u32, errno: Errno) -> bool {
    let is_read = flags & O_ACCMODE == O_RDONLY && flags & O_CREAT == 0;
    is_read && may_have_stand_in(path, errno) && begins_with(path, &LISTED)
}

/// What stands in for a path that [`may_have_stand_in`].
pub(crate) fn stand_in(path: usize) -> Option<CString> {
    in_use::begin();
    // SAFETY: the kernel has read the path to its NUL.
    let path = unsafe { CStr::from_ptr(path as *const c_char) };
    BROKER_FILES.remap_path(path.to_bytes())
}
