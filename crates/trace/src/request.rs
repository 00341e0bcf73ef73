//! Events: what the records of a trace say, put together.

use std::collections::BTreeMap;
use std::rc::Rc;

use uringlet_abi::{Opcode, Sqe};
use uringlet_sys::trace::road;

use crate::flags;

/// Bytes of an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// As many as were recorded.
    pub bytes: Vec<u8>,
    /// How many there are.
    pub total: u64,
}

/// Names of a process' open files.
pub type FileNames = BTreeMap<i32, Rc<str>>;

/// A request as it was submitted.
#[derive(Clone, Debug)]
pub struct SubmittedRequest {
    /// The process and thread that submitted it.
    pub pid: u32,
    /// See `pid`.
    pub tid: u32,
    /// The ring's index in its process.
    pub ring: u32,
    /// When, in ticks.
    pub ticks: u64,
    /// Its number in its ring.
    pub number: u32,
    /// The entry.
    pub sqe: Sqe,
    /// What its numbers meant at that time.
    pub paths: FileNames,
    /// The descriptor number of its file: the engine's, for a registered file.
    pub file: i32,
    /// The chain and its place in it, from 1; chains of a ring are counted from 1.
    pub chain: Option<(u32, u32)>,
    /// What it points to, by `uringlet_sys::trace::argument`.
    pub data: BTreeMap<u16, Data>,
}

impl SubmittedRequest {
    /// Its opcode; `None`: there is no such opcode.
    #[must_use]
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::from_u8(self.sqe.opcode)
    }

    /// The path of its file.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.paths.get(&self.file).map(|path| &**path)
    }
}

/// The end of a request, or one CQE of it.
#[derive(Clone, Debug)]
pub struct CqeShown {
    /// When, in ticks.
    pub ticks: u64,
    /// The thread that completed it.
    pub tid: u32,
    /// The result.
    pub res: i32,
    /// `IORING_CQE_F_*`.
    pub flags: u32,
    /// How it was executed: bits of `uringlet_sys::trace::road`.
    pub road: u8,
    /// It has no CQE: `IOSQE_CQE_SKIP_SUCCESS`, or a broken chain.
    pub is_skipped: bool,
    /// More follow.
    pub has_more: bool,
    /// The notification of a zero-copy send.
    pub is_notification: bool,
    /// It is not the first one of its request.
    pub is_later: bool,
    /// What was read.
    pub result: Option<Data>,
    /// Several requests in flight had this `user_data`: this is the oldest.
    pub is_uncertain: bool,
    /// It has ended without a CQE, with an unknown result.
    pub is_unseen: bool,
    /// The kernel's ring has executed it.
    pub is_of_kernel: bool,
}

/// A CQE that no request of its ring has asked for, as far as is known.
#[derive(Clone, Copy, Debug)]
pub struct PostedCqe {
    /// The process whose ring it is in.
    pub pid: u32,
    /// A thread of it.
    pub tid: u32,
    /// The ring's index in its process.
    pub ring: u32,
    /// When, in ticks.
    pub ticks: u64,
    /// What it carries.
    pub user_data: u64,
    /// See `user_data`.
    pub res: i32,
    /// `IORING_CQE_F_*`.
    pub flags: u32,
}

/// Entries of a ring of the kernel's that were overwritten before they were seen.
#[derive(Clone, Copy, Debug)]
pub struct LostEntries {
    /// The process.
    pub pid: u32,
    /// A thread of it.
    pub tid: u32,
    /// The ring's index in its process.
    pub ring: u32,
    /// How many SQEs.
    pub sqes: u64,
    /// How many CQEs.
    pub cqes: u64,
}

impl CqeShown {
    /// Whether something was done to its request on purpose.
    #[must_use]
    pub const fn is_injected(&self) -> bool {
        self.road & road::INJECTED != 0
    }

    /// How it was executed.
    pub(crate) fn road_name(&self) -> String {
        if self.is_of_kernel { "kernel".to_owned() } else { flags::road(self.road) }
    }
}

/// A call of the program.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The thread.
    pub pid: u32,
    /// See `pid`.
    pub tid: u32,
    /// When it ended, in ticks.
    pub ticks: u64,
    /// Something was done to it on purpose.
    pub is_injected: bool,
    /// Which, with its arguments.
    pub kind: CallKind,
}

/// See [`Call`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum CallKind {
    Setup { ring: u32, sq_entries: u32, cq_entries: u32, flags: u32, fd: i32 },
    Enter { fd: u32, to_submit: u32, min_complete: u32, flags: u32, result: i64, since: u64 },
    Register { fd: u32, opcode: u32, arg: u64, nr_args: u32, result: i64 },
}

/// A process has begun to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStart {
    /// The process.
    pub pid: u32,
    /// Its name, as in `ps`.
    pub name: String,
}

/// What a trace shows.
#[derive(Clone, Debug)]
pub enum Event {
    /// See [`ProcessStart`].
    Process(ProcessStart),
    /// See [`Call`].
    Call(Call),
    /// A CQE of a request. Number 0: it was submitted before the trace, and its SQE has its opcode
    /// and `user_data` only.
    Completion(Rc<SubmittedRequest>, CqeShown),
    /// See [`PostedCqe`].
    Posted(PostedCqe),
    /// See [`LostEntries`].
    Lost(LostEntries),
    /// It has not ended; the reason.
    Unfinished(Rc<SubmittedRequest>, &'static str),
}
