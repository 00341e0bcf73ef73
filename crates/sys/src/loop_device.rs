//! ioctls of loop(4): a block device of the kernel whose bytes are a file's.

use syscalls::{Errno, Sysno, syscall};

const CTL_GET_FREE: u64 = 0x4c82;
const CONFIGURE: u64 = 0x4c0a;
const SET_CAPACITY: u64 = 0x4c07;
const CLR_FD: u64 = 0x4c01;
const GET_STATUS64: u64 = 0x4c05;

/// `LO_FLAGS_*`.
const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;

/// Bytes of `struct loop_config`, and where fields lie in it.
const CONFIG_SIZE: usize = 304;
const CONFIG_FD: usize = 0;
const CONFIG_BLOCK_SIZE: usize = 4;
const CONFIG_FLAGS: usize = 8 + 52;
const CONFIG_FILE_NAME: usize = 8 + 56;
const NAME_MAX: usize = 63;
/// Bytes of `struct loop_info64`.
const INFO_SIZE: usize = 232;

/// What a loop device is to be like.
#[derive(Clone, Copy, Debug)]
pub struct LoopConfig<'a> {
    /// Descriptor of the file.
    pub file: i32,
    /// Logical block, bytes.
    pub block_size: u32,
    /// Nothing can be written.
    pub is_read_only: bool,
    /// What tools show; at most 63 bytes of it.
    pub name: &'a str,
}

/// The number of a loop device that is free now; somebody else may be quicker. `control` is `/dev/loop-control`.
///
/// # Errors
/// Those of ioctl(2).
pub fn free_number(control: i32) -> Result<u32, Errno> {
    // SAFETY: no address.
    unsafe { syscall!(Sysno::ioctl, control, CTL_GET_FREE) }.map(|number| number as u32)
}

/// Binds a loop device to a file, past the page cache of the file. It is unbound when its last user goes.
///
/// # Errors
/// `EBUSY` it is bound; `EINVAL` block size; those of ioctl(2).
pub fn configure(device: i32, config: &LoopConfig<'_>) -> Result<(), Errno> {
    let mut bytes = [0_u8; CONFIG_SIZE];
    let mut put = |at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    put(CONFIG_FD, config.file as u32);
    put(CONFIG_BLOCK_SIZE, config.block_size);
    put(CONFIG_FLAGS, AUTOCLEAR | DIRECT_IO | if config.is_read_only { READ_ONLY } else { 0 });
    let name = &config.name.as_bytes()[..config.name.len().min(NAME_MAX)];
    bytes[CONFIG_FILE_NAME..CONFIG_FILE_NAME + name.len()].copy_from_slice(name);
    // SAFETY: the kernel reads `struct loop_config` at this address, and `bytes` has its size.
    unsafe { syscall!(Sysno::ioctl, device, CONFIGURE, bytes.as_ptr()) }.map(drop)
}

/// Takes the size of the file over.
///
/// # Errors
/// `ENXIO` it is not bound; those of ioctl(2).
pub fn update_size(device: i32) -> Result<(), Errno> {
    // SAFETY: no address.
    unsafe { syscall!(Sysno::ioctl, device, SET_CAPACITY) }.map(drop)
}

/// Unbinds a loop device; when its last user goes, if there are others.
///
/// # Errors
/// `ENXIO` it is not bound; those of ioctl(2).
pub fn unbind(device: i32) -> Result<(), Errno> {
    // SAFETY: no address.
    unsafe { syscall!(Sysno::ioctl, device, CLR_FD, 0_usize) }.map(drop)
}

/// Whether the file behind it answers when it is asked for its attributes.
///
/// # Errors
/// `ENXIO` it is not bound; what the file answers: `ENOTCONN` where a FUSE server has died.
pub fn is_answered(device: i32) -> Result<(), Errno> {
    let mut info = [0_u8; INFO_SIZE];
    // SAFETY: the kernel writes `struct loop_info64` at this address, and `info` has its size.
    unsafe { syscall!(Sysno::ioctl, device, GET_STATUS64, info.as_mut_ptr()) }.map(drop)
}
