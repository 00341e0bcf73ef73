//! What is in the memory of a trace: a header of one page, then the slots. Both sides are programs
//! of one version ([`LAYOUT_VERSION`]).

use crate::sync::{AtomicU32, AtomicU64};

/// Version of the layout and of the records.
pub const LAYOUT_VERSION: u32 = 3;
/// `uringtrc`
#[cfg(not(loom))]
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"uringtrc");
/// Words of a record behind its state.
const RECORD_WORDS: usize = 15;
/// Words of a record that depend on its kind.
pub const PAYLOAD_WORDS: usize = RECORD_WORDS - 4;

/// A flag of [`TracePolicy`]: a record that finds no room is dropped and counted. Otherwise the
/// program waits.
pub const DROPS_WHEN_FULL: u32 = 1;
/// A flag of [`TracePolicy`]: io_uring_enter(2) and io_uring_register(2) are recorded.
pub const TRACES_CALLS: u32 = 2;

/// What the tracer wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracePolicy {
    /// [`DROPS_WHEN_FULL`], [`TRACES_CALLS`].
    pub flags: u32,
    /// Bytes of each buffer to record.
    pub string_limit: u32,
}

/// What a record is about. The comments name its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// The process has begun to record: its name, two words.
    Process = 1,
    /// A request: eight words of its SQE; the number of its file.
    Submission = 2,
    /// A result: `user_data`; result and CQE flags; opcode and whether there is a CQE.
    Completion = 3,
    /// Bytes that an argument points to: which, and where they begin in it; how many there are in
    /// all; the bytes.
    Data = 4,
    /// The name of an open file: its number and where the bytes begin; how many there are in all;
    /// the bytes.
    File = 5,
    /// A ring was made: entries of SQ and CQ; flags, descriptor.
    Setup = 6,
    /// io_uring_enter(2): descriptor, to_submit; min_complete, flags; result; ticks at its begin.
    Enter = 7,
    /// io_uring_register(2): descriptor, opcode; argument; its number; result.
    Register = 8,
    /// A request that was executed without being built, its data before it: eight words of its SQE;
    /// the number of its file; result and CQE flags; ticks at its submission.
    Executed = 9,
    /// Something was done to a request or a call on purpose: the number of the decision; opcode, or
    /// [`FaultedCall`]; user_data; four words of `FaultActions`.
    Fault = 10,
    /// Of a ring of the kernel's: SQEs and CQEs that were overwritten before they were seen.
    Lost = 11,
}

/// The call in a record of kind [`RecordKind::Fault`] without a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FaultedCall {
    /// io_uring_setup(2)
    Setup = 1,
    /// io_uring_enter(2)
    Enter = 2,
    /// io_uring_register(2)
    Register = 3,
}

impl FaultedCall {
    /// Its name.
    #[must_use]
    pub const fn name(number: u64) -> &'static str {
        match number {
            1 => "io_uring_setup",
            2 => "io_uring_enter",
            _ => "io_uring_register",
        }
    }
}

impl RecordKind {
    /// The kind of this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Process,
            2 => Self::Submission,
            3 => Self::Completion,
            4 => Self::Data,
            5 => Self::File,
            6 => Self::Setup,
            7 => Self::Enter,
            8 => Self::Register,
            9 => Self::Executed,
            10 => Self::Fault,
            11 => Self::Lost,
            _ => return None,
        })
    }
}

/// How a request was executed: bits, none for a request that its submitter issued as a whole.
pub mod road {
    /// Without a request being built.
    pub const FAST_PATH: u8 = 1 << 0;
    /// It waited for its file's readiness.
    pub const POLL: u8 = 1 << 1;
    /// A worker of io-wq had it.
    pub const IO_WQ: u8 = 1 << 2;
    /// The kernel's AIO.
    pub const AIO: u8 = 1 << 3;
    /// A worker of uringlet mode, or a thread that waits.
    pub const URINGLET: u8 = 1 << 4;
    /// It waited for a timer: a TIMEOUT, or a delayed write.
    pub const TIMER: u8 = 1 << 5;
    /// A ublk device has it.
    pub const COMMAND: u8 = 1 << 6;
    /// Something was done to it on purpose. Of a call, too.
    pub const INJECTED: u8 = 1 << 7;
}

/// What [`RecordKind::Data`] is of.
pub mod argument {
    /// The first path.
    pub const PATH: u16 = 1;
    /// The second path; the value of an attribute.
    pub const SECOND: u16 = 2;
    /// What is written or sent: its beginning.
    pub const BUFFER: u16 = 3;
    /// An array of `struct iovec`: its beginning.
    pub const IOVECS: u16 = 4;
    /// A socket's address.
    pub const ADDRESS: u16 = 5;
    /// A structure that the opcode has: `struct open_how`, a `timespec`, a `msghdr`, an array.
    pub const STRUCT: u16 = 6;
    /// What was read or received: its beginning.
    pub const RESULT: u16 = 7;
}

/// A record as both sides see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceRecord {
    /// [`RecordKind`].
    pub kind: u8,
    /// [`road`], of a completion or a call.
    pub road: u8,
    /// Of data: which [`argument`]. Of a submission: [`Self::LAST`]. Of a completion: the others.
    pub detail: u16,
    /// The ring's index in its process.
    pub ring: u32,
    /// [`ticks`](crate::clock::ticks).
    pub ticks: u64,
    /// The process, as it sees itself.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The request's number in its ring; 0: none, or from before the trace.
    pub request: u32,
    /// Bytes of data in the payload.
    pub len: u32,
    /// What depends on the kind.
    pub payload: [u64; PAYLOAD_WORDS],
}

impl TraceRecord {
    /// Of a submission: io_uring_enter(2) submits no other request behind it.
    pub const LAST: u16 = 1;
    /// Of a completion: it has no CQE.
    pub const NO_CQE: u16 = 1;
    /// Of a completion: more follow.
    pub const MORE: u16 = 2;
    /// Of a completion: a notification of zero copy.
    pub const NOTIFICATION: u16 = 4;
    /// Of a completion: a CQE that is no request's of this ring.
    pub const NO_REQUEST: u16 = 8;
    /// Of a completion: several requests have this `user_data`.
    pub const UNCERTAIN: u16 = 16;
    /// Of a completion: the request has ended without a CQE, and nothing else is known.
    pub const UNSEEN: u16 = 32;
    /// Of a completion: the kernel's ring has executed it. How is not seen.
    pub const OF_KERNEL: u16 = 64;

    pub(super) fn to_words(self) -> [u64; RECORD_WORDS] {
        let mut words = [0; RECORD_WORDS];
        words[0] = u64::from(self.kind) | u64::from(self.road) << 8 | u64::from(self.detail) << 16 | u64::from(self.ring) << 32;
        words[1] = self.ticks;
        words[2] = u64::from(self.pid) | u64::from(self.tid) << 32;
        words[3] = u64::from(self.request) | u64::from(self.len) << 32;
        words[4..].copy_from_slice(&self.payload);
        words
    }

    pub(super) fn from_words(words: &[u64; RECORD_WORDS]) -> Self {
        let mut payload = [0; PAYLOAD_WORDS];
        payload.copy_from_slice(&words[4..]);
        let [low, high] = [|word: u64| word as u32, |word: u64| (word >> 32) as u32];
        Self {
            kind: words[0] as u8,
            road: (words[0] >> 8) as u8,
            detail: (words[0] >> 16) as u16,
            ring: high(words[0]),
            ticks: words[1],
            pid: low(words[2]),
            tid: high(words[2]),
            request: low(words[3]),
            len: high(words[3]),
            payload,
        }
    }
}

/// Bytes that a record of kind [`RecordKind::Data`] or [`RecordKind::File`] has room for.
#[must_use]
pub const fn data_chunk_bytes() -> usize {
    (PAYLOAD_WORDS - 2) * 8
}

/// What is before the slots.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct TraceHeader {
    pub(super) magic: AtomicU64,
    pub(super) layout: AtomicU32,
    /// A power of two.
    pub(super) slots: AtomicU32,
    pub(super) flags: AtomicU32,
    pub(super) string_limit: AtomicU32,
    /// The tracer's thread, as the kernel has it in a robust futex; 0: the tracer has left.
    pub(super) owner: AtomicU32,
    /// The reader sleeps on it.
    pub(super) full_seq: AtomicU32,
    /// Writers without room sleep on it.
    pub(super) room_seq: AtomicU32,
    /// How many do.
    pub(super) waiters: AtomicU32,
    /// Records that found no room.
    pub(super) drops: AtomicU64,
    /// The ticket to be used next, or one that is used already.
    pub(super) tail: Padded,
}

/// A word on a cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Padded(pub(super) AtomicU64);

/// A record in memory.
#[derive(Debug)]
#[repr(C)]
pub(super) struct TraceSlot {
    pub(super) state: AtomicU64,
    pub(super) words: [AtomicU64; RECORD_WORDS],
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_fields_through_words() {
        let record = TraceRecord {
            kind: RecordKind::Completion as u8,
            road: road::POLL | road::IO_WQ,
            detail: 0xfffe,
            ring: 7,
            ticks: u64::MAX - 1,
            pid: 4_194_303,
            tid: 4_194_302,
            request: u32::MAX,
            len: 88,
            payload: core::array::from_fn(|n| n as u64),
        };
        assert_eq!(TraceRecord::from_words(&record.to_words()), record);
        assert_eq!((1..=11).filter(|&kind| RecordKind::from_u8(kind).is_some_and(|known| known as u8 == kind)).count(), 11);
        assert_eq!((RecordKind::from_u8(0), RecordKind::from_u8(12)), (None, None));
    }

    #[test]
    fn a_slot_is_two_cache_lines() {
        assert_eq!((size_of::<TraceSlot>(), data_chunk_bytes()), (128, 72));
        assert!(size_of::<TraceHeader>() <= 4096);
    }
}
