//! `SOCKET_URING_OP_TX_TIMESTAMP`: when a socket's data was sent. A CQE for each time stamp, until
//! the command is cancelled.
//!
//! The kernel puts the stamps into the socket's error queue. Its own command takes them from there
//! wherever they are, and leaves other messages. recvmsg(2) takes the message at the head, whatever
//! it is, also with `MSG_PEEK`. So nothing is taken unless the socket's options say that only
//! stamps can be there ([`QueueContents`]).

use crate::ops::issue::{Issue, IssueCx};
use crate::ops::outcome::Outcome;
use crate::ops::turn::Turn;
use crate::ring::cq::CqeExtra;
use uringlet_abi::{setup, uring_cmd};
use uringlet_sys::Errno;
use uringlet_sys::io::{self, Msghdr};
use uringlet_sys::linux::net::{
    _bindgen_ty_10 as Stamping, IP_RECVERR, IPV6_RECVERR, MSG_ERRQUEUE, SO_TIMESTAMPING_NEW, SO_TIMESTAMPING_OLD, SO_TXTIME,
    SO_WIFI_STATUS, SO_ZEROCOPY, SOL_IP, SOL_IPV6,
};

const POLLERR: u32 = 8;

/// The progress of a command.
#[derive(Debug, Default)]
pub(super) struct TxTimestamps {
    turn: Turn,
    /// Seconds and nanoseconds of the last stamp.
    time: CqeExtra,
    /// What the queue holds, between two stamps that are taken one after the other.
    contents: Option<QueueContents>,
}

impl TxTimestamps {
    /// The second half of a stamp's CQE.
    pub(super) fn time(&self) -> CqeExtra {
        self.time
    }

    /// Takes one stamp, if there is one. The command is never complete, as in the kernel: a full CQ
    /// and an error of the socket make it wait for the next stamp.
    pub(super) fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        if cx.ring.setup & (setup::CQE32 | setup::CQE_MIXED) == 0 {
            return Errno::EINVAL.into();
        }
        let contents = match self.contents.take().map_or_else(|| QueueContents::of(cx.file.fd), Ok) {
            Err(Errno::ENOTSOCK) => return Errno::EOPNOTSUPP.into(),
            Err(errno) => return errno.into(),
            Ok(QueueContents::Mixed) => return Errno::EOPNOTSUPP.into(),
            Ok(contents) => contents,
        };
        if let Some(issue) = self.turn.answer(POLLERR) {
            return issue;
        }
        if !cx.poll_fired {
            return Issue::PollFirst(POLLERR);
        }
        if contents == QueueContents::NoStamps || cx.ring.big_room() == 0 {
            return Issue::WouldBlock(POLLERR);
        }
        match receive(cx.file.fd) {
            Some(stamp) => {
                self.turn.go_on();
                (self.time, self.contents) = (stamp.time, Some(contents));
                Issue::More(Outcome::ok(stamp.key).with_flags(stamp.flags))
            }
            None => Issue::WouldBlock(POLLERR),
        }
    }
}

/// What a socket's error queue may hold, by the socket's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueContents {
    /// Nothing that the command takes: at most stamps with the data that was sent, or with
    /// statistics.
    NoStamps,
    /// Nothing but stamps.
    Stamps,
    /// Stamps among errors and notifications, which would be lost.
    Mixed,
}

impl QueueContents {
    /// # Errors
    /// `ENOTSOCK`, `EBADF`.
    fn of(fd: i32) -> Result<Self, Errno> {
        const AF_INET: i32 = 2;
        const AF_INET6: i32 = 10;
        if !matches!(io::socket_option(fd, io::SO_DOMAIN)?, AF_INET | AF_INET6) {
            return Ok(Self::NoStamps);
        }
        if holds_others(fd) {
            return Ok(Self::Mixed);
        }
        let flags = stamping_flags(fd);
        let has = |flag: Stamping| flags & flag as u32 != 0;
        let is_reported = has(Stamping::SOF_TIMESTAMPING_SOFTWARE) || has(Stamping::SOF_TIMESTAMPING_RAW_HARDWARE);
        let is_bare = has(Stamping::SOF_TIMESTAMPING_OPT_TSONLY) && !has(Stamping::SOF_TIMESTAMPING_OPT_STATS);
        Ok(if is_reported && is_bare { Self::Stamps } else { Self::NoStamps })
    }
}

/// `SOF_TIMESTAMPING_*` of a socket. Both options set the same flags.
fn stamping_flags(fd: i32) -> u32 {
    [SO_TIMESTAMPING_OLD, SO_TIMESTAMPING_NEW]
        .into_iter()
        .find_map(|option| io::socket_option(fd, option).ok())
        .unwrap_or(0)
        .cast_unsigned()
}

/// Whether an option is set that puts other messages into the queue.
fn holds_others(fd: i32) -> bool {
    /// `SOF_TXTIME_REPORT_ERRORS`.
    const REPORT_ERRORS: u64 = 2 << 32;
    let is_set = |level, option| io::int_option(fd, level, option).is_ok_and(|value| value != 0);
    let mut txtime = 0_u64;
    let reports_txtime = io::getsockopt(fd, io::SOL_SOCKET, SO_TXTIME, io::ptr_of_mut(&mut txtime), 8).is_ok();
    [SO_ZEROCOPY, SO_WIFI_STATUS].into_iter().any(|option| is_set(io::SOL_SOCKET, option))
        || is_set(SOL_IP, IP_RECVERR)
        || is_set(SOL_IPV6, IPV6_RECVERR)
        || reports_txtime && txtime & REPORT_ERRORS != 0
}

/// A stamp as its CQE has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    key: i32,
    flags: u32,
    time: CqeExtra,
}

/// Takes messages until one has a stamp.
fn receive(fd: i32) -> Option<Stamp> {
    /// More than all the ancillary data that a message may have.
    const WORDS: usize = 128;
    loop {
        let mut control = [0_u64; WORDS];
        let mut header =
            Msghdr { control: io::ptr_of_mut(&mut control).addr() as u64, controllen: size_of_val(&control) as u64, ..Msghdr::default() };
        io::recvmsg(fd, io::ptr_of_mut(&mut header), MSG_ERRQUEUE | io::MSG_DONTWAIT).ok()?;
        let len = usize::try_from(header.controllen).unwrap_or(0).div_ceil(8);
        if let Some(stamp) = parse(&control[..len.min(WORDS)]) {
            return Some(stamp);
        }
    }
}

/// The stamp in the ancillary data of a message.
fn parse(mut control: &[u64]) -> Option<Stamp> {
    const HEADER_WORDS: usize = 2;
    let (mut times, mut origin) = (None, None);
    while let &[len, kind, ref rest @ ..] = control {
        let words = usize::try_from(len).ok()?.div_ceil(8).checked_sub(HEADER_WORDS)?;
        let data = rest.get(..words)?;
        match halves(kind) {
            [io::SOL_SOCKET, SO_TIMESTAMPING_OLD | SO_TIMESTAMPING_NEW] => times = data.first_chunk::<6>(),
            [SOL_IP, IP_RECVERR] | [SOL_IPV6, IPV6_RECVERR] => origin = data.first_chunk::<2>(),
            _ => {}
        }
        control = &rest[words..];
    }
    Stamp::of(times?, origin?)
}

/// Two numbers of 32 bits, in the order in which they lie in memory.
fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    [bytes.first_chunk(), bytes.last_chunk()].map(|half| half.copied().map_or(0, u32::from_ne_bytes))
}

impl Stamp {
    /// `times`: of the software, an unused one, of the hardware. `error`: a `sock_extended_err`.
    fn of(times: &[u64; 6], error: &[u64; 2]) -> Option<Self> {
        let &[software_s, software_ns, _, _, hardware_s, hardware_ns] = times;
        let [info, key] = halves(error[1]);
        let [software, hardware] = [[software_s, software_ns], [hardware_s, hardware_ns]];
        let (time, source) = if software == [0, 0] { (hardware, uring_cmd::TSTAMP_HW) } else { (software, 0) };
        let flags = info << uring_cmd::TIMESTAMP_TYPE_SHIFT | source;
        (time != [0, 0]).then_some(Self { key: key.cast_signed(), flags, time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ancillary data of a message: level, type and words of each part.
    fn control(parts: &[(u32, u32, &[u64])]) -> alloc::vec::Vec<u64> {
        let part = |&(level, kind, data): &(u32, u32, &[u64])| {
            [&[16 + 8 * data.len() as u64, u64::from(level) | u64::from(kind) << 32], data].concat()
        };
        parts.iter().flat_map(part).collect()
    }

    #[test]
    fn stamps_have_their_source_type_and_key() {
        let error = [42 | 4 << 32, 2 | 77 << 32, 0, 0];
        let packet = (SOL_IP, 8, &[1_u64, 2][..]);
        let software = control(&[(1, 37, &[5, 6, 0, 0, 7, 8]), packet, (SOL_IP, IP_RECVERR, &error)]);
        assert_eq!(parse(&software), Some(Stamp { key: 77, flags: 2 << 17, time: [5, 6] }));
        let hardware = control(&[(1, 65, &[0, 0, 0, 0, 7, 8]), (SOL_IPV6, IPV6_RECVERR, &error)]);
        assert_eq!(parse(&hardware), Some(Stamp { key: 77, flags: 2 << 17 | 1 << 16, time: [7, 8] }));
    }

    #[test]
    fn other_messages_are_no_stamps() {
        let error = [42 | 4 << 32, 0, 0, 0];
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&control(&[(SOL_IP, IP_RECVERR, &error)])), None);
        assert_eq!(parse(&control(&[(1, 37, &[0; 6]), (SOL_IP, IP_RECVERR, &error)])), None);
        assert_eq!(parse(&[8, 0]), None);
        assert_eq!(parse(&[u64::MAX, 0, 0]), None);
    }
}
