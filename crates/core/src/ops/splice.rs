//! `IORING_OP_SPLICE, TEE`: move or copy bytes between files through a pipe.
//! Source:  io_uring_enter(2), splice(2), tee(2); behaviour of Linux 6.18 (not its code).
//! Issue:   on a worker. The registered input file is looked up, and held, when the request is
//!          issued. Units: offsets, len in bytes; offset -1 = none.
//! Errors:  EINVAL unknown flag, an offset for TEE; EBADF no such input file; else those of
//!          splice(2) and tee(2).
//! Differs: nothing known.
//! Tests:   liburing splice.t; ours cli/tests/fs_ops.rs.

use super::issue::{Issue, IssueCx, OpFamily, PrepCx, unused};
use super::outcome::Outcome;
use crate::rsrc::files::FileNode;
use alloc::sync::Arc;
use uringlet_abi::Sqe;
use uringlet_abi::op_flags::SPLICE_F_FD_IN_FIXED;
use uringlet_sys::{Errno, UserPtr, fd_table, io};

/// `SPLICE_F_MOVE, NONBLOCK, MORE, GIFT`
const SPLICE_F_ALL: u32 = 0xf;

#[derive(Debug)]
enum Input {
    /// A descriptor number of the program.
    Fd(i32),
    /// A registered file, not looked up yet.
    Fixed(u32),
    /// A registered file, which outlives its slot.
    Held(Arc<FileNode>),
}

#[derive(Clone, Copy, Debug)]
enum SpliceKind {
    Splice { off_in: i64, off_out: i64 },
    Tee,
}

/// A splice or a tee.
#[derive(Debug)]
pub(crate) struct Splice {
    kind: SpliceKind,
    input: Input,
    len: u32,
    /// `SPLICE_F_*` of splice(2).
    flags: u32,
}

fn prep(sqe: &Sqe, kind: SpliceKind) -> Result<Splice, Errno> {
    if sqe.op_flags & !(SPLICE_F_ALL | SPLICE_F_FD_IN_FIXED) != 0 {
        return Err(Errno::EINVAL);
    }
    let is_fixed = sqe.op_flags & SPLICE_F_FD_IN_FIXED != 0;
    let input = if is_fixed { Input::Fixed(sqe.splice_fd_in as u32) } else { Input::Fd(sqe.splice_fd_in) };
    Ok(Splice { kind, input, len: sqe.len, flags: sqe.op_flags & SPLICE_F_ALL })
}

pub(crate) fn prep_splice(sqe: &Sqe, _: &PrepCx) -> Result<Splice, Errno> {
    prep(sqe, SpliceKind::Splice { off_in: sqe.addr as i64, off_out: sqe.off as i64 })
}

pub(crate) fn prep_tee(sqe: &Sqe, _: &PrepCx) -> Result<Splice, Errno> {
    unused(&[sqe.addr, sqe.off])?;
    prep(sqe, SpliceKind::Tee)
}

impl OpFamily for Splice {
    /// Looks up the input file; the rest may sleep.
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        if let Input::Fixed(index) = self.input {
            let Some(node) = cx.ring.files.get(index) else { return Errno::EBADF.into() };
            self.input = Input::Held(Arc::clone(node));
        }
        Issue::Blocks
    }

    fn take_file(&mut self) -> Option<Arc<FileNode>> {
        match core::mem::replace(&mut self.input, Input::Fd(-1)) {
            Input::Held(node) => Some(node),
            Input::Fd(_) | Input::Fixed(_) => None,
        }
    }

    fn run(&mut self, fd: i32) -> Outcome {
        match self.transfer(fd) {
            Ok(n) => Outcome::transfer(n, self.len as usize),
            Err(errno) => Outcome::err(errno),
        }
    }
}

impl Splice {
    fn transfer(&self, fd: i32) -> Result<usize, Errno> {
        let input = match &self.input {
            Input::Held(node) => node.fd.number(),
            Input::Fd(number) if !fd_table::is_internal(*number) => *number,
            Input::Fd(_) | Input::Fixed(_) => return Err(Errno::EBADF),
        };
        if self.len == 0 {
            // The system calls would not even check the files.
            io::file_flags(input)?;
            io::file_flags(fd)?;
            return Ok(0);
        }
        match self.kind {
            SpliceKind::Tee => io::tee(input, fd, self.len as usize, self.flags),
            SpliceKind::Splice { mut off_in, mut off_out } => {
                let (off_in, off_out) = (offset(&mut off_in), offset(&mut off_out));
                io::splice(input, off_in, fd, off_out, self.len as usize, self.flags)
            }
        }
    }
}

/// splice(2) takes offsets by address, null where there is none.
fn offset(off: &mut i64) -> UserPtr {
    if *off == -1 { UserPtr::NULL } else { io::ptr_of_mut(off) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::issue::Prep;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

    fn errno(prep: Prep<Splice>, sqe: &Sqe) -> Option<Errno> {
        prep(sqe, &CX).err()
    }

    #[test]
    fn splice_flags_are_checked() {
        for prep in [prep_splice as Prep<Splice>, prep_tee] {
            assert_eq!(errno(prep, &Sqe { op_flags: SPLICE_F_ALL | SPLICE_F_FD_IN_FIXED, ..Sqe::default() }), None);
            assert_eq!(errno(prep, &Sqe { op_flags: 0x10, ..Sqe::default() }), Some(Errno::EINVAL));
            assert_eq!(errno(prep, &Sqe { buf_index: 3, ..Sqe::default() }), None);
        }
    }

    #[test]
    fn tee_has_no_offsets() {
        for sqe in [Sqe { off: u64::MAX, ..Sqe::default() }, Sqe { addr: 1, ..Sqe::default() }] {
            assert_eq!(errno(prep_tee, &sqe), Some(Errno::EINVAL));
            assert_eq!(errno(prep_splice, &sqe), None);
        }
    }

    #[test]
    fn splice_input_must_exist_even_for_no_bytes() {
        let splice = |fd| Splice { kind: SpliceKind::Tee, input: Input::Fd(fd), len: 0, flags: 0 };
        assert_eq!(splice(0).run(0), Outcome::ok(0));
        assert_eq!(splice(-1).run(0), Outcome::err(Errno::EBADF));
        assert_eq!(splice(0).run(-1), Outcome::err(Errno::EBADF));
    }
}
