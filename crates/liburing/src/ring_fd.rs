//! The ring's fd as a registered ring: entered by index, without a lookup of the file.

use uringlet_abi::feat;
use uringlet_abi::register::{self, RsrcUpdate};

use crate::c_types::err;
use crate::register::register;
use crate::ring::{IoUring, int_flags};
use crate::syscall;

/// Any free index.
const ANY: u32 = u32::MAX;

/// Registers the ring's fd; 1 on success.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_ring_fd(ring: &IoUring) -> i32 {
    if ring.has_int_flag(int_flags::REG_RING) {
        return err::EEXIST;
    }
    let mut up = RsrcUpdate { offset: ANY, resv: 0, data: u64::from(ring.ring_fd.get().cast_unsigned()) };
    let result = register(ring, register::RING_FDS, &raw mut up, 1);
    if result == 1 {
        ring.enter_ring_fd.set(up.offset.cast_signed());
        let by_index = if ring.has_feature(feat::REG_REG_RING) { int_flags::REG_REG_RING } else { 0 };
        ring.set_int_flags(int_flags::REG_RING | by_index);
    }
    result
}

/// Back to the plain fd; 1 on success.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_unregister_ring_fd(ring: &IoUring) -> i32 {
    if !ring.has_int_flag(int_flags::REG_RING) {
        return err::EINVAL;
    }
    let up = RsrcUpdate { offset: ring.enter_ring_fd.get().cast_unsigned(), resv: 0, data: 0 };
    let result = register(ring, register::UNREGISTER_RING_FDS, &raw const up, 1);
    if result == 1 {
        ring.enter_ring_fd.set(ring.ring_fd.get());
        ring.clear_int_flags(int_flags::REG_RING | int_flags::REG_REG_RING);
    }
    result
}

/// Closes the fd of a ring that is used by its index; 1 on success.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_close_ring_fd(ring: &IoUring) -> i32 {
    if !ring.has_feature(feat::REG_REG_RING) {
        return err::EOPNOTSUPP;
    }
    if !ring.has_int_flag(int_flags::REG_RING) {
        return err::EINVAL;
    }
    match ring.ring_fd.replace(-1) {
        -1 => err::EBADF,
        fd => {
            syscall::close(fd);
            1
        }
    }
}
