//! `IORING_OP_URING_CMD, URING_CMD128`: a command to a file's own implementation.
//! Source:  io_uring_enter(2), behaviour of Linux 6.18, and of 6.19 for GETSOCKNAME; `virtual_file`
//!          says which files of the engine take commands.
//! Issue:   a virtual file decides: it completes the command now or later, or a worker runs it.
//!          Socket commands run inline, block device commands on a worker. TX_TIMESTAMP waits for
//!          `EPOLLERR`, and is then tried.
//! Errors:  EINVAL the upper half of `cmd_op`'s field, unknown flags; EBADF; EOPNOTSUPP a file that
//!          takes no commands, or not this one; else those of the system calls.
//! Differs: the registered buffer of `IORING_URING_CMD_FIXED` is used by no command; multishot
//!          commands are EOPNOTSUPP on every file (those to sockets never complete in the kernel);
//!          device drivers of the kernel other than block devices and /dev/null (NVMe, FUSE) take
//!          no commands here; a discard of a block device that is opened exclusively elsewhere is
//!          EBUSY, as with BLKDISCARD; TX_TIMESTAMP is EOPNOTSUPP on a socket whose error queue may
//!          hold other messages.
//! Tests:   ours cli/tests/ublk.rs, cli/tests/cmd_ops.rs, cli/tests/tx_timestamp.rs.

mod socket;
mod tx_timestamp;

use super::issue::{Issue, IssueCx, OpFamily, PrepCx};
use super::outcome::Outcome;
use crate::file::FileKind;
use crate::ring::cq::CqeExtra;
use crate::virtual_file::{UringCmd, VirtualFile};
use alloc::boxed::Box;
use alloc::sync::Arc;
use socket::SocketCmd;
use tx_timestamp::TxTimestamps;
use uringlet_abi::{Sqe, cqe, setup, sqe, uring_cmd as cmd};
use uringlet_sys::ring_memory::RingMemory;
use uringlet_sys::{Errno, UserPtr, io, process};

/// A validated command.
#[derive(Debug)]
pub(crate) struct CmdOp {
    op: u32,
    len: u32,
    addr: u64,
    data: [u8; 16],
    /// None: all of it is zero.
    rare: Option<Box<RareFields>>,
    /// The file, once it is resolved: it lives at least until the CQE.
    pub(crate) file: Option<Arc<dyn VirtualFile>>,
}

/// What the commands that come by the million do not have.
#[derive(Debug, Default)]
struct RareFields {
    /// `optlen`, or `file_index`.
    optlen: u32,
    /// `IORING_URING_CMD_*`.
    flags: u32,
    /// The file refuses it, whichever file it is: a multishot command, or one on an IOPOLL ring.
    is_refused: bool,
    /// The second half of a 128-byte SQE.
    sqe_tail: Option<[u8; 64]>,
    tx_timestamps: TxTimestamps,
}

/// The kinds of files that take commands, but for virtual ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CmdTarget {
    Socket,
    BlockDevice,
    /// /dev/null, which takes every command.
    Null,
}

impl CmdTarget {
    /// # Errors
    /// `EBADF`; `EOPNOTSUPP`.
    fn of(fd: i32) -> Result<Self, Errno> {
        const S_IFMT: u32 = 0o170_000;
        const S_IFSOCK: u32 = 0o140_000;
        const S_IFBLK: u32 = 0o060_000;
        const S_IFCHR: u32 = 0o020_000;
        /// Device 1:3.
        const NULL_DEVICE: u64 = 0x103;
        if FileKind::of(fd).is_socket() {
            return Ok(Self::Socket);
        }
        io::file_flags(fd)?;
        let stat = io::fstat(fd)?;
        match stat.mode & S_IFMT {
            S_IFSOCK => Ok(Self::Socket),
            S_IFBLK => Ok(Self::BlockDevice),
            S_IFCHR if stat.rdev == NULL_DEVICE => Ok(Self::Null),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

pub(crate) fn prep(sqe: &Sqe, cx: &PrepCx) -> Result<CmdOp, Errno> {
    let has = |flag| sqe.op_flags & flag != 0;
    let selects = sqe.flags & sqe::BUFFER_SELECT != 0;
    if sqe.off >> 32 != 0 || sqe.op_flags & !(cmd::FIXED | cmd::MULTISHOT) != 0 {
        return Err(Errno::EINVAL);
    }
    if has(cmd::FIXED) && selects || has(cmd::MULTISHOT) != selects {
        return Err(Errno::EINVAL);
    }
    let mut data = [0; 16];
    data[..8].copy_from_slice(&sqe.addr3.to_le_bytes());
    data[8..].copy_from_slice(&sqe.pad2.to_le_bytes());
    let is_refused = has(cmd::MULTISHOT) || cx.setup & setup::IOPOLL != 0;
    // On a ring of both sizes the first half says whether there is a second one.
    let sqe_tail = (cx.is_wide || cx.setup & setup::SQE128 != 0).then_some([0; 64]);
    let is_plain = sqe.file_index() == 0 && sqe.op_flags == 0 && !is_refused && sqe_tail.is_none();
    let rare = (!is_plain)
        .then(|| Box::new(RareFields { optlen: sqe.file_index(), flags: sqe.op_flags, is_refused, sqe_tail, ..RareFields::default() }));
    Ok(CmdOp { op: sqe.off as u32, len: sqe.len, addr: sqe.addr, data, rare, file: None })
}

impl OpFamily for CmdOp {
    /// Sockets answer at once, block devices may sleep. (`submit::command` is for virtual files.)
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        let fd = cx.file.fd;
        if cx.ring.files.virtual_file(fd).is_some() {
            return if self.is_refused() { Errno::EOPNOTSUPP.into() } else { Issue::RingOp };
        }
        match self.target(fd) {
            Ok(CmdTarget::BlockDevice) => Issue::Blocks,
            Ok(CmdTarget::Socket) if self.op == cmd::TX_TIMESTAMP => self.rare.get_or_insert_default().tx_timestamps.try_issue(cx),
            target => target.and_then(|target| self.run_on(target, fd)).into(),
        }
    }

    /// Reads the second half of SQE `index`, where it has one.
    fn read_big_sqe(&mut self, memory: &RingMemory, index: u32) {
        let Some(sqe_tail) = self.rare.as_mut().and_then(|rare| rare.sqe_tail.as_mut()) else { return };
        for (bytes, word) in sqe_tail.chunks_exact_mut(8).zip(memory.sqe_second_half(index)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Only time stamps have one. The last CQE, of a cancel, is none of them.
    fn cqe_extra(&self, outcome: Outcome) -> Option<CqeExtra> {
        self.rare.as_ref().filter(|_| outcome.flags & cqe::MORE != 0).map(|rare| rare.tx_timestamps.time())
    }

    /// Runs the command on a worker.
    fn run(&mut self, fd: i32) -> Outcome {
        if let Some(file) = &self.file {
            let res = file.run(&self.cmd());
            return Outcome { is_failure: res < 0, ..Outcome::ok(res) };
        }
        self.target(fd).and_then(|target| self.run_on(target, fd)).into()
    }
}

impl CmdOp {
    /// Whether it asks for a socket's time stamps.
    pub(crate) fn is_tx_timestamp(&self) -> bool {
        self.op == cmd::TX_TIMESTAMP
    }

    fn flags(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.flags)
    }

    fn is_refused(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.is_refused)
    }

    fn optlen(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.optlen)
    }

    /// `addr3` or `optval`.
    fn addr3(&self) -> u64 {
        u64::from_le_bytes(self.data.first_chunk().copied().unwrap_or_default())
    }

    /// # Errors
    /// `EBADF`; `EOPNOTSUPP` the file does not take this command.
    fn target(&self, fd: i32) -> Result<CmdTarget, Errno> {
        CmdTarget::of(fd).and_then(|target| if self.is_refused() { Err(Errno::EOPNOTSUPP) } else { Ok(target) })
    }

    fn run_on(&self, target: CmdTarget, fd: i32) -> io::Res {
        match target {
            CmdTarget::Socket => socket::run(self.socket_cmd(), fd),
            CmdTarget::BlockDevice => self.run_on_block_device(fd),
            CmdTarget::Null => Ok(0),
        }
    }

    fn socket_cmd(&self) -> SocketCmd {
        let value = UserPtr::at(self.addr3());
        SocketCmd { op: self.op, len: self.len, flags: self.flags(), addr: self.addr, value, optlen: self.optlen() }
    }

    fn run_on_block_device(&self, fd: i32) -> io::Res {
        if self.len != 0 || self.flags() != 0 || self.optlen() != 0 || self.op != cmd::BLOCK_DISCARD {
            return Err(Errno::EINVAL);
        }
        io::discard_blocks(fd, self.addr, self.addr3())
    }

    /// The command as a virtual file gets it.
    pub(crate) fn cmd(&self) -> UringCmd {
        let mut data = [0; 80];
        data[..16].copy_from_slice(&self.data);
        let sqe_tail = self.rare.as_ref().and_then(|rare| rare.sqe_tail.as_ref());
        if let Some(sqe_tail) = sqe_tail {
            data[16..].copy_from_slice(sqe_tail);
        }
        UringCmd { op: self.op, addr: self.addr, len: self.len, data, is_big: sqe_tail.is_some(), task: process::thread_key() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

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
        for sqe in
            [Sqe { off: 1 << 32, ..Sqe::default() }, Sqe { op_flags: 4, ..Sqe::default() }, Sqe { op_flags: 1 << 31, ..Sqe::default() }]
        {
            assert_eq!(prep(&sqe, &CX).err(), Some(Errno::EINVAL));
        }
    }

    #[test]
    fn multishot_commands_select_buffers_and_others_do_not() {
        const SELECT: u8 = sqe::BUFFER_SELECT;
        for (op_flags, flags, is_valid) in [
            (0, 0, true),
            (cmd::FIXED, 0, true),
            (cmd::MULTISHOT, SELECT, true),
            (0, SELECT, false),
            (cmd::MULTISHOT, 0, false),
            (cmd::FIXED | cmd::MULTISHOT, SELECT, false),
        ] {
            assert_eq!(prep(&Sqe { op_flags, flags, ..Sqe::default() }, &CX).is_ok(), is_valid, "{op_flags} {flags}");
        }
    }
}
