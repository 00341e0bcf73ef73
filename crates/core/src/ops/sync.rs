//! `IORING_OP_FSYNC, SYNC_FILE_RANGE, FALLOCATE, FADVISE, MADVISE, FTRUNCATE`: operations on a file
//! or on memory as a whole.
//! Source:  io_uring_enter(2), fsync(2), fallocate(2), posix_fadvise(2), madvise(2); behaviour of
//!          Linux 6.18 (not its code).
//! Issue:   on a worker, except advice that only sets the read-ahead: inline. Units: off, len in
//!          bytes; len 0 = to the end.
//! Errors:  EINVAL bad fields or flags, a negative fsync offset; else those of the system call.
//! Differs: FSYNC of a range flushes the whole file: no system call flushes less and writes
//!          metadata too.
//! Tests:   liburing fsync.t, fallocate.t, fadvise.t, madvise.t, truncate.t; ours
//!          cli/tests/fs_ops.rs.

use super::issue::{Issue, IssueCx, OpFamily, PrepCx, unused};
use super::outcome::Outcome;
use crate::file::FileKind;
use uringlet_abi::{Sqe, op_flags};
use uringlet_sys::{Errno, UserPtr, io};

/// A validated request of this family.
#[derive(Debug)]
pub(crate) enum SyncOp {
    Fsync { is_datasync: bool },
    SyncFileRange { off: i64, len: i64, flags: u32 },
    Fallocate { mode: u32, off: i64, len: i64 },
    Fadvise { off: i64, len: i64, advice: u32 },
    Madvise { addr: UserPtr, len: usize, advice: u32 },
    Ftruncate { len: i64 },
}

/// `buf_index` and `splice_fd_in`, which no opcode of this family uses.
fn common(sqe: &Sqe) -> [u64; 2] {
    [u64::from(sqe.buf_index), u64::from(sqe.file_index())]
}

pub(crate) fn prep_fsync(sqe: &Sqe, _: &PrepCx) -> Result<SyncOp, Errno> {
    unused(&common(sqe))?;
    unused(&[sqe.addr, u64::from(sqe.op_flags & !op_flags::FSYNC_DATASYNC)])?;
    if (sqe.off as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    Ok(SyncOp::Fsync { is_datasync: sqe.op_flags & op_flags::FSYNC_DATASYNC != 0 })
}

pub(crate) fn prep_sync_file_range(sqe: &Sqe, _: &PrepCx) -> Result<SyncOp, Errno> {
    unused(&common(sqe))?;
    unused(&[sqe.addr])?;
    Ok(SyncOp::SyncFileRange { off: sqe.off as i64, len: i64::from(sqe.len), flags: sqe.op_flags })
}

pub(crate) fn prep_fallocate(sqe: &Sqe, _: &PrepCx) -> Result<SyncOp, Errno> {
    unused(&common(sqe))?;
    unused(&[u64::from(sqe.op_flags)])?;
    Ok(SyncOp::Fallocate { mode: sqe.len, off: sqe.off as i64, len: sqe.addr as i64 })
}

pub(crate) fn prep_fadvise(sqe: &Sqe, _: &PrepCx) -> Result<SyncOp, Errno> {
    unused(&common(sqe))?;
    let len = if sqe.addr == 0 { i64::from(sqe.len) } else { sqe.addr as i64 };
    Ok(SyncOp::Fadvise { off: sqe.off as i64, len, advice: sqe.op_flags })
}

pub(crate) fn prep_madvise(sqe: &Sqe, _: &PrepCx) -> Result<SyncOp, Errno> {
    unused(&common(sqe))?;
    let len = if sqe.off == 0 { sqe.len as usize } else { sqe.off as usize };
    Ok(SyncOp::Madvise { addr: UserPtr::at(sqe.addr), len, advice: sqe.op_flags })
}

pub(crate) fn prep_ftruncate(sqe: &Sqe, _: &PrepCx) -> Result<SyncOp, Errno> {
    unused(&common(sqe))?;
    unused(&[u64::from(sqe.op_flags), sqe.addr, u64::from(sqe.len), sqe.addr3])?;
    Ok(SyncOp::Ftruncate { len: sqe.off as i64 })
}

impl OpFamily for SyncOp {
    /// Advice about the order of reading only changes the open file; everything else may start or
    /// wait for I/O.
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        const NORMAL: u32 = 0;
        const RANDOM: u32 = 1;
        const SEQUENTIAL: u32 = 2;
        match self {
            Self::Fadvise { advice: NORMAL | RANDOM | SEQUENTIAL, .. } => Issue::Complete(self.run(cx.file.fd)),
            _ => Issue::Blocks,
        }
    }

    fn run(&mut self, fd: i32) -> Outcome {
        let res = match *self {
            Self::Fsync { is_datasync: true } => io::fdatasync(fd),
            Self::Fsync { is_datasync: false } => io::fsync(fd),
            Self::SyncFileRange { off, len, flags } => io::sync_file_range(fd, off, len, flags),
            Self::Fallocate { mode, off, len } => io::fallocate(fd, mode, off, len),
            Self::Fadvise { off, len, advice } => return io::fadvise(fd, off, len, advice).into(),
            Self::Madvise { addr, len, advice } => io::madvise(addr, len, advice),
            // The system call looks at the length before the file.
            Self::Ftruncate { len: ..0 } if FileKind::refresh(fd).is_bad() => Err(Errno::EBADF),
            Self::Ftruncate { len } => io::ftruncate(fd, len),
        };
        match res {
            // There is no such file: the kernel finds that before the operation, whose own errors
            // are results.
            Err(Errno::EBADF) if !matches!(self, Self::Madvise { .. }) && FileKind::refresh(fd).is_bad() => Outcome::err(Errno::EBADF),
            res => Outcome::result_ok(res),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::issue::Prep;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

    fn errno(prep: Prep<SyncOp>, sqe: &Sqe) -> Option<Errno> {
        prep(sqe, &CX).err()
    }

    #[test]
    fn unused_fields_of_sync_operations_must_be_zero() {
        let all: [Prep<SyncOp>; 6] = [prep_fsync, prep_sync_file_range, prep_fallocate, prep_fadvise, prep_madvise, prep_ftruncate];
        for prep in all {
            assert_eq!(errno(prep, &Sqe::default()), None);
            assert_eq!(errno(prep, &Sqe { buf_index: 1, ..Sqe::default() }), Some(Errno::EINVAL));
            assert_eq!(errno(prep, &Sqe { splice_fd_in: 1, ..Sqe::default() }), Some(Errno::EINVAL));
            // The last word is ignored.
            assert_eq!(errno(prep, &Sqe { pad2: 1, ..Sqe::default() }), None);
        }
        let with_addr = Sqe { addr: 1, ..Sqe::default() };
        let takes_addr = all.map(|prep| errno(prep, &with_addr).is_none());
        assert_eq!(takes_addr, [false, false, true, true, true, false]);
        let with_flags = Sqe { op_flags: 2, ..Sqe::default() };
        let takes_flags = all.map(|prep| errno(prep, &with_flags).is_none());
        assert_eq!(takes_flags, [false, true, false, true, true, false]);
        let with_addr3 = Sqe { addr3: 1, ..Sqe::default() };
        assert_eq!(all.map(|prep| errno(prep, &with_addr3).is_none()), [true, true, true, true, true, false]);
    }

    #[test]
    fn fsync_takes_one_flag_and_no_negative_offset() {
        assert!(matches!(prep_fsync(&Sqe { op_flags: 1, ..Sqe::default() }, &CX), Ok(SyncOp::Fsync { is_datasync: true })));
        assert_eq!(errno(prep_fsync, &Sqe { off: u64::MAX, ..Sqe::default() }), Some(Errno::EINVAL));
        assert_eq!(errno(prep_fsync, &Sqe { off: i64::MAX as u64, len: 1, ..Sqe::default() }), None);
    }

    #[test]
    fn advice_prefers_the_64_bit_length() {
        let sqe = Sqe { addr: 1 << 40, off: 1 << 41, len: 7, ..Sqe::default() };
        assert!(matches!(prep_fadvise(&sqe, &CX), Ok(SyncOp::Fadvise { len, .. }) if len == 1 << 40));
        assert!(matches!(prep_madvise(&sqe, &CX), Ok(SyncOp::Madvise { len, .. }) if len == 1 << 41));
        let sqe = Sqe { len: 7, ..Sqe::default() };
        assert!(matches!(prep_fadvise(&sqe, &CX), Ok(SyncOp::Fadvise { len: 7, .. })));
        assert!(matches!(prep_madvise(&sqe, &CX), Ok(SyncOp::Madvise { len: 7, .. })));
    }
}
