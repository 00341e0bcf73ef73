//! `IORING_OP_SEND_ZC, SENDMSG_ZC`: sends that report when their buffer may be reused.
//! Source:  io_uring_prep_send_zc(3), io_uring_prep_sendmsg_zc(3); behaviour of Linux 6.18
//!          io_uring/net.c, notif.c (not their code); a notification has its own user_data, in
//!          `addr3`, as in Linux 7.1.
//! Issue:   as SEND and SENDMSG. The data is copied to the socket before the call returns, so the
//!          notification follows at once.
//! Errors:  EINVAL bad fields; EOPNOTSUPP a socket that is neither TCP nor UDP; EFAULT outside of
//!          the registered buffer.
//! Differs: the data is always copied, and `IORING_SEND_ZC_REPORT_USAGE` says so; the kernel's
//!          notification may come later, or once for several requests.
//! Tests:   liburing send-zerocopy.t; ours cli/tests/net_ops.rs (net_zc).

use super::socket::{AF_INET, AF_INET6, must_be_socket};
use crate::ops::issue::IssueCx;
use crate::ops::outcome::Notification;
use uringlet_abi::op_flags::{NOTIF_USAGE_ZC_COPIED, RECVSEND_FIXED_BUF, RECVSEND_POLL_FIRST, SEND_VECTORIZED, SEND_ZC_REPORT_USAGE};
use uringlet_abi::register::Iovec;
use uringlet_abi::{Sqe, sqe};
use uringlet_sys::{Errno, io};

const KNOWN: u16 = RECVSEND_POLL_FIRST | RECVSEND_FIXED_BUF | SEND_ZC_REPORT_USAGE | SEND_VECTORIZED;
const IPPROTO_TCP: i32 = 6;
const IPPROTO_UDP: i32 = 17;

/// The fields of a zero-copy send that a plain one does not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZeroCopy {
    /// The registered buffer that holds the data.
    buffer: Option<u16>,
}

/// The notification of an SQE. It is posted whatever the result of the request, unless `prep`
/// refuses the SQE at first sight.
pub(crate) fn notification(sqe: &Sqe) -> Option<Notification> {
    if is_refused(sqe) || sqe.flags & sqe::BUFFER_SELECT != 0 {
        return None;
    }
    // Unknown flags are refused before this one counts.
    let reports = sqe.ioprio & SEND_ZC_REPORT_USAGE != 0 && sqe.ioprio & !KNOWN == 0;
    let user_data = if sqe.addr3 == 0 { sqe.user_data } else { sqe.addr3 };
    Some(Notification { user_data, res: if reports { NOTIF_USAGE_ZC_COPIED as i32 } else { 0 }, is_announced: true })
}

/// Whether it is refused before there is a notification.
fn is_refused(sqe: &Sqe) -> bool {
    sqe.pad2 != 0 || sqe.flags & sqe::CQE_SKIP_SUCCESS != 0
}

impl ZeroCopy {
    /// # Errors
    /// `EINVAL`.
    pub(super) fn prep(sqe: &Sqe) -> Result<Self, Errno> {
        if is_refused(sqe) || sqe.ioprio & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Self { buffer: (sqe.ioprio & RECVSEND_FIXED_BUF != 0).then_some(sqe.buf_index) })
    }

    /// Checks that the socket's protocol supports it.
    ///
    /// # Errors
    /// `ENOTSOCK`, `EBADF`; `EOPNOTSUPP`.
    pub(super) fn check_socket(fd: i32) -> Result<(), Errno> {
        must_be_socket(fd)?;
        let is_known = matches!(io::socket_option(fd, io::SO_PROTOCOL)?, IPPROTO_TCP | IPPROTO_UDP)
            && matches!(io::socket_option(fd, io::SO_DOMAIN)?, AF_INET | AF_INET6);
        if is_known { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// Checks that the data lies in the registered buffer, if one is named.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(super) fn check_buffer(self, cx: &IssueCx<'_>, data: &[Iovec]) -> Result<(), Errno> {
        self.buffer.map_or(Ok(()), |index| check_data(cx, index, data))
    }

    /// The index of the registered buffer that holds the data.
    pub(super) fn buffer(self) -> Option<u16> {
        self.buffer
    }

    /// Whether it uses none of the ring's tables.
    pub(super) fn is_lockless(self) -> bool {
        self.buffer.is_none()
    }
}

/// Checks that the data of a transfer lies in the registered buffer that the transfer names.
///
/// # Errors
/// `EFAULT`.
pub(super) fn check_data(cx: &IssueCx<'_>, index: u16, data: &[Iovec]) -> Result<(), Errno> {
    let buffer = cx.buffer(index)?;
    data.iter().try_for_each(|part| buffer.check(part.base, part.len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqes_refused_at_first_sight_have_no_notification() {
        let good = Sqe { ioprio: SEND_ZC_REPORT_USAGE, ..Sqe::default() };
        assert_eq!(notification(&good).map(|n| n.res), Some(i32::MIN));
        let unknown = Sqe { ioprio: SEND_ZC_REPORT_USAGE | 1 << 6, ..good };
        assert_eq!(notification(&unknown).map(|n| n.res), Some(0));
        let own = Sqe { addr3: 7, user_data: 3, ..good };
        assert_eq!([own, Sqe { addr3: 0, ..own }].map(|sqe| notification(&sqe).map(|n| n.user_data)), [Some(7), Some(3)]);
        for bad in [Sqe { pad2: 1, ..good }, Sqe { flags: sqe::CQE_SKIP_SUCCESS, ..good }] {
            assert!(notification(&bad).is_none());
            assert_eq!(ZeroCopy::prep(&bad).err(), Some(Errno::EINVAL), "{bad:?}");
        }
    }
}
