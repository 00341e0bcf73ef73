//! `IORING_OP_MSG_RING`: a CQE, or a registered file, for another ring of this process.
//! Source:  io_uring_prep_msg_ring(3), io_uring_prep_msg_ring_fd(3); behaviour of Linux 6.18
//!          io_uring/msg_ring.c (not its code).
//! Issue:   completes inline; operates on another ring: submit/msg_ring.rs.
//! Errors:  EINVAL bad fields; EBADFD the file is no ring, or a disabled one; EBADF no such file;
//!          ENXIO no file table; ENFILE.
//! Differs: the other ring's descriptor cannot be a registered file; a ring of another process is
//!          EBADFD.
//! Tests:   liburing msg-ring.t; ours cli/tests/net_ops.rs (more_ops).

use super::issue::{OpFamily, PrepCx, unused};
use uringlet_abi::Sqe;
use uringlet_sys::Errno;

const MSG_DATA: u32 = 0;
const MSG_SEND_FD: u32 = 1;
const CQE_SKIP: u32 = 1;
const FLAGS_PASS: u32 = 2;

/// What the other ring receives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RingMessage {
    /// A CQE with this result and these flags.
    Cqe { res: i32, flags: u32 },
    /// The file in slot `from`, for the slot before `to` (or any: `FILE_INDEX_ALLOC`), and a CQE
    /// for it.
    File { from: u32, to: u32, is_silent: bool },
    /// Invalid. The error is reported after the check that the file is a ring.
    None,
}

/// A validated request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MsgRing {
    pub(crate) message: RingMessage,
    /// Of the CQE that the other ring receives.
    pub(crate) user_data: u64,
}

impl OpFamily for MsgRing {}

/// Whether a thread without a ring may send it: a CQE, no file.
pub(crate) fn is_cqe(sqe: &Sqe) -> bool {
    kind(sqe) == MSG_DATA
}

/// The kind of message: the upper half is ignored.
fn kind(sqe: &Sqe) -> u32 {
    sqe.addr as u32
}

pub(crate) fn prep(sqe: &Sqe, _: &PrepCx) -> Result<MsgRing, Errno> {
    unused(&[sqe.buf_index.into()])?;
    let flags = sqe.op_flags;
    if flags & !(CQE_SKIP | FLAGS_PASS) != 0 {
        return Err(Errno::EINVAL);
    }
    let message = message(sqe).unwrap_or(RingMessage::None);
    Ok(MsgRing { message, user_data: sqe.off })
}

fn message(sqe: &Sqe) -> Result<RingMessage, Errno> {
    let flags = sqe.op_flags;
    match kind(sqe) {
        MSG_DATA => {
            let passes = flags & FLAGS_PASS != 0;
            unused(&[sqe.addr3, (flags & CQE_SKIP).into(), if passes { 0 } else { sqe.splice_fd_in as u64 }])?;
            Ok(RingMessage::Cqe { res: sqe.len as i32, flags: if passes { sqe.splice_fd_in as u32 } else { 0 } })
        }
        MSG_SEND_FD => {
            unused(&[sqe.len.into()])?;
            Ok(RingMessage::File { from: sqe.addr3 as u32, to: sqe.file_index(), is_silent: flags & CQE_SKIP != 0 })
        }
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_fields_of_messages_must_be_zero() {
        let file = Sqe { addr: MSG_SEND_FD.into(), ..Sqe::default() };
        for good in [Sqe { len: 5, ..Sqe::default() }, Sqe { op_flags: FLAGS_PASS, splice_fd_in: 5, ..Sqe::default() }, file] {
            assert!(message(&good).is_ok(), "{good:?}");
        }
        for bad in [
            Sqe { op_flags: CQE_SKIP, ..Sqe::default() },
            Sqe { splice_fd_in: 5, ..Sqe::default() },
            Sqe { addr3: 1, ..Sqe::default() },
            Sqe { addr: 2, ..Sqe::default() },
            Sqe { len: 1, ..file },
        ] {
            assert_eq!(message(&bad).err(), Some(Errno::EINVAL), "{bad:?}");
        }
        let cx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };
        for refused in [Sqe { op_flags: 4, ..Sqe::default() }, Sqe { buf_index: 1, ..Sqe::default() }] {
            assert_eq!(prep(&refused, &cx).err(), Some(Errno::EINVAL), "{refused:?}");
        }
    }
}
