//! `IORING_OP_PIPE, FIXED_FD_INSTALL`: new descriptors, and descriptors of registered files.
//! Source:  io_uring_prep_pipe(3), io_uring_prep_fixed_fd_install(3); behaviour of Linux 6.18
//!          io_uring/openclose.c (not its code).
//! Issue:   completes inline.
//! Errors:  EINVAL bad fields; EBADF no registered file; EPERM an installation with a personality;
//!          EMFILE, ENFILE; EFAULT; ENXIO no file table.
//! Differs: nothing known.
//! Tests:   liburing fd-install; ours cli/tests/net_ops.rs (more_ops).

use super::buffers::release;
use super::fs::install_file;
use super::issue::{Issue, IssueCx, OpFamily, PrepCx, unused};
use crate::ring_resources::RingResources;
use uringlet_abi::{FILE_INDEX_ALLOC, Sqe, sqe};
use uringlet_sys::{Errno, UserPtr, fd_table, io, user};

const O_CLOEXEC: u32 = 0o2_000_000;
const O_NONBLOCK: u32 = 0o4000;
const O_DIRECT: u32 = 0o40_000;
/// `O_NOTIFICATION_PIPE`
const O_EXCL: u32 = 0o200;
/// `IORING_FIXED_FD_NO_CLOEXEC`
const NO_CLOEXEC: u32 = 1;

/// A validated request of this family.
#[derive(Debug)]
pub(crate) enum FdsOp {
    /// Makes a pipe, and writes its two numbers (or slots) to `fds`.
    Pipe { fds: UserPtr, flags: u32, file_index: u32 },
    /// Makes a descriptor number for a registered file.
    Install { is_inherited: bool },
}

pub(crate) fn prep_pipe(sqe: &Sqe, _: &PrepCx) -> Result<FdsOp, Errno> {
    unused(&[sqe.fd as u64, sqe.off, sqe.addr3])?;
    let (flags, file_index) = (sqe.op_flags, sqe.file_index());
    if flags & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT | O_EXCL) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(FdsOp::Pipe { fds: UserPtr::at(sqe.addr), flags, file_index })
}

pub(crate) fn prep_install(sqe: &Sqe, cx: &PrepCx) -> Result<FdsOp, Errno> {
    unused(&[sqe.off, sqe.addr, sqe.len.into(), sqe.buf_index.into(), sqe.splice_fd_in as u64, sqe.addr3])?;
    if cx.sqe_flags & sqe::FIXED_FILE == 0 {
        return Err(Errno::EBADF);
    }
    if sqe.personality != 0 {
        return Err(Errno::EPERM);
    }
    if sqe.op_flags & !NO_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(FdsOp::Install { is_inherited: sqe.op_flags & NO_CLOEXEC != 0 })
}

impl OpFamily for FdsOp {
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        match *self {
            Self::Pipe { flags, file_index: 1.., .. } if flags & O_CLOEXEC != 0 => Err(Errno::EINVAL),
            Self::Pipe { fds, flags, file_index: 0 } => pipe(cx.ring, fds, flags),
            Self::Pipe { fds, flags, file_index } => pipe_in_slots(cx.ring, fds, flags, file_index),
            Self::Install { is_inherited } => install(cx, is_inherited),
        }
        .into()
    }
}

fn install(cx: &mut IssueCx<'_>, is_inherited: bool) -> Result<usize, Errno> {
    let fd = if is_inherited { io::dup(cx.file.fd) } else { io::dup_cloexec(cx.file.fd) }?;
    note_new(cx.ring, fd as i32);
    Ok(fd)
}

fn pipe(ring: &mut RingResources, fds: UserPtr, flags: u32) -> Result<usize, Errno> {
    let ends = io::pipe(flags)?;
    if let Err(errno) = user::write_slice(fds, &ends) {
        for end in ends {
            let _ = io::close(end);
        }
        return Err(errno);
    }
    ends.iter().for_each(|&end| note_new(ring, end));
    Ok(0)
}

fn pipe_in_slots(ring: &mut RingResources, fds: UserPtr, flags: u32, file_index: u32) -> Result<usize, Errno> {
    // A file that becomes a registered one must not leak into a child while it has a number.
    let [reader, writer] = io::pipe(flags | O_CLOEXEC)?;
    let second_index = if file_index == FILE_INDEX_ALLOC { file_index } else { file_index + 1 };
    let first = match install_file(ring, reader, file_index) {
        Ok(slot) => slot_of(slot, file_index),
        Err(errno) => {
            let _ = io::close(writer);
            return Err(errno);
        }
    };
    let second = install_file(ring, writer, second_index).map(|slot| slot_of(slot, second_index)).inspect_err(|_| empty(ring, first))?;
    user::write_slice(fds, &[first, second]).inspect_err(|_| {
        empty(ring, first);
        empty(ring, second);
    })?;
    Ok(0)
}

fn slot_of(chosen: usize, file_index: u32) -> u32 {
    if file_index == FILE_INDEX_ALLOC { chosen as u32 } else { file_index - 1 }
}

fn empty(ring: &mut RingResources, slot: u32) {
    let node = ring.files.replace(slot, None).ok().flatten();
    release(ring, node);
}

/// Forgets what the number's former file was known as: it may have been closed without the engine's
/// knowledge.
fn note_new(ring: &mut RingResources, fd: i32) {
    if !fd_table::is_unused(fd) {
        fd_table::forget_kind(fd);
    }
    ring.note_new_file(fd);
}
