//! One row an opcode: the facts that decide how it is scheduled, as data.

use super::{
    Op, PrepCx, PrepInPlace, buffers, cancel, fds, fs, futex, msg_ring, net, nop, poll, rw, splice, stream, sync, timeout, uring_cmd,
    waitid,
};
use uringlet_abi::{Opcode, Sqe};
use uringlet_sys::Errno;

/// When an op that may block is run by the submitting thread itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inline {
    /// Never: a worker does it.
    Never,
    /// If the submission is a shallow one: cheap metadata, where the hop costs more than the work.
    Shallow,
    /// Always: it does not sleep.
    Always,
}

/// The facts of an opcode.
#[derive(Debug)]
pub(crate) struct OpDef {
    pub(crate) prep: PrepInPlace,
    /// Takes `sqe.fd` as a file that may be a registered one.
    pub(crate) needs_file: bool,
    /// May have `IOSQE_BUFFER_SELECT`.
    pub(crate) buffer_select: bool,
    /// May have `sqe.ioprio` set.
    pub(crate) ioprio: bool,
    /// Has a poll direction: `IOSQE_ASYNC` is then no reason to occupy a worker.
    pub(crate) pollable: bool,
    pub(crate) inline: Inline,
    /// May be on an `IORING_SETUP_IOPOLL` ring.
    pub(crate) iopoll: bool,
    /// Advertised by the probe.
    pub(crate) supported: bool,
}

/// A family's `prep`, made to write its op in place.
macro_rules! prep {
    ($prep:path) => {
        |sqe: &Sqe, cx: &PrepCx, op: &mut Op| -> Result<(), Errno> {
            *op = $prep(sqe, cx)?;
            Ok(())
        }
    };
}

const fn row(prep: PrepInPlace) -> OpDef {
    OpDef {
        prep,
        needs_file: false,
        buffer_select: false,
        ioprio: false,
        pollable: false,
        inline: Inline::Never,
        iopoll: false,
        supported: true,
    }
}

const fn file(prep: PrepInPlace) -> OpDef {
    OpDef { needs_file: true, ..row(prep) }
}

const fn transfer(prep: PrepInPlace, inline: Inline) -> OpDef {
    OpDef { needs_file: true, ioprio: true, pollable: true, inline, iopoll: true, ..row(prep) }
}

const fn selecting(def: OpDef) -> OpDef {
    OpDef { buffer_select: true, ..def }
}

const fn shallow(prep: PrepInPlace) -> OpDef {
    OpDef { inline: Inline::Shallow, ..row(prep) }
}

const fn socket(prep: PrepInPlace) -> OpDef {
    OpDef { needs_file: true, ioprio: true, pollable: true, ..row(prep) }
}

fn prep_unsupported(_: &Sqe, _: &PrepCx, _: &mut Op) -> Result<(), Errno> {
    Err(Errno::EINVAL)
}

const UNSUPPORTED: OpDef = OpDef { supported: false, ioprio: true, ..row(prep_unsupported) };

/// The row of an opcode.
const fn def(opcode: Opcode) -> OpDef {
    use Opcode as O;
    match opcode {
        O::Nop => OpDef { iopoll: true, ..row(prep!(nop::prep)) },
        O::Readv => selecting(transfer(prep!(rw::prep_readv), Inline::Never)),
        O::Read => selecting(transfer(prep!(rw::prep_read), Inline::Never)),
        O::ReadFixed => transfer(prep!(rw::prep_read_fixed), Inline::Never),
        O::ReadvFixed => transfer(prep!(rw::prep_readv_fixed), Inline::Never),
        O::Writev => transfer(prep!(rw::prep_writev), Inline::Never),
        O::Write => transfer(prep!(rw::prep_write), Inline::Never),
        O::WriteFixed => transfer(prep!(rw::prep_write_fixed), Inline::Never),
        O::WritevFixed => transfer(prep!(rw::prep_writev_fixed), Inline::Never),
        O::Fsync => file(prep!(sync::prep_fsync)),
        O::SyncFileRange => file(prep!(sync::prep_sync_file_range)),
        O::Fallocate => file(prep!(sync::prep_fallocate)),
        O::Fadvise => file(prep!(sync::prep_fadvise)),
        O::Madvise => row(prep!(sync::prep_madvise)),
        // By a worker, where SIGXFSZ kills nobody.
        O::Ftruncate => file(prep!(sync::prep_ftruncate)),
        // What may be done inline is done by try_issue; the rest may sleep on a FIFO or a device.
        O::Openat => row(prep!(fs::prep_openat)),
        O::Openat2 => row(prep!(fs::prep_openat2)),
        O::Close => shallow(prep!(fs::prep_close)),
        O::Statx => shallow(prep!(fs::prep_statx)),
        O::Unlinkat => shallow(prep!(fs::prep_unlinkat)),
        O::Renameat => shallow(prep!(fs::prep_renameat)),
        O::Mkdirat => shallow(prep!(fs::prep_mkdirat)),
        O::Symlinkat => shallow(prep!(fs::prep_symlinkat)),
        O::Linkat => shallow(prep!(fs::prep_linkat)),
        O::Setxattr => shallow(prep!(fs::prep_setxattr)),
        O::Getxattr => shallow(prep!(fs::prep_getxattr)),
        O::Fsetxattr => OpDef { inline: Inline::Shallow, ..file(prep!(fs::prep_fsetxattr)) },
        O::Fgetxattr => OpDef { inline: Inline::Shallow, ..file(prep!(fs::prep_fgetxattr)) },
        O::EpollCtl => OpDef { inline: Inline::Always, ..row(prep!(fs::prep_epoll_ctl)) },
        O::Splice => OpDef { needs_file: true, ..row(prep!(splice::prep_splice)) },
        O::Tee => OpDef { needs_file: true, ..row(prep!(splice::prep_tee)) },
        O::Accept => socket(prep!(net::prep_accept)),
        O::Connect => OpDef { ioprio: false, ..socket(prep!(net::prep_connect)) },
        O::Send => selecting(socket(prep!(net::prep_send))),
        O::SendZc => socket(prep!(net::prep_send_zc)),
        O::SendmsgZc => socket(prep!(net::prep_sendmsg_zc)),
        O::Sendmsg => socket(prep!(net::prep_sendmsg)),
        O::Recv => selecting(socket(prep!(net::prep_recv))),
        O::Recvmsg => selecting(socket(prep!(net::prep_recvmsg))),
        O::MsgRing => OpDef { iopoll: true, ..file(prep!(msg_ring::prep)) },
        O::ReadMultishot => selecting(OpDef { pollable: true, ..file(prep!(stream::prep_read)) }),
        O::EpollWait => OpDef { pollable: true, ..file(prep!(stream::prep_epoll_wait)) },
        O::FixedFdInstall => file(prep!(fds::prep_install)),
        O::Pipe => row(prep!(fds::prep_pipe)),
        O::Socket => shallow(prep!(net::prep_socket)),
        O::Shutdown => OpDef { inline: Inline::Always, ..file(prep!(net::prep_shutdown)) },
        O::Bind => OpDef { inline: Inline::Always, ..file(prep!(net::prep_bind)) },
        O::Listen => OpDef { inline: Inline::Always, ..file(prep!(net::prep_listen)) },
        O::PollAdd => file(prep!(poll::prep_add)),
        O::PollRemove => row(prep!(poll::prep_remove)),
        O::Timeout => row(prep!(timeout::prep)),
        O::LinkTimeout => row(prep!(timeout::prep_link)),
        O::TimeoutRemove => row(prep!(timeout::prep_remove)),
        O::AsyncCancel => row(prep!(cancel::prep)),
        O::ProvideBuffers => OpDef { iopoll: true, ..row(prep!(buffers::prep_provide)) },
        O::RemoveBuffers => OpDef { iopoll: true, ..row(prep!(buffers::prep_remove)) },
        O::FilesUpdate => OpDef { iopoll: true, ..row(prep!(buffers::prep_files_update)) },
        O::Waitid => row(prep!(waitid::prep)),
        O::UringCmd => file(prep!(uring_cmd::prep)),
        O::FutexWait => row(prep!(futex::prep_wait)),
        O::FutexWake => row(prep!(futex::prep_wake)),
        O::FutexWaitv => row(prep!(futex::prep_waitv)),
        O::RecvZc => UNSUPPORTED,
    }
}

/// Every opcode's row, by number.
pub(crate) static OPCODES: [OpDef; Opcode::LAST as usize] = {
    let mut table = [const { UNSUPPORTED }; Opcode::LAST as usize];
    let mut n = 0;
    while n < Opcode::ALL.len() {
        table[n] = def(Opcode::ALL[n]);
        n += 1;
    }
    table
};

/// The row of an opcode.
#[inline]
pub(crate) fn of(opcode: Opcode) -> &'static OpDef {
    &OPCODES[opcode as usize]
}
