//! Provided-buffer rings in memory that this library maps.

use core::mem::MaybeUninit;

use uringlet_abi::register::BufReg;

use crate::c_types::BufRing;
use crate::register::{io_uring_register_buf_ring, io_uring_unregister_buf_ring};
use crate::ring::IoUring;
use crate::syscall::{self, user};

/// Bytes of one `struct io_uring_buf`.
const BUF_BYTES: usize = 16;

fn setup(ring: &IoUring, nentries: u32, bgid: i32, flags: u32) -> Result<*mut BufRing, i32> {
    let len = nentries as usize * BUF_BYTES;
    // New memory is zero, and so is the ring's tail.
    let memory = syscall::map_private(len)?;
    let mut reg = BufReg { ring_addr: user(memory).addr() as u64, ring_entries: nentries, bgid: bgid as u16, ..BufReg::default() };
    match io_uring_register_buf_ring(ring, &mut reg, flags) {
        0 => Ok(memory.cast()),
        errno => {
            // SAFETY: mapped above, and the engine does not use it.
            unsafe { syscall::unmap(memory, len) };
            Err(errno)
        }
    }
}

/// A new, empty buffer ring of group `bgid`; on failure null, and -errno in `err`.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_setup_buf_ring(
    ring: &IoUring,
    nentries: u32,
    bgid: i32,
    flags: u32,
    err: &mut MaybeUninit<i32>,
) -> *mut BufRing {
    let result = setup(ring, nentries, bgid, flags);
    err.write(result.err().unwrap_or(0));
    result.unwrap_or(core::ptr::null_mut())
}

/// Unregisters and frees a ring of [`io_uring_setup_buf_ring`].
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_free_buf_ring(ring: &IoUring, br: *mut BufRing, nentries: u32, bgid: i32) -> i32 {
    let result = io_uring_unregister_buf_ring(ring, bgid);
    if result == 0 {
        // SAFETY: `setup` mapped it, and the engine does not use it any more.
        unsafe { syscall::unmap(br.cast(), nentries as usize * BUF_BYTES) };
    }
    result
}
