//! `io_uring_register_*`: packs the arguments for io_uring_register(2).

use uringlet_abi::register::{
    self, BufReg, BufStatus, CloneBuffers, FileIndexRange, FilesUpdate, Iovec, RsrcRegister, RsrcUpdate2, SyncCancelReg,
};
use uringlet_abi::{Sqe, UringParams, feat, setup};

use crate::c_types::{Bpf, ClockRegister, CpuSet, MemRegionReg, Napi, Probe, QueryHdr, RegWait, Restriction, ZcrxCtrl, ZcrxIfqReg, err};
use crate::mapping::{map, unmap_rings};
use crate::ring::{IoUring, int_flags};
use crate::sizes;
use crate::syscall::{self, user};

/// The fd of register calls without a ring.
const NO_RING: i32 = -1;

/// io_uring_register(2) of this ring, by its fd or by its registered index.
pub(crate) fn register<T>(ring: &IoUring, opcode: u32, arg: *const T, nr_args: u32) -> i32 {
    if ring.has_int_flag(int_flags::REG_REG_RING) {
        return syscall::register(ring.enter_ring_fd.get(), opcode | register::USE_REGISTERED_RING, user(arg), nr_args);
    }
    syscall::register(ring.ring_fd.get(), opcode, user(arg), nr_args)
}

/// A register call without argument.
fn plain(ring: &IoUring, opcode: u32) -> i32 {
    register::<u8>(ring, opcode, core::ptr::null(), 0)
}

/// A register call whose `nr_args` is the size of its argument.
fn sized<T>(ring: &IoUring, opcode: u32, arg: &T) -> i32 {
    register(ring, opcode, arg, size_of::<T>() as u32)
}

/// Registers `nr` files. The table counts against the limit on open files, so that limit is raised
/// once if need be.
fn files(nr: u32, register_fn: impl Fn() -> i32) -> i32 {
    match register_fn() {
        err::EMFILE => {
            syscall::raise_file_limit(nr);
            register_fn()
        }
        result => result,
    }
}

fn address<T>(pointer: *const T) -> u64 {
    user(pointer).addr() as u64
}

/// Registers buffers.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_buffers(ring: &IoUring, iovecs: *const Iovec, nr_iovecs: u32) -> i32 {
    register(ring, register::BUFFERS, iovecs, nr_iovecs)
}

/// Registers buffers with a tag each, posted when the buffer is released.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_buffers_tags(ring: &IoUring, iovecs: *const Iovec, tags: *const u64, nr: u32) -> i32 {
    let reg = RsrcRegister { nr, data: address(iovecs), tags: address(tags), ..RsrcRegister::default() };
    sized(ring, register::BUFFERS2, &reg)
}

/// Registers a table of `nr` empty buffer slots.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_buffers_sparse(ring: &IoUring, nr: u32) -> i32 {
    sized(ring, register::BUFFERS2, &RsrcRegister { nr, flags: register::RSRC_SPARSE, ..RsrcRegister::default() })
}

/// Replaces `nr` buffers from slot `off` on.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_buffers_update_tag(ring: &IoUring, off: u32, iovecs: *const Iovec, tags: *const u64, nr: u32) -> i32 {
    let up = RsrcUpdate2 { offset: off, data: address(iovecs), tags: address(tags), nr, ..RsrcUpdate2::default() };
    sized(ring, register::BUFFERS_UPDATE, &up)
}

/// Unregisters all buffers.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_unregister_buffers(ring: &IoUring) -> i32 {
    plain(ring, register::UNREGISTER_BUFFERS)
}

/// Registers files.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_files(ring: &IoUring, files: *const i32, nr_files: u32) -> i32 {
    self::files(nr_files, || register(ring, register::FILES, files, nr_files))
}

/// Registers files with a tag each, posted when the file is released.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_files_tags(ring: &IoUring, files: *const i32, tags: *const u64, nr: u32) -> i32 {
    let reg = RsrcRegister { nr, data: address(files), tags: address(tags), ..RsrcRegister::default() };
    self::files(nr, || sized(ring, register::FILES2, &reg))
}

/// Registers a table of `nr` empty file slots.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_files_sparse(ring: &IoUring, nr: u32) -> i32 {
    let reg = RsrcRegister { nr, flags: register::RSRC_SPARSE, ..RsrcRegister::default() };
    files(nr, || sized(ring, register::FILES2, &reg))
}

/// Replaces `nr_files` files from slot `off` on, with tags.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_files_update_tag(ring: &IoUring, off: u32, files: *const i32, tags: *const u64, nr_files: u32) -> i32 {
    let up = RsrcUpdate2 { offset: off, data: address(files), tags: address(tags), nr: nr_files, ..RsrcUpdate2::default() };
    sized(ring, register::FILES_UPDATE2, &up)
}

/// Replaces `nr_files` files from slot `off` on; returns how many were replaced.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_files_update(ring: &IoUring, off: u32, files: *const i32, nr_files: u32) -> i32 {
    let up = FilesUpdate { offset: off, fds: address(files), ..FilesUpdate::default() };
    register(ring, register::FILES_UPDATE, &raw const up, nr_files)
}

/// Unregisters all files.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_unregister_files(ring: &IoUring) -> i32 {
    plain(ring, register::UNREGISTER_FILES)
}

/// Sets the slots that `IORING_FILE_INDEX_ALLOC` may use.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_file_alloc_range(ring: &IoUring, off: u32, len: u32) -> i32 {
    let range = FileIndexRange { off, len, resv: 0 };
    register(ring, register::FILE_ALLOC_RANGE, &raw const range, 0)
}

/// Registers an eventfd, written at each completion.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_eventfd(ring: &IoUring, fd: i32) -> i32 {
    register(ring, register::EVENTFD, &raw const fd, 1)
}

/// Registers an eventfd, written at completions that did not happen at submission.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_eventfd_async(ring: &IoUring, fd: i32) -> i32 {
    register(ring, register::EVENTFD_ASYNC, &raw const fd, 1)
}

/// Unregisters the eventfd.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_unregister_eventfd(ring: &IoUring) -> i32 {
    plain(ring, register::UNREGISTER_EVENTFD)
}

/// Fills in which opcodes are supported.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_probe(ring: &IoUring, p: *mut Probe, nr: u32) -> i32 {
    register(ring, register::PROBE, p, nr)
}

/// Registers the caller's credentials; returns their id.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_personality(ring: &IoUring) -> i32 {
    plain(ring, register::PERSONALITY)
}

/// Unregisters credentials.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_unregister_personality(ring: &IoUring, id: i32) -> i32 {
    register::<u8>(ring, register::UNREGISTER_PERSONALITY, core::ptr::null(), id.cast_unsigned())
}

/// Restricts a ring that was set up disabled.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_restrictions(ring: &IoUring, res: *mut Restriction, nr_res: u32) -> i32 {
    register(ring, register::RESTRICTIONS, res, nr_res)
}

/// Enables a ring that was set up disabled.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_enable_rings(ring: &IoUring) -> i32 {
    plain(ring, register::ENABLE_RINGS)
}

/// Sets the CPUs of the ring's workers.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_iowq_aff(ring: &IoUring, cpusz: usize, mask: *const CpuSet) -> i32 {
    match i32::try_from(cpusz) {
        Ok(len) => register(ring, register::IOWQ_AFF, mask, len.cast_unsigned()),
        Err(_) => err::EINVAL,
    }
}

/// Allows the ring's workers any CPU.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_unregister_iowq_aff(ring: &IoUring) -> i32 {
    plain(ring, register::UNREGISTER_IOWQ_AFF)
}

/// Sets the limits of bounded and unbounded workers; `values` becomes the former ones.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_iowq_max_workers(ring: &IoUring, values: *mut u32) -> i32 {
    register(ring, register::IOWQ_MAX_WORKERS, values, 2)
}

/// Registers a provided-buffer ring.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_buf_ring(ring: &IoUring, reg: &mut BufReg, flags: u32) -> i32 {
    reg.flags |= flags as u16;
    register(ring, register::PBUF_RING, reg, 1)
}

/// Unregisters a provided-buffer ring.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_unregister_buf_ring(ring: &IoUring, bgid: i32) -> i32 {
    let reg = BufReg { bgid: bgid as u16, ..BufReg::default() };
    register(ring, register::UNREGISTER_PBUF_RING, &raw const reg, 1)
}

/// Reads the head of a buffer ring: the next buffer that the engine will take.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_buf_ring_head(ring: &IoUring, buf_group: i32, head: &mut u16) -> i32 {
    let mut status = BufStatus { buf_group: buf_group.cast_unsigned(), ..BufStatus::default() };
    let result = register(ring, register::PBUF_STATUS, &raw mut status, 1);
    if result == 0 {
        *head = status.head as u16;
    }
    result
}

/// Cancels matching requests and waits until they have completed.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_sync_cancel(ring: &IoUring, reg: *mut SyncCancelReg) -> i32 {
    register(ring, register::SYNC_CANCEL, reg, 1)
}

/// Sends a message to a ring; the sender needs none.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_sync_msg(sqe: *mut Sqe) -> i32 {
    syscall::register(NO_RING, register::SEND_MSG_RING, user(sqe), 1)
}

/// Enables busy polling of network devices.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_napi(ring: &IoUring, napi: *mut Napi) -> i32 {
    register(ring, register::NAPI, napi, 1)
}

/// Disables busy polling.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_unregister_napi(ring: &IoUring, napi: *mut Napi) -> i32 {
    register(ring, register::UNREGISTER_NAPI, napi, 1)
}

/// Selects the clock of wait time-outs.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_clock(ring: &IoUring, arg: *mut ClockRegister) -> i32 {
    register(ring, register::CLOCK, arg, 0)
}

/// Registers an interface queue for zero-copy receive.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_ifq(ring: &IoUring, reg: *mut ZcrxIfqReg) -> i32 {
    register(ring, register::ZCRX_IFQ, reg, 1)
}

/// Controls zero-copy receive.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_zcrx_ctrl(ring: &IoUring, ctrl: *mut ZcrxCtrl) -> i32 {
    register(ring, register::ZCRX_CTRL, ctrl, 0)
}

/// Registers a BPF filter for the ring.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_bpf_filter(ring: &IoUring, bpf: *mut Bpf) -> i32 {
    register(ring, register::BPF_FILTER, bpf, 1)
}

/// Registers a BPF filter for the task.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_bpf_filter_task(bpf: *mut Bpf) -> i32 {
    syscall::register(NO_RING, register::BPF_FILTER, user(bpf), 1)
}

/// Queries what io_uring supports; needs no ring.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_query(query: *mut QueryHdr) -> i32 {
    syscall::register(NO_RING, register::QUERY, user(query), 0)
}

/// Registers memory shared with the engine.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_region(ring: &IoUring, reg: *mut MemRegionReg) -> i32 {
    register(ring, register::MEM_REGION, reg, 1)
}

/// Superseded by [`io_uring_register_region`] before it worked; liburing keeps the name and fails.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_register_wait_reg(_ring: &IoUring, _reg: *mut RegWait, _nr: i32) -> i32 {
    err::EINVAL
}

/// Gives `dst` the buffers `src_off..src_off + nr` of `src` (0: all of them), which is named by its
/// fd or its registered index.
#[unsafe(no_mangle)]
pub extern "C" fn __io_uring_clone_buffers_offset(dst: &IoUring, src: &IoUring, dst_off: u32, src_off: u32, nr: u32, flags: u32) -> i32 {
    let by_index = flags & register::CLONE_SRC_REGISTERED != 0 && src.has_int_flag(int_flags::REG_REG_RING);
    let src_fd = if by_index { src.enter_ring_fd.get() } else { src.ring_fd.get() };
    let flags = if by_index { flags } else { flags & !register::CLONE_SRC_REGISTERED };
    let clone = CloneBuffers { src_fd: src_fd.cast_unsigned(), flags, src_off, dst_off, nr, pad: [0; 3] };
    register(dst, register::CLONE_BUFFERS, &raw const clone, 1)
}

/// [`__io_uring_clone_buffers_offset`], by the registered index if there is one.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_clone_buffers_offset(dst: &IoUring, src: &IoUring, dst_off: u32, src_off: u32, nr: u32, flags: u32) -> i32 {
    __io_uring_clone_buffers_offset(dst, src, dst_off, src_off, nr, flags | register::CLONE_SRC_REGISTERED)
}

/// Gives `dst` all buffers of `src`.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_clone_buffers(dst: &IoUring, src: &IoUring) -> i32 {
    __io_uring_clone_buffers_offset(dst, src, 0, 0, 0, register::CLONE_SRC_REGISTERED)
}

/// Gives `dst` all buffers of `src`, with flags.
#[unsafe(no_mangle)]
pub extern "C" fn __io_uring_clone_buffers(dst: &IoUring, src: &IoUring, flags: u32) -> i32 {
    __io_uring_clone_buffers_offset(dst, src, 0, 0, 0, flags)
}

/// Resizes the queues of a live ring; pending entries are kept.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_resize_rings(ring: &IoUring, p: &mut UringParams) -> i32 {
    let result = resize(ring, p);
    p.flags = 0;
    result
}

fn resize(ring: &IoUring, p: &mut UringParams) -> i32 {
    if ring.has_flag(setup::NO_MMAP) {
        return err::EINVAL;
    }
    (p.sq_off, p.cq_off) = Default::default();
    let result = register(ring, register::RESIZE_RINGS, &raw mut *p, 1);
    if result < 0 {
        return result;
    }
    let (old_sqes, old_len) = (ring.sq.sqes.get(), ring.sq.sqes_sz.get() as usize);
    unmap_rings(ring);
    // SAFETY: the engine has copied the old SQEs to new memory.
    unsafe { syscall::unmap(old_sqes.cast(), old_len) };
    if p.sq_off.array == 0 && !ring.has_flag(setup::NO_SQARRAY) {
        p.sq_off.array = sizes::array_offset(p);
    }
    match map(ring, ring.ring_fd.get(), p) {
        Ok(()) => result,
        Err(errno) => errno,
    }
}

/// Sets whether waits of this ring count as iowait.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_set_iowait(ring: &IoUring, enable_iowait: bool) -> i32 {
    if !ring.has_feature(feat::NO_IOWAIT) {
        return err::EOPNOTSUPP;
    }
    if enable_iowait {
        ring.clear_int_flags(int_flags::NO_IOWAIT);
    } else {
        ring.set_int_flags(int_flags::NO_IOWAIT);
    }
    0
}
