//! What a kernel may do to a request as the ABI has it (`--legal`). `docs/chaos.md` has the source
//! of each line.

use super::multishot::is_multishot;
use super::{FaultActions, shorten};
use crate::ops::table;
use crate::ring_resources::RingResources;
use crate::trace;
use uringlet_abi::{Opcode, Sqe, setup, sqe};
use uringlet_sys::io::{self, MSG_WAITALL};
use uringlet_sys::linux::general::O_NONBLOCK;
use uringlet_sys::linux::net::SOCK_STREAM;
use uringlet_sys::{Errno, linux::general};

/// One request of so many is treated badly.
const RARITY: u32 = 4;
/// One call of io_uring_enter(2) of so many.
const CALL_RARITY: u32 = 8;
/// A pipe takes so many bytes as a whole (`PIPE_BUF`).
const PIPE_BUF: u32 = 4096;
const MICROSECOND: u64 = 1000;
/// Delayed completions come together at multiples of this.
const BURST_NS: u64 = 4_000_000;
const LONGEST_DELAY_NS: u32 = 2_000_000;

/// What matters of the file of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileFacts {
    is_regular: bool,
    is_pipe: bool,
    is_stream: bool,
    is_socket: bool,
    is_nonblocking: bool,
}

impl FileFacts {
    fn of(number: i32) -> Self {
        let Ok(stat) = io::fstat(number) else { return Self::default() };
        let sort = stat.mode & general::S_IFMT;
        let is_socket = sort == general::S_IFSOCK;
        Self {
            is_regular: sort == general::S_IFREG,
            is_pipe: sort == general::S_IFIFO,
            is_stream: is_socket && io::socket_option(number, io::SO_TYPE) == Ok(SOCK_STREAM.cast_signed()),
            is_socket,
            is_nonblocking: io::file_flags(number).is_ok_and(|flags| flags & O_NONBLOCK != 0),
        }
    }
}

/// Numbers that look random, each drawn from the one before it.
#[derive(Clone, Copy, Debug)]
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: u32) -> u32 {
        let value = self.0 % u64::from(count);
        self.0 = uringlet_sys::fault_plan::draw([self.0, 0, 0, 0]);
        u32::try_from(value).unwrap_or(0)
    }
}

/// What is done to a request.
pub(super) fn of_request(res: &RingResources, opcode: Opcode, entry: &Sqe, chance: u64) -> FaultActions {
    let mut chance = Chance(chance);
    if chance.below(RARITY) != 0 || res.setup & setup::IOPOLL != 0 {
        return FaultActions::NONE;
    }
    let number = trace::file_number(res, entry);
    let file = if number >= 0 { FileFacts::of(number) } else { FileFacts::default() };
    let short = FaultActions { short_percent: 1 + chance.below(99), ..FaultActions::NONE };
    let late = FaultActions { delay_ns: 20 * MICROSECOND + u64::from(chance.below(LONGEST_DELAY_NS)), ..FaultActions::NONE };
    let errno = |errno: Errno| FaultActions { result: Some(-errno.into_raw()), ..FaultActions::NONE };
    let flags = |flags| FaultActions { flags, ..FaultActions::NONE };
    let candidates = [
        (may_be_late(opcode), late),
        (may_be_late(opcode), FaultActions { delay_ns: BURST_NS, flags: FaultActions::BURST, ..FaultActions::NONE }),
        (table::of(opcode).routing.honours_async, flags(FaultActions::WORKER)),
        (may_be_short(opcode, entry, file) && shorten::can_be_short(res, opcode, entry, short), short),
        (is_multishot(opcode, entry) && opcode != Opcode::Timeout, FaultActions { shots: 1 + chance.below(3), ..FaultActions::NONE }),
        (may_be_told_ready(opcode, entry, file), flags(FaultActions::READY)),
        (waits_for_others(opcode, entry) && file.is_nonblocking && !file.is_regular, errno(Errno::EAGAIN)),
        (waits_for_others(opcode, entry) && (file.is_socket || file.is_pipe), errno(Errno::EINTR)),
    ];
    let count = candidates.iter().filter(|(is_possible, _)| *is_possible).count();
    let Some(chosen) = u32::try_from(count).ok().filter(|&count| count > 0).map(|count| chance.below(count)) else {
        return FaultActions::NONE;
    };
    let mut possible = (0..).zip(candidates.iter().filter(|(is_possible, _)| *is_possible));
    possible.find(|(n, _)| *n == chosen).map_or(FaultActions::NONE, |(_, (_, actions))| *actions)
}

/// Requests have no order unless they are linked or drained. Those that act on the ring or on other
/// requests, and those that wait for a change that others make, are left alone.
const fn may_be_late(opcode: Opcode) -> bool {
    !matches!(
        opcode,
        Opcode::Timeout
            | Opcode::TimeoutRemove
            | Opcode::LinkTimeout
            | Opcode::PollRemove
            | Opcode::AsyncCancel
            | Opcode::FilesUpdate
            | Opcode::ProvideBuffers
            | Opcode::RemoveBuffers
            | Opcode::MsgRing
            | Opcode::FixedFdInstall
            | Opcode::UringCmd
            | Opcode::UringCmd128
            | Opcode::FutexWait
            | Opcode::FutexWake
            | Opcode::FutexWaitv
            | Opcode::Waitid
            | Opcode::Close
            | Opcode::EpollCtl
    )
}

/// Where read(2), write(2), recv(2) and send(2) do not promise whole transfers.
fn may_be_short(opcode: Opcode, entry: &Sqe, file: FileFacts) -> bool {
    let waits_for_all = matches!(opcode, Opcode::Recv | Opcode::Send | Opcode::SendZc) && entry.op_flags & MSG_WAITALL != 0;
    let writes = matches!(opcode, Opcode::Write | Opcode::Writev | Opcode::WriteFixed | Opcode::WritevFixed | Opcode::Splice | Opcode::Tee);
    // Of iovecs only the number is known.
    let is_atomic = file.is_pipe && writes && (entry.len <= PIPE_BUF || matches!(opcode, Opcode::Writev | Opcode::WritevFixed));
    (file.is_regular || file.is_stream || file.is_pipe) && !waits_for_all && !is_atomic
}

/// select(2): a socket may be reported ready although a read waits. So a program must not rely on
/// it unless its socket does not block.
const fn may_be_told_ready(opcode: Opcode, entry: &Sqe, file: FileFacts) -> bool {
    matches!(opcode, Opcode::PollAdd) && entry.len == 0 && file.is_socket && file.is_nonblocking
}

/// Single transfers that may have to wait for another process: a signal ends their wait, and so
/// does a file that must not block.
fn waits_for_others(opcode: Opcode, entry: &Sqe) -> bool {
    let is_transfer = matches!(
        opcode,
        Opcode::Read
            | Opcode::Readv
            | Opcode::Write
            | Opcode::Writev
            | Opcode::Recv
            | Opcode::Recvmsg
            | Opcode::Send
            | Opcode::Sendmsg
            | Opcode::Accept
    );
    is_transfer && !is_multishot(opcode, entry) && entry.flags & sqe::BUFFER_SELECT == 0
}

/// What is done to io_uring_enter(2).
pub(super) fn of_enter(to_submit: u32, waits: bool, chance: u64) -> FaultActions {
    let mut chance = Chance(chance);
    let errno = |errno: Errno| FaultActions { result: Some(-errno.into_raw()), ..FaultActions::NONE };
    if chance.below(CALL_RARITY) != 0 {
        return FaultActions::NONE;
    }
    match (to_submit, waits) {
        (0, true) => errno(Errno::EINTR),
        // What was submitted counts more than the signal.
        (1.., true) if chance.below(4) != 0 => FaultActions { flags: FaultActions::NO_WAIT, ..FaultActions::NONE },
        (1.., _) => errno(Errno::EAGAIN),
        (0, false) => FaultActions::NONE,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const REGULAR: FileFacts = FileFacts { is_regular: true, is_pipe: false, is_stream: false, is_socket: false, is_nonblocking: false };
    const PIPE: FileFacts = FileFacts { is_regular: false, is_pipe: true, ..REGULAR };
    const STREAM: FileFacts = FileFacts { is_regular: false, is_stream: true, is_socket: true, ..REGULAR };
    const DATAGRAMS: FileFacts = FileFacts { is_stream: false, ..STREAM };

    #[test]
    fn a_promise_of_whole_transfers_is_kept() {
        let entry = |len, op_flags| Sqe { len, op_flags, ..Sqe::default() };
        let short = |opcode, entry: Sqe, file| may_be_short(opcode, &entry, file);
        assert!(
            short(Opcode::Read, entry(9, 0), REGULAR) && short(Opcode::Recv, entry(9, 0), STREAM) && short(Opcode::Read, entry(9, 0), PIPE)
        );
        assert!(!short(Opcode::Recv, entry(9, 0), DATAGRAMS) && !short(Opcode::Send, entry(9, 0), DATAGRAMS));
        assert!(!short(Opcode::Recv, entry(9, MSG_WAITALL), STREAM));
        assert!(!short(Opcode::Write, entry(4096, 0), PIPE) && short(Opcode::Write, entry(4097, 0), PIPE));
        assert!(!short(Opcode::Writev, entry(9000, 0), PIPE));
        // An eventfd, a directory.
        assert!(!short(Opcode::Read, entry(8, 0), FileFacts::default()));
    }

    #[test]
    fn an_interrupted_call_submits_everything_or_nothing() {
        let mut seen = [0; 4];
        for chance in 0..10_000_u64 {
            let chance = uringlet_sys::fault_plan::draw([chance, 0, 0, 0]);
            let waiting = of_enter(0, true, chance);
            assert!(waiting == FaultActions::NONE || waiting.result == Some(-Errno::EINTR.into_raw()));
            seen[0] += usize::from(waiting.result.is_some());
            let submitting = of_enter(3, true, chance);
            assert!(matches!(submitting.result, None | Some(-11)));
            seen[1] += usize::from(submitting.has(FaultActions::NO_WAIT));
            seen[2] += usize::from(submitting.result.is_some());
            seen[3] += usize::from(of_enter(0, false, chance) != FaultActions::NONE);
        }
        assert!(seen[0] > 900 && seen[1] > 700 && seen[2] > 200 && seen[3] == 0, "{seen:?}");
    }
}
