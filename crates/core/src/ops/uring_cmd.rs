//! `IORING_OP_URING_CMD`: a command to a file's own implementation.
//! Source:  io_uring_enter(2), behaviour of Linux 6.18; `virtual_file` says which files take
//!          commands.
//! Issue:   the file decides: it completes the command now or later, or a worker runs it.
//! Errors:  EINVAL the upper half of `cmd_op`'s field, unknown flags; EBADF; EOPNOTSUPP a file that
//!          takes no commands.
//! Differs: `IORING_URING_CMD_FIXED` and multishot are EINVAL; sockets and block devices of the
//!          kernel take no commands here.
//! Tests:   ours cli/tests/ublk.rs.

use super::issue::{OpFamily, PrepCx};
use super::outcome::Outcome;
use crate::virtual_file::{UringCmd, VirtualFile};
use alloc::boxed::Box;
use alloc::sync::Arc;
use uringlet_abi::Sqe;
use uringlet_sys::ring_memory::RingMemory;
use uringlet_sys::{Errno, process};

/// A validated command.
#[derive(Debug)]
pub(crate) struct CmdOp {
    op: u32,
    len: u32,
    addr: u64,
    data: [u8; 16],
    /// The second half of a 128-byte SQE.
    sqe_tail: Option<Box<[u8; 64]>>,
    /// The file, once it is resolved: it lives at least until the CQE.
    pub(crate) file: Option<Arc<dyn VirtualFile>>,
}

pub(crate) fn prep(sqe: &Sqe, _: &PrepCx) -> Result<CmdOp, Errno> {
    if sqe.off >> 32 != 0 || sqe.op_flags != 0 {
        return Err(Errno::EINVAL);
    }
    let mut data = [0; 16];
    data[..8].copy_from_slice(&sqe.addr3.to_le_bytes());
    data[8..].copy_from_slice(&sqe.pad2.to_le_bytes());
    Ok(CmdOp { op: sqe.off as u32, len: sqe.len, addr: sqe.addr, data, sqe_tail: None, file: None })
}

impl OpFamily for CmdOp {
    /// Reads the second half of SQE `index`, where it has one.
    fn read_big_sqe(&mut self, memory: &RingMemory, index: u32) {
        let mut words = memory.sqe_second_half(index).peekable();
        if words.peek().is_none() {
            return;
        }
        let mut sqe_tail = Box::new([0; 64]);
        for (bytes, word) in sqe_tail.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        self.sqe_tail = Some(sqe_tail);
    }

    /// Runs the command on a worker.
    fn run(&mut self, _: i32) -> Outcome {
        let res = self.file.as_ref().map_or(-Errno::EOPNOTSUPP.into_raw(), |file| file.run(&self.cmd()));
        Outcome { is_failure: res < 0, ..Outcome::ok(res) }
    }
}

impl CmdOp {
    /// The command as its file gets it.
    pub(crate) fn cmd(&self) -> UringCmd {
        let mut data = [0; 80];
        data[..16].copy_from_slice(&self.data);
        if let Some(sqe_tail) = &self.sqe_tail {
            data[16..].copy_from_slice(&sqe_tail[..]);
        }
        UringCmd { op: self.op, addr: self.addr, len: self.len, data, is_big: self.sqe_tail.is_some(), task: process::thread_key() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false };

    #[test]
    fn commands_have_their_number_and_data() {
        let sqe = Sqe { off: 0xc010_7520, addr: 7, len: 3, addr3: 0x0807_0605_0403_0201, pad2: 9, ..Sqe::default() };
        let Ok(op) = prep(&sqe, &CX) else { panic!("refused") };
        let cmd = op.cmd();
        assert_eq!((cmd.op, cmd.addr, cmd.len, cmd.is_big), (0xc010_7520, 7, 3, false));
        assert_eq!(cmd.data[..10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
        assert_eq!(cmd.data[16..], [0; 64]);
    }

    #[test]
    fn commands_refuse_unknown_fields() {
        for sqe in [Sqe { off: 1 << 32, ..Sqe::default() }, Sqe { op_flags: 1, ..Sqe::default() }, Sqe { op_flags: 2, ..Sqe::default() }] {
            assert_eq!(prep(&sqe, &CX).err(), Some(Errno::EINVAL));
        }
    }
}
