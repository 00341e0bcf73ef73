//! Which opcodes are supported, in memory that the caller frees.

use core::mem::MaybeUninit;
use core::ptr::null_mut;

use crate::c_types::Probe;
use crate::register::io_uring_register_probe;
use crate::ring::IoUring;
use crate::setup::{io_uring_queue_exit, io_uring_queue_init};
use crate::weak;

/// Opcodes queried: all that fit into the SQE's byte.
const OPS: u32 = 256;
/// Bytes of `struct io_uring_probe` without opcodes.
const HEAD_BYTES: usize = 16;
/// Bytes of one `struct io_uring_probe_op`.
const OP_BYTES: usize = 8;

/// A probe of this ring, or null.
///
/// The memory is from calloc(3): some programs pass it to free(3) instead of
/// [`io_uring_free_probe`].
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_get_probe_ring(ring: &IoUring) -> *mut Probe {
    let Some(calloc) = weak::calloc() else { return null_mut() };
    let probe: *mut Probe = calloc(1, HEAD_BYTES + OPS as usize * OP_BYTES).cast();
    if !probe.is_null() && io_uring_register_probe(ring, probe, OPS) < 0 {
        io_uring_free_probe(probe);
        return null_mut();
    }
    probe
}

/// A probe of a temporary ring, or null.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_get_probe() -> *mut Probe {
    let mut ring = MaybeUninit::uninit();
    if io_uring_queue_init(2, &mut ring, 0) < 0 {
        return null_mut();
    }
    // SAFETY: a successful init has filled it.
    let ring = unsafe { ring.assume_init_ref() };
    let probe = io_uring_get_probe_ring(ring);
    io_uring_queue_exit(ring);
    probe
}

/// Frees a probe.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_free_probe(probe: *mut Probe) {
    if let Some(free) = weak::free() {
        free(probe.cast());
    }
}
