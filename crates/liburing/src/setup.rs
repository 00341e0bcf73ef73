//! Making and unmaking rings.

use core::mem::MaybeUninit;

use uringlet_abi::{UringParams, feat, setup};

use crate::c_types::{Void, err};
use crate::mapping::{map, unmap_rings};
use crate::ring::{IoUring, int_flags};
use crate::ring_fd::io_uring_unregister_ring_fd;
use crate::sizes::{Entries, InMemoryLayout};
use crate::syscall;

/// Memory that the program provides for a ring.
#[derive(Clone, Copy, Debug)]
struct CallerMemory {
    at: *mut Void,
    len: usize,
}

/// Fills in the fields that are known once the ring has its memory.
fn finish(ring: &IoUring, fd: i32, params: &UringParams) {
    ring.flags.set(params.flags);
    ring.features.set(params.features);
    ring.enter_ring_fd.set(fd);
    ring.ring_fd.set(fd);
    if params.flags & setup::REGISTERED_FD_ONLY != 0 {
        ring.ring_fd.set(-1);
        ring.set_int_flags(int_flags::REG_RING | int_flags::REG_REG_RING);
    }
    if params.flags & (setup::IOPOLL | setup::SQPOLL) == setup::IOPOLL {
        ring.set_int_flags(int_flags::CQ_ENTER);
    }
}

/// A ring in memory that the engine allocates.
fn init_mapped(entries: u32, ring: &IoUring, params: &mut UringParams) -> Result<u32, i32> {
    let fd = syscall::setup(entries, params);
    if fd < 0 {
        return Err(fd);
    }
    map(ring, fd, params).inspect_err(|_| syscall::close(fd))?;
    finish(ring, fd, params);
    Ok(0)
}

/// A ring in memory of this process (NO_MMAP): the program's, or else allocated here. Returns how
/// many bytes of it are used.
fn init_in_memory(entries: u32, ring: &IoUring, params: &mut UringParams, given: Option<CallerMemory>) -> Result<u32, i32> {
    let layout = InMemoryLayout::of(Entries::granted(entries, params)?, params.flags);
    let base = match given {
        Some(memory) if memory.len < layout.total => return Err(err::ENOMEM),
        Some(memory) => memory.at,
        None => syscall::map_shared(layout.total)?,
    };
    let rings: *mut Void = base.cast::<u8>().wrapping_add(layout.rings_at).cast();
    params.sq_off.user_addr = base.expose_provenance() as u64;
    params.cq_off.user_addr = rings.expose_provenance() as u64;
    let fd = syscall::setup(entries, params);
    if fd < 0 {
        if given.is_none() {
            // SAFETY: mapped above, and the engine does not use it.
            unsafe { syscall::unmap(base, layout.total) };
        }
        return Err(fd);
    }
    // SAFETY: the engine has accepted this memory for this ring.
    unsafe { ring.point_into(rings, base.cast(), params) };
    ring.sq.sqes_sz.set(layout.total as u32);
    finish(ring, fd, params);
    if given.is_some() {
        ring.set_int_flags(int_flags::APP_MEM);
    }
    Ok(layout.total as u32)
}

/// A new ring. liburing itself adds NO_SQARRAY; here that stays the program's choice: programs
/// built with older headers may use the array themselves, and keeping it costs one load for each
/// SQE.
fn init(entries: u32, uninit: &mut MaybeUninit<IoUring>, params: &mut UringParams, given: Option<CallerMemory>) -> Result<u32, i32> {
    let ring = IoUring::zeroed(uninit);
    match params.flags & (setup::NO_MMAP | setup::REGISTERED_FD_ONLY) {
        0 => init_mapped(entries, ring, params),
        setup::REGISTERED_FD_ONLY => Err(err::EINVAL),
        _ => init_in_memory(entries, ring, params, given),
    }
}

fn status(result: Result<u32, i32>) -> i32 {
    result.map_or_else(|errno| errno, |_| 0)
}

/// A new ring of `entries` SQEs.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_queue_init(entries: u32, ring: &mut MaybeUninit<IoUring>, flags: u32) -> i32 {
    let mut params = UringParams { flags, ..UringParams::default() };
    status(init(entries, ring, &mut params, None))
}

/// A new ring with all parameters. Setup updates them.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_queue_init_params(entries: u32, ring: &mut MaybeUninit<IoUring>, p: &mut UringParams) -> i32 {
    status(init(entries, ring, p, None))
}

/// A new ring in the program's memory; returns how many bytes of it are used. It has no SQ array,
/// which would not fit into what `io_uring_memory_size` says.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_queue_init_mem(
    entries: u32,
    ring: &mut MaybeUninit<IoUring>,
    p: &mut UringParams,
    buf: *mut Void,
    buf_size: usize,
) -> i32 {
    p.flags |= setup::NO_MMAP | setup::NO_SQARRAY;
    let given = (!buf.is_null()).then_some(CallerMemory { at: buf, len: buf_size });
    init(entries, ring, p, given).map_or_else(|errno| errno, u32::cast_signed)
}

/// The ring of an fd that `io_uring_setup` made with these parameters.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_queue_mmap(fd: i32, p: &UringParams, ring: &mut MaybeUninit<IoUring>) -> i32 {
    let ring = IoUring::zeroed(ring);
    if p.features & feat::SINGLE_MMAP == 0 {
        return err::EINVAL;
    }
    match map(ring, fd, p) {
        Ok(()) => finish(ring, fd, p),
        Err(errno) => return errno,
    }
    0
}

/// Keeps the ring's memory out of children forked from now on.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_ring_dontfork(ring: &IoUring) -> i32 {
    let (rings, sqes) = (ring.sq.ring_ptr.get(), ring.sq.sqes.get());
    if rings.is_null() || sqes.is_null() {
        return err::EINVAL;
    }
    match syscall::keep_from_children(sqes.cast(), ring.sq.sqes_sz.get() as usize) {
        0 => syscall::keep_from_children(rings, ring.sq.ring_sz.get()),
        errno => errno,
    }
}

/// Ends the ring. Its memory is unmapped last, after the engine has stopped using it.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_queue_exit(ring: &IoUring) {
    if ring.has_int_flag(int_flags::REG_RING) {
        io_uring_unregister_ring_fd(ring);
    }
    if ring.ring_fd.get() != -1 {
        syscall::close(ring.ring_fd.get());
    }
    if !ring.has_int_flag(int_flags::APP_MEM) {
        unmap_rings(ring);
        // SAFETY: `map` or `init_in_memory` made it.
        unsafe { syscall::unmap(ring.sq.sqes.get().cast(), ring.sq.sqes_sz.get() as usize) };
    }
}
