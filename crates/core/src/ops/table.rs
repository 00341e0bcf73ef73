//! One row an opcode: its facts, as data.

use super::fs;
use super::issue::PrepCx;
use super::net;
use super::op::Op;
use super::outcome::Notification;
use super::{buffers, cancel, fds, futex, msg_ring, nop, poll, rw, splice, stream, sync, timeout, uring_cmd, waitid};
use crate::route::{FastPathRule, Inline, OpRouting, PollDirection, RunQueueRule, WorkerClass};
use uringlet_abi::{Opcode, Opcode as O, Sqe};
use uringlet_sys::Errno;

/// Reads and validates an SQE, and writes the op where it will stay: a large copy right after small
/// stores to the same memory is slow.
pub(crate) type PrepInPlace = fn(&Sqe, &PrepCx, &mut Op) -> Result<(), Errno>;

/// The facts of an opcode.
#[derive(Debug)]
pub(crate) struct OpDef {
    pub(crate) prep: PrepInPlace,
    /// `sqe.fd` is a file, which may be a registered one.
    pub(crate) needs_file: bool,
    /// May have `IOSQE_BUFFER_SELECT`.
    pub(crate) buffer_select: bool,
    /// May have `sqe.ioprio` set.
    pub(crate) ioprio: bool,
    /// May be on an `IORING_SETUP_IOPOLL` ring.
    pub(crate) iopoll: bool,
    /// Advertised by the probe.
    pub(crate) supported: bool,
    /// Its SQE has 128 bytes.
    pub(crate) is_wide: bool,
    /// Its file is a socket: after EAGAIN it becomes ready only with an edge.
    pub(crate) is_socket: bool,
    /// It waits for a child or a futex: a cancel ends it at once, although a worker has it.
    pub(crate) is_wait: bool,
    /// What it does depends on the identity of the thread that does it (`crate::identity`): it
    /// resolves a path, or meets a check of credentials, or tells them to others.
    pub(crate) acts_as_submitter: bool,
    /// The notification that follows the CQE of such an SQE: its buffer may be reused.
    pub(crate) notification: Option<fn(&Sqe) -> Option<Notification>>,
    /// What decides its route.
    pub(crate) routing: OpRouting,
}

/// Makes a family's `prep` write its op in place.
macro_rules! prep {
    ($prep:path) => {
        |sqe: &Sqe, cx: &PrepCx, op: &mut Op| -> Result<(), Errno> {
            *op = Op::from($prep(sqe, cx)?);
            Ok(())
        }
    };
}

/// Runs on a bounded worker.
const BOUNDED: OpRouting = OpRouting {
    fast_path: FastPathRule::Never,
    inline: Inline::Never,
    poll: PollDirection::Never,
    worker: WorkerClass::Bounded,
    run_queue: RunQueueRule::Never,
    honours_async: true,
};

/// Completes with its first attempt, or operates on the ring and on other requests.
const RING: OpRouting = OpRouting { honours_async: false, ..BOUNDED };

/// Operates on the ring, then waits for other processes on a worker.
const UNBOUNDED_RING: OpRouting = OpRouting { worker: WorkerClass::Unbounded, ..RING };

/// A system call on a socket that does not wait.
const SOCKET_CALL: OpRouting = OpRouting { worker: WorkerClass::Unbounded, ..BOUNDED };

/// Waits for readiness, perhaps for ever.
const POLLED: OpRouting = OpRouting { poll: PollDirection::Always, ..SOCKET_CALL };

/// The same, never issued by a worker.
const POLLED_HERE: OpRouting = OpRouting { honours_async: false, ..POLLED };

/// A read or a write.
const TRANSFER: OpRouting =
    OpRouting { poll: PollDirection::Streams, worker: WorkerClass::ByFile, run_queue: RunQueueRule::BufferedWrites, ..BOUNDED };
const CACHED_READ: OpRouting = OpRouting { fast_path: FastPathRule::CachedReads, ..TRANSFER };
const CACHED_WRITE: OpRouting = OpRouting { fast_path: FastPathRule::CachedWrites, ..TRANSFER };

/// An operation on names and descriptors.
const FS: OpRouting = OpRouting { run_queue: RunQueueRule::Always, ..BOUNDED };

const fn row(prep: PrepInPlace, routing: OpRouting) -> OpDef {
    OpDef {
        prep,
        needs_file: false,
        buffer_select: false,
        ioprio: false,
        iopoll: false,
        supported: true,
        is_wide: false,
        is_socket: false,
        is_wait: false,
        acts_as_submitter: false,
        notification: None,
        routing,
    }
}

const fn file(prep: PrepInPlace, routing: OpRouting) -> OpDef {
    OpDef { needs_file: true, ..row(prep, routing) }
}

const fn transfer(prep: PrepInPlace, routing: OpRouting) -> OpDef {
    OpDef { ioprio: true, iopoll: true, ..file(prep, routing) }
}

const fn selecting(def: OpDef) -> OpDef {
    OpDef { buffer_select: true, ..def }
}

const fn inline(inline: Inline, def: OpDef) -> OpDef {
    OpDef { routing: OpRouting { inline, ..def.routing }, ..def }
}

const fn on_fast_path(def: OpDef) -> OpDef {
    OpDef { routing: OpRouting { fast_path: FastPathRule::Always, ..def.routing }, ..def }
}

/// Metadata that the fast path does, too.
const fn quick(def: OpDef) -> OpDef {
    OpDef { routing: OpRouting { fast_path: FastPathRule::WhileQuick, ..def.routing }, ..def }
}

const fn socket(prep: PrepInPlace) -> OpDef {
    OpDef { ioprio: true, is_socket: true, ..file(prep, POLLED) }
}

const fn socket_call(prep: PrepInPlace) -> OpDef {
    inline(Inline::Always, OpDef { is_socket: true, ..file(prep, SOCKET_CALL) })
}

const fn zero_copy(prep: PrepInPlace) -> OpDef {
    OpDef { notification: Some(net::notification), ..socket(prep) }
}

const fn wait(prep: PrepInPlace) -> OpDef {
    OpDef { is_wait: true, ..row(prep, UNBOUNDED_RING) }
}

const fn shallow(prep: PrepInPlace) -> OpDef {
    inline(Inline::WhileQuick, row(prep, FS))
}

const fn as_submitter(def: OpDef) -> OpDef {
    OpDef { acts_as_submitter: true, ..def }
}

const fn wide(def: OpDef) -> OpDef {
    OpDef { is_wide: true, ..def }
}

/// A command to a file, which decides what that depends on.
const fn command() -> OpDef {
    as_submitter(selecting(OpDef { iopoll: true, ..file(prep!(uring_cmd::prep), UNBOUNDED_RING) }))
}

/// An operation on names.
const fn path(prep: PrepInPlace) -> OpDef {
    as_submitter(shallow(prep))
}

fn prep_unsupported(_: &Sqe, _: &PrepCx, _: &mut Op) -> Result<(), Errno> {
    Err(Errno::EINVAL)
}

const UNSUPPORTED: OpDef = OpDef { supported: false, ioprio: true, ..row(prep_unsupported, RING) };

/// The row of an opcode.
const fn def(opcode: Opcode) -> OpDef {
    match opcode {
        O::Nop => OpDef { iopoll: true, ..on_fast_path(row(prep!(nop::prep), RING)) },
        O::Readv => selecting(transfer(prep!(rw::prep_readv), CACHED_READ)),
        O::Read => selecting(transfer(prep!(rw::prep_read), CACHED_READ)),
        O::ReadFixed => transfer(prep!(rw::prep_read_fixed), TRANSFER),
        O::ReadvFixed => transfer(prep!(rw::prep_readv_fixed), TRANSFER),
        O::Writev => transfer(prep!(rw::prep_writev), CACHED_WRITE),
        O::Write => transfer(prep!(rw::prep_write), CACHED_WRITE),
        O::WriteFixed => transfer(prep!(rw::prep_write_fixed), TRANSFER),
        O::WritevFixed => transfer(prep!(rw::prep_writev_fixed), TRANSFER),
        O::Fsync => file(prep!(sync::prep_fsync), BOUNDED),
        O::SyncFileRange => file(prep!(sync::prep_sync_file_range), BOUNDED),
        O::Fallocate => file(prep!(sync::prep_fallocate), BOUNDED),
        O::Fadvise => file(prep!(sync::prep_fadvise), BOUNDED),
        O::Madvise => row(prep!(sync::prep_madvise), BOUNDED),
        O::Ftruncate => file(prep!(sync::prep_ftruncate), BOUNDED), // On a worker, where SIGXFSZ is blocked.
        // try_issue opens what needs no I/O; the rest may sleep on a FIFO or a device.
        O::Openat => on_fast_path(as_submitter(row(prep!(fs::prep_openat), FS))),
        O::Openat2 => as_submitter(row(prep!(fs::prep_openat2), FS)),
        O::Close => quick(shallow(prep!(fs::prep_close))),
        O::Statx => quick(path(prep!(fs::prep_statx))),
        O::Unlinkat => quick(path(prep!(fs::prep_unlinkat))),
        O::Renameat => path(prep!(fs::prep_renameat)),
        O::Mkdirat => path(prep!(fs::prep_mkdirat)),
        O::Symlinkat => path(prep!(fs::prep_symlinkat)),
        O::Linkat => path(prep!(fs::prep_linkat)),
        O::Setxattr => path(prep!(fs::prep_setxattr)),
        O::Getxattr => path(prep!(fs::prep_getxattr)),
        O::Fsetxattr => as_submitter(inline(Inline::WhileQuick, file(prep!(fs::prep_fsetxattr), FS))),
        O::Fgetxattr => as_submitter(inline(Inline::WhileQuick, file(prep!(fs::prep_fgetxattr), FS))),
        O::EpollCtl => inline(Inline::Always, row(prep!(fs::prep_epoll_ctl), FS)),
        O::Splice => file(prep!(splice::prep_splice), UNBOUNDED_RING), // try_issue looks up the registered input.
        O::Tee => file(prep!(splice::prep_tee), UNBOUNDED_RING),
        O::Accept => socket(prep!(net::prep_accept)),
        O::Connect => as_submitter(OpDef { ioprio: false, ..socket(prep!(net::prep_connect)) }),
        O::Send => on_fast_path(selecting(socket(prep!(net::prep_send)))),
        O::SendZc => zero_copy(prep!(net::prep_send_zc)),
        O::SendmsgZc => as_submitter(zero_copy(prep!(net::prep_sendmsg_zc))),
        O::Sendmsg => as_submitter(socket(prep!(net::prep_sendmsg))),
        O::Recv => selecting(socket(prep!(net::prep_recv))),
        O::Recvmsg => selecting(socket(prep!(net::prep_recvmsg))),
        O::MsgRing => OpDef { iopoll: true, ..file(prep!(msg_ring::prep), RING) },
        O::ReadMultishot => selecting(file(prep!(stream::prep_read), POLLED)),
        O::EpollWait => file(prep!(stream::prep_epoll_wait), POLLED),
        O::FixedFdInstall => file(prep!(fds::prep_install), RING),
        O::Pipe => row(prep!(fds::prep_pipe), RING),
        O::Socket => as_submitter(inline(Inline::WhileQuick, OpDef { is_socket: true, ..row(prep!(net::prep_socket), SOCKET_CALL) })),
        O::Shutdown => socket_call(prep!(net::prep_shutdown)),
        O::Bind => as_submitter(socket_call(prep!(net::prep_bind))),
        O::Listen => socket_call(prep!(net::prep_listen)),
        O::PollAdd => file(prep!(poll::prep_add), RING),
        O::PollRemove => row(prep!(poll::prep_remove), RING),
        O::Timeout => row(prep!(timeout::prep), RING),
        O::LinkTimeout => row(prep!(timeout::prep_link), RING),
        O::TimeoutRemove => row(prep!(timeout::prep_remove), RING),
        O::AsyncCancel => row(prep!(cancel::prep), RING),
        O::ProvideBuffers => OpDef { iopoll: true, ..row(prep!(buffers::prep_provide), RING) },
        O::RemoveBuffers => OpDef { iopoll: true, ..row(prep!(buffers::prep_remove), RING) },
        O::FilesUpdate => OpDef { iopoll: true, ..row(prep!(buffers::prep_files_update), RING) },
        O::Waitid => wait(prep!(waitid::prep)),
        O::Nop128 => wide(OpDef { iopoll: true, ..row(prep!(nop::prep), RING) }),
        O::UringCmd128 => wide(command()),
        O::UringCmd => command(),
        O::FutexWait => wait(prep!(futex::prep_wait)),
        O::FutexWake => row(prep!(futex::prep_wake), UNBOUNDED_RING),
        O::FutexWaitv => wait(prep!(futex::prep_waitv)),
        O::RecvZc => OpDef { routing: POLLED_HERE, ..socket(prep!(net::prep_recv_zc)) },
    }
}

/// The routing facts of an opcode, as a constant.
pub(crate) const fn routing(opcode: Opcode) -> OpRouting {
    def(opcode).routing
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
