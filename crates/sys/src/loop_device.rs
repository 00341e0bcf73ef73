//! ioctls of loop(4): a block device of the kernel backed by a file.

use crate::linux::loop_device::{
    LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO, LO_FLAGS_READ_ONLY, LO_NAME_SIZE, LOOP_CLR_FD, LOOP_CONFIGURE, LOOP_CTL_GET_FREE,
    LOOP_GET_STATUS64, LOOP_SET_CAPACITY, loop_config, loop_info64,
};
use core::mem::MaybeUninit;
use syscalls::{Errno, Sysno, syscall};

/// How to set up a loop device.
#[derive(Clone, Copy, Debug)]
pub struct LoopConfig<'a> {
    /// Descriptor of the backing file.
    pub file: i32,
    /// Logical block, bytes.
    pub block_size: u32,
    /// Whether writes fail.
    pub is_read_only: bool,
    /// Name that tools show; at most 63 bytes of it.
    pub name: &'a str,
}

/// The number of a loop device that is free now; another process may bind it first. `control`:
/// `/dev/loop-control`.
///
/// # Errors
/// Those of ioctl(2).
pub fn free_number(control: i32) -> Result<u32, Errno> {
    // SAFETY: no address.
    unsafe { syscall!(Sysno::ioctl, control, LOOP_CTL_GET_FREE) }.map(|number| number as u32)
}

/// Binds a loop device to a file, with direct I/O. The kernel unbinds it when its last user closes
/// it.
///
/// # Errors
/// `EBUSY` it is bound; `EINVAL` block size; those of ioctl(2).
pub fn configure(device: i32, config: &LoopConfig<'_>) -> Result<(), Errno> {
    let mut info = no_info();
    info.lo_flags = LO_FLAGS_AUTOCLEAR as u32 | LO_FLAGS_DIRECT_IO as u32 | if config.is_read_only { LO_FLAGS_READ_ONLY as u32 } else { 0 };
    let name = &config.name.as_bytes()[..config.name.len().min(LO_NAME_SIZE as usize - 1)];
    info.lo_file_name[..name.len()].copy_from_slice(name);
    let config = loop_config { fd: config.file.cast_unsigned(), block_size: config.block_size, info, __reserved: [0; 8] };
    // SAFETY: the kernel reads a live structure.
    unsafe { syscall!(Sysno::ioctl, device, LOOP_CONFIGURE, &raw const config) }.map(drop)
}

/// All zero.
fn no_info() -> loop_info64 {
    // SAFETY: integers only.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Updates the device's size from the file's.
///
/// # Errors
/// `ENXIO` it is not bound; those of ioctl(2).
pub fn update_size(device: i32) -> Result<(), Errno> {
    // SAFETY: no address.
    unsafe { syscall!(Sysno::ioctl, device, LOOP_SET_CAPACITY) }.map(drop)
}

/// Unbinds a loop device; if it has users, when the last one closes it.
///
/// # Errors
/// `ENXIO` it is not bound; those of ioctl(2).
pub fn unbind(device: i32) -> Result<(), Errno> {
    // SAFETY: no address.
    unsafe { syscall!(Sysno::ioctl, device, LOOP_CLR_FD, 0_usize) }.map(drop)
}

/// Checks that the backing file answers a request for its attributes.
///
/// # Errors
/// `ENXIO` it is not bound; what the file answers: `ENOTCONN` where a FUSE server has died.
pub fn is_answered(device: i32) -> Result<(), Errno> {
    let mut info = no_info();
    // SAFETY: the kernel writes to a live structure.
    unsafe { syscall!(Sysno::ioctl, device, LOOP_GET_STATUS64, &raw mut info) }.map(drop)
}
