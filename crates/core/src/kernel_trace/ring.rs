//! What is seen of one ring of the kernel's.
//!
//! ```text
//!   SQ   ... consumed | announced: seen, not consumed | not seen | tail
//!                   head                           sq_seen
//!   CQ   ... recorded | not seen | tail
//!                  cq_seen
//! ```
//! *Submission*: the SQEs that a call is about to submit are copied, with what they point to,
//! before the call. They become requests when the kernel's head has passed them: a call may submit
//! fewer. A ring with SQPOLL has no such call, so what is behind the tail is taken for submitted.
//!
//! *Completion*: a CQE stays in its slot until the kernel has filled the whole CQ once more,
//! however early the program takes it. A request's CQE may be there before the head has passed its
//! SQE; the CQ's tail is read first, so that each CQE below it has its SQE below the SQ's tail.
//!
//! *Too late*: what was overwritten meanwhile is counted.

use super::pending::{AwaitedRequest, AwaitedRequests};
use crate::ops::FilledBytes;
use crate::trace::{FirstIovecs, files_of, record_arguments, record_file, record_filled, record_names};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use uringlet_abi::{Cqe, FILE_INDEX_ALLOC, Opcode, Sqe, UringParams, cqe, op_flags, setup, sqe};
use uringlet_sys::clock::ticks;
use uringlet_sys::trace::{RecordKind, TraceRecord, TraceWriter};
use uringlet_sys::traced_ring::TracedRing;
use uringlet_sys::{UserPtr, fd_table, process, user};

/// Registered files of rings with a lower index have names: their numbers are these.
const NAMED_RINGS: u32 = 512;
const REGISTERED: u32 = 1 << 30;
const SLOTS: u32 = 1 << 20;

/// An SQE that a call is about to submit.
#[derive(Debug)]
struct AnnouncedSqe {
    position: u32,
    sqe: Sqe,
    tid: u32,
    /// No other is submitted by the same call behind it.
    is_last: bool,
    /// Where it reads or receives to.
    filled: Option<Box<FirstIovecs>>,
    /// Its submission and what it points to, without their number.
    records: Vec<TraceRecord>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct KernelRing {
    /// Different for each ring that was in this place.
    pub(super) id: u64,
    index: u32,
    params: UringParams,
    /// `None`: it cannot be mapped, or this is a forked child that has not used it.
    memory: Option<TracedRing>,
    /// The thread that has made it.
    maker: u32,
    sq_seen: u32,
    cq_seen: u32,
    announced: VecDeque<AnnouncedSqe>,
    /// Calls of io_uring_enter(2) under way.
    entering: u32,
    /// Requests so far.
    requests: u32,
    pending: AwaitedRequests,
    /// Slots of registered files whose names the tracer has.
    named_slots: Vec<bool>,
}

impl KernelRing {
    pub(super) fn new(id: u64, index: u32, params: &UringParams, maker: u32) -> Self {
        Self {
            id,
            index,
            params: *params,
            memory: None,
            maker,
            sq_seen: 0,
            cq_seen: 0,
            announced: VecDeque::new(),
            entering: 0,
            requests: 0,
            pending: AwaitedRequests::default(),
            named_slots: Vec::new(),
        }
    }

    const fn has(&self, flag: u32) -> bool {
        self.params.flags & flag != 0
    }

    /// What was in the rings when they were mapped is not looked at.
    pub(super) fn set_memory(&mut self, params: &UringParams, memory: Option<TracedRing>, is_new: bool) {
        self.params = *params;
        if is_new && let Some(memory) = &memory {
            self.sq_seen = memory.sq_head().unwrap_or(0);
            self.cq_seen = memory.cq_tail().unwrap_or(0);
        }
        self.memory = memory;
    }

    /// What the ring was made with.
    pub(super) const fn params(&self) -> &UringParams {
        &self.params
    }

    pub(super) const fn is_mapped(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether CQEs may come that no call of the program tells of.
    pub(super) fn needs_looks(&self) -> bool {
        self.memory.is_some() && (self.has(setup::SQPOLL) || self.pending.awaits_any())
    }

    /// Whether the kernel takes SQEs without a call of the program.
    pub(super) const fn is_polled(&self) -> bool {
        self.has(setup::SQPOLL)
    }

    /// In a forked child: the parent's requests are not its own, and it has no mapping.
    pub(super) fn forget_in_child(&mut self) {
        core::mem::forget(self.memory.take());
        self.announced.clear();
        self.entering = 0;
        self.pending = AwaitedRequests::default();
    }

    /// A call is about to submit so many.
    pub(super) fn begin_enter(&mut self, to_submit: u32, tid: u32, writer: TraceWriter<'_>) {
        self.look(writer);
        if !self.has(setup::SQPOLL) {
            let _: Option<()> = self.announce(to_submit, tid, writer);
        }
        self.entering += 1;
    }

    /// The call has ended.
    pub(super) fn end_enter(&mut self, result: isize, writer: TraceWriter<'_>) {
        self.entering = self.entering.saturating_sub(1);
        if self.has(setup::SQ_REWIND) {
            self.submit_before(u32::try_from(result).unwrap_or(0), writer);
        }
        self.look(writer);
    }

    /// Records what has happened since the last look. Returns whether that was something.
    pub(super) fn look(&mut self, writer: TraceWriter<'_>) -> bool {
        let before = (self.requests, self.cq_seen);
        let _: Option<()> = self.look_at_memory(writer);
        before != (self.requests, self.cq_seen)
    }

    fn look_at_memory(&mut self, writer: TraceWriter<'_>) -> Option<()> {
        let cq_tail = self.memory.as_ref()?.cq_tail()?;
        self.look_at_submissions(writer)?;
        while self.cq_seen != cq_tail {
            let position = self.cq_seen;
            let memory = self.memory.as_ref()?;
            let entry = memory.cqe(position)?;
            let (tail, entries) = (memory.cq_tail()?, memory.params().cq_entries);
            if tail.wrapping_sub(position) > entries {
                let lost = tail.wrapping_sub(position) - entries;
                self.record_lost([0, lost], writer);
                self.cq_seen = position.wrapping_add(lost);
                if lost > cq_tail.wrapping_sub(position) {
                    return Some(());
                }
                continue;
            }
            if entry.flags & cqe::SKIP == 0 && !self.complete(&entry, writer) {
                return Some(());
            }
            let is_wide = self.has(setup::CQE_MIXED) && entry.flags & cqe::BIG != 0;
            self.cq_seen = position.wrapping_add(1 + u32::from(is_wide));
        }
        Some(())
    }

    fn look_at_submissions(&mut self, writer: TraceWriter<'_>) -> Option<()> {
        if self.has(setup::SQPOLL) {
            self.announce(u32::MAX, self.maker, writer)?;
            while self.submit_first(writer).is_some() {}
            return Some(());
        }
        let head = self.memory.as_ref()?.sq_head()?;
        if !self.has(setup::SQ_REWIND) {
            self.submit_before(head, writer);
        }
        if self.entering == 0 {
            // The kernel has stopped before them.
            self.announced.clear();
            self.sq_seen = head;
        }
        Some(())
    }

    /// Copies the SQEs that a call may submit.
    fn announce(&mut self, wanted: u32, tid: u32, writer: TraceWriter<'_>) -> Option<()> {
        let memory = self.memory.take()?;
        let result = self.announce_from(&memory, wanted, tid, writer);
        self.memory = Some(memory);
        result
    }

    fn announce_from(&mut self, memory: &TracedRing, wanted: u32, tid: u32, writer: TraceWriter<'_>) -> Option<()> {
        let entries = memory.params().sq_entries;
        let tail = if self.has(setup::SQ_REWIND) {
            self.sq_seen = 0;
            entries
        } else {
            memory.sq_tail()?
        };
        let end = self.sq_seen.wrapping_add(wanted.min(tail.wrapping_sub(self.sq_seen)));
        while self.sq_seen != end {
            let position = self.sq_seen;
            let entry = memory.sqe(position);
            let behind = if self.has(setup::SQ_REWIND) { 0 } else { memory.sq_tail()?.wrapping_sub(position) };
            if behind > entries {
                let lost = (behind - entries).min(end.wrapping_sub(position));
                self.record_lost([lost, 0], writer);
                self.sq_seen = position.wrapping_add(lost);
                continue;
            }
            let is_wide = self.has(setup::SQE_MIXED)
                && entry.is_some_and(|entry| matches!(Opcode::from_u8(entry.opcode), Some(Opcode::Nop128 | Opcode::UringCmd128)));
            let width = if is_wide { 2.min(end.wrapping_sub(position)) } else { 1 };
            self.sq_seen = position.wrapping_add(width);
            if let Some(entry) = entry {
                self.announce_one(position, entry, tid, writer);
            }
        }
        if let Some(last) = self.announced.back_mut() {
            last.is_last = true;
        }
        Some(())
    }

    fn announce_one(&mut self, position: u32, entry: Sqe, tid: u32, writer: TraceWriter<'_>) {
        let mut record = self.record(RecordKind::Submission, tid);
        record.payload[..8].copy_from_slice(&entry.to_words());
        let [mut file, second] = Opcode::from_u8(entry.opcode).map_or([-1; 2], |opcode| files_of(opcode, &entry));
        if entry.flags & sqe::FIXED_FILE != 0 && file >= 0 {
            file = self.registered_number(file.cast_unsigned());
            record_names(writer, record, [-1, second]);
        } else {
            record_names(writer, record, [file, second]);
        }
        record.payload[8] = u64::from(file.cast_unsigned());
        let mut records = Vec::from([record]);
        record_arguments(writer.policy(), record, &entry, &mut |record| records.push(*record));
        let filled = filled(&entry).map(|filled| Box::new(FirstIovecs::of(filled)));
        self.announced.push_back(AnnouncedSqe { position, sqe: entry, tid, is_last: false, filled, records });
        self.note_slots(&entry);
        self.note_update(&entry, writer);
    }

    /// What stands before this position has become requests.
    fn submit_before(&mut self, head: u32, writer: TraceWriter<'_>) {
        let is_before = |announced: &AnnouncedSqe| head.wrapping_sub(announced.position).cast_signed() > 0;
        while self.announced.front().is_some_and(is_before) {
            if self.entering == 0 && self.announced.get(1).is_some_and(|next| !is_before(next)) {
                // The kernel has stopped behind it.
                self.announced[0].is_last = true;
            }
            self.submit_first(writer);
        }
    }

    fn submit_first(&mut self, writer: TraceWriter<'_>) -> Option<()> {
        let announced = self.announced.pop_front()?;
        // 0 is no request's.
        self.requests = self.requests.checked_add(1).unwrap_or(1);
        for mut record in announced.records {
            record.request = self.requests;
            if record.kind == RecordKind::Submission as u8 && announced.is_last {
                record.detail = TraceRecord::LAST;
            }
            writer.record(&record);
        }
        self.note_slots(&announced.sqe);
        let request = awaited_request(&announced.sqe, self.requests, announced.tid, announced.filled);
        if let Some((user_data, ended)) = self.pending.insert(announced.sqe.user_data, request) {
            let mut record = self.record(RecordKind::Completion, ended.tid);
            (record.request, record.detail) = (ended.number, record.detail | TraceRecord::NO_CQE | TraceRecord::UNSEEN);
            (record.payload[0], record.payload[2]) = (user_data, ended.opcode.into());
            writer.record(&record);
        }
        Some(())
    }

    /// Records a CQE. False: its request is not seen yet.
    fn complete(&mut self, entry: &Cqe, writer: TraceWriter<'_>) -> bool {
        let found = self.pending.take(entry);
        if found.is_none() && !self.announced.is_empty() {
            return false;
        }
        let mut record = self.record(RecordKind::Completion, found.as_ref().map_or(self.maker, |found| found.request.tid));
        record.payload[0] = entry.user_data;
        record.payload[1] = u64::from(entry.res.cast_unsigned()) | u64::from(entry.flags) << 32;
        for (is_so, bit) in [
            (entry.flags & cqe::MORE != 0, TraceRecord::MORE),
            (entry.flags & cqe::NOTIF != 0, TraceRecord::NOTIFICATION),
            (found.is_none(), TraceRecord::NO_REQUEST),
            (found.as_ref().is_some_and(|found| !found.is_certain), TraceRecord::UNCERTAIN),
        ] {
            record.detail |= if is_so { bit } else { 0 };
        }
        if let Some(found) = found {
            let request = found.request;
            (record.request, record.payload[2]) = (request.number, request.opcode.into());
            if request.allocates_slot && entry.res >= 0 {
                self.forget_slot(entry.res.cast_unsigned());
            }
            if let Some(iovecs) = &request.filled {
                record_filled(writer, record, iovecs, entry.res);
            }
        }
        writer.record(&record);
        true
    }

    fn record(&self, kind: RecordKind, tid: u32) -> TraceRecord {
        let detail = if kind == RecordKind::Completion { TraceRecord::OF_KERNEL } else { 0 };
        TraceRecord { kind: kind as u8, detail, ring: self.index, ticks: ticks(), pid: process::pid(), tid, ..TraceRecord::default() }
    }

    fn record_lost(&self, [sqes, cqes]: [u32; 2], writer: TraceWriter<'_>) {
        let mut record = self.record(RecordKind::Lost, self.maker);
        record.payload[..2].copy_from_slice(&[sqes.into(), cqes.into()]);
        writer.record(&record);
    }

    /// The number by which the tracer knows a registered file; -1: it does not.
    fn registered_number(&self, slot: u32) -> i32 {
        let is_named = self.named_slots.get(slot as usize) == Some(&true) && self.index < NAMED_RINGS;
        if is_named { (REGISTERED | (self.index * SLOTS) | slot).cast_signed() } else { -1 }
    }

    /// These files were registered from a slot on; -1 empties one, -2 leaves it.
    pub(super) fn register_files(&mut self, first: u32, numbers: impl Iterator<Item = i32>, writer: TraceWriter<'_>) {
        for (slot, number) in (first..SLOTS).zip(numbers).filter(|&(_, number)| number != uringlet_abi::register::FILES_SKIP) {
            let at = slot as usize;
            self.named_slots.resize(self.named_slots.len().max(at + 1), false);
            self.named_slots[at] = number >= 0;
            let known_as = self.registered_number(slot);
            if known_as >= 0 {
                record_file(self.record(RecordKind::File, self.maker), number, known_as, &mut |record| writer.record(record));
            }
        }
    }

    /// All registered files are gone.
    pub(super) fn unregister_files(&mut self) {
        self.named_slots.clear();
    }

    fn forget_slot(&mut self, slot: u32) {
        if let Some(is_named) = self.named_slots.get_mut(slot as usize) {
            *is_named = false;
        }
    }

    /// A request that replaces registered files: later SQEs of the same call mean the new ones.
    fn note_update(&mut self, entry: &Sqe, writer: TraceWriter<'_>) {
        let Ok(first) = u32::try_from(entry.off) else { return };
        let slots = self.named_slots.len().saturating_sub(first as usize);
        if entry.opcode != Opcode::FilesUpdate as u8 || entry.len as usize > slots {
            return;
        }
        let mut numbers = alloc::vec![0_i32; entry.len as usize];
        if user::read_slice(&mut numbers, UserPtr::at(entry.addr)).is_ok() {
            self.register_files(first, numbers.into_iter(), writer);
        }
    }

    /// A request that installs or closes a registered file in a slot that it names, or closes a
    /// descriptor.
    fn note_slots(&mut self, entry: &Sqe) {
        if installs(entry) && entry.file_index() != FILE_INDEX_ALLOC {
            self.forget_slot(entry.file_index() - 1);
        } else if entry.opcode == Opcode::Close as u8 {
            fd_table::forget_name(entry.fd);
        }
    }
}

/// Whether a slot of the registered files changes.
fn installs(entry: &Sqe) -> bool {
    let opcodes = [Opcode::Openat, Opcode::Openat2, Opcode::Accept, Opcode::Socket, Opcode::Pipe, Opcode::Close];
    entry.file_index() != 0 && opcodes.iter().any(|&opcode| opcode as u8 == entry.opcode)
}

fn awaited_request(entry: &Sqe, number: u32, tid: u32, filled: Option<Box<FirstIovecs>>) -> AwaitedRequest {
    AwaitedRequest {
        number,
        tid,
        opcode: entry.opcode,
        skips_success: entry.flags & sqe::CQE_SKIP_SUCCESS != 0,
        allocates_slot: installs(entry) && entry.file_index() == FILE_INDEX_ALLOC,
        filled,
    }
}

/// Where the bytes are that a request reads or receives, if the SQE says it.
fn filled(entry: &Sqe) -> Option<FilledBytes> {
    let at = UserPtr::at(entry.addr);
    let bundles = op_flags::RECVSEND_BUNDLE | op_flags::SEND_VECTORIZED;
    let filled = match Opcode::from_u8(entry.opcode)? {
        Opcode::Read | Opcode::ReadFixed => FilledBytes::Buffer(at),
        Opcode::Recv if entry.ioprio & bundles == 0 => FilledBytes::Buffer(at),
        Opcode::Readv | Opcode::ReadvFixed => FilledBytes::Vector(at, entry.len as usize),
        Opcode::Recvmsg => FilledBytes::Message(at),
        _ => return None,
    };
    (entry.flags & sqe::BUFFER_SELECT == 0).then_some(filled)
}
