//! What a tracer is told of requests (`uringlet trace`): their SQEs and what these point to, the
//! names of their files, their results and the way they went.
//!
//! Called under the ring's lock. Without a tracer each call costs a relaxed load
//! (`uringlet_sys::trace::is_on`).

mod arguments;
mod calls;
mod data;
mod socket_name;
mod tag;

#[cfg(not(loom))]
pub(crate) use arguments::files as files_of;
pub(crate) use calls::{EnterCall, RegisterCall, entered, entering, faulted_call, registered, ring_made, ring_refused};
pub(crate) use data::{FirstIovecs, record_file};
pub(crate) use tag::TraceTag;
pub(crate) use uringlet_sys::clock::ticks;
pub(crate) use uringlet_sys::trace::is_on;

use crate::ops::{FilledBytes, Outcome};
use crate::ring_resources::RingResources;
use data::record_data;
use uringlet_abi::{Opcode, Sqe, cqe, sqe};
use uringlet_sys::fault_plan::Fault;
use uringlet_sys::trace::{RecordKind, TracePolicy, TraceRecord, TraceWriter, argument, road, with_buffer};
use uringlet_sys::{UserPtr, io, process, user};

/// A record about a request of this ring, at this moment.
fn record_of(res: &RingResources, kind: RecordKind, request: u32) -> TraceRecord {
    TraceRecord {
        kind: kind as u8,
        ring: res.ring_index,
        ticks: ticks(),
        pid: process::pid(),
        tid: res.lock_owner.tid(),
        request,
        ..TraceRecord::default()
    }
}

/// An SQE has become a request; `since`: ticks when it was consumed. Returns what the request is to
/// keep.
#[cold]
#[inline(never)]
pub(crate) fn submitted(res: &mut RingResources, entry: &Sqe, is_last: bool, since: u64) -> TraceTag {
    let (tag, mut record, files) = record_of_sqe(res, RecordKind::Submission, entry, is_last);
    record.ticks = since;
    let is_traced = with_buffer(|writer| {
        record_names(writer, record, files);
        writer.record(&record);
        record_arguments(writer.policy(), record, entry, &mut |record| writer.record(record));
    });
    is_traced.map_or(TraceTag::NONE, |()| tag)
}

/// An SQE was executed without a request being built.
#[cold]
#[inline(never)]
pub(crate) fn executed(res: &mut RingResources, entry: &Sqe, is_last: bool, since: u64, outcome: Outcome) {
    let (_, mut record, files) = record_of_sqe(res, RecordKind::Executed, entry, is_last);
    record.road = road::FAST_PATH;
    record.payload[9] = result_word(outcome);
    record.payload[10] = since;
    with_buffer(|writer| {
        record_names(writer, record, files);
        record_arguments(writer.policy(), record, entry, &mut |record| writer.record(record));
        let at = UserPtr::at(entry.addr);
        let filled = match Opcode::from_u8(entry.opcode) {
            Some(Opcode::Read) => Some(FilledBytes::Buffer(at)),
            Some(Opcode::Readv) => Some(FilledBytes::Vector(at, entry.len as usize)),
            _ => None,
        };
        if let Some(filled) = filled {
            record_filled(writer, record, &FirstIovecs::of(filled), outcome.res);
        }
        writer.record(&record);
    });
}

/// The next request's tag, its record, and the descriptor numbers that it uses.
fn record_of_sqe(res: &mut RingResources, kind: RecordKind, entry: &Sqe, is_last: bool) -> (TraceTag, TraceRecord, [i32; 2]) {
    let tag = TraceTag::numbered(res.traced.wrapping_add(1));
    res.traced = tag.number();
    let mut record = record_of(res, kind, tag.number());
    record.detail = if is_last { TraceRecord::LAST } else { 0 };
    record.payload[..8].copy_from_slice(&entry.to_words());
    let [file, second] = file_numbers(res, entry);
    record.payload[8] = u64::from(file.cast_unsigned());
    (tag, record, [file, second])
}

/// The descriptor numbers that an SQE uses, those of registered files too. -1: none.
fn file_numbers(res: &RingResources, entry: &Sqe) -> [i32; 2] {
    let [mut file, second] = Opcode::from_u8(entry.opcode).map_or([-1; 2], |opcode| arguments::files(opcode, entry));
    if entry.flags & sqe::FIXED_FILE != 0 && file >= 0 {
        file = registered_number(res, file);
    }
    [file, second]
}

/// The number of the file that an SQE is about. -1: none.
pub(crate) fn file_number(res: &RingResources, entry: &Sqe) -> i32 {
    file_numbers(res, entry)[0]
}

/// Whether `is_meant` is true of a path that an SQE names, or of that of one of its files.
#[cold]
pub(crate) fn has_path(res: &RingResources, entry: &Sqe, is_meant: impl Fn(&[u8]) -> bool) -> bool {
    let mut bytes = alloc::vec![0; data::PATH];
    for number in file_numbers(res, entry).into_iter().filter(|&number| number >= 0) {
        let len = io::path_of(number, &mut bytes).unwrap_or(0);
        if is_meant(&bytes[..len]) {
            return true;
        }
    }
    let mut is_named = false;
    if let Some(opcode) = Opcode::from_u8(entry.opcode) {
        arguments::of(opcode, entry, 0, |place| {
            if place.is_text
                && let Ok(len) = user::read_cstr(&mut bytes, place.at)
            {
                is_named |= is_meant(&bytes[..len.saturating_sub(1)]);
            }
            true
        });
    }
    is_named
}

/// What a record says of a fault. `subject`: an opcode or a call.
fn fault_words(fault: Fault, subject: u64, user_data: u64) -> [u64; 7] {
    let [first, second, third, fourth] = fault.actions.to_words();
    [u64::from(fault.id.number), subject, user_data, first, second, third, fourth]
}

/// Something is done to a request on purpose.
#[cold]
pub(crate) fn faulted(res: &RingResources, tag: TraceTag, entry: &Sqe, fault: Fault) {
    let mut record = record_of(res, RecordKind::Fault, tag.number());
    record.payload[..7].copy_from_slice(&fault_words(fault, entry.opcode.into(), entry.user_data));
    with_buffer(|writer| writer.record(&record));
}

/// Records the names of files that the tracer does not have.
pub(crate) fn record_names(writer: TraceWriter<'_>, record: TraceRecord, files: [i32; 2]) {
    for number in files.into_iter().filter(|&number| number >= 0 && !writer.is_named(number)) {
        record_file(record, number, number, &mut |record| writer.record(record));
    }
}

/// Passes what the SQE points to, to `sink`.
pub(crate) fn record_arguments(policy: TracePolicy, record: TraceRecord, entry: &Sqe, sink: &mut dyn FnMut(&TraceRecord)) {
    if let Some(opcode) = Opcode::from_u8(entry.opcode) {
        arguments::of(opcode, entry, policy.string_limit as usize, |place| record_data(record, place, sink));
    }
}

/// Records the beginning of what was read.
pub(crate) fn record_filled(writer: TraceWriter<'_>, record: TraceRecord, iovecs: &FirstIovecs, res: i32) {
    let limit = writer.policy().string_limit as usize;
    let total = usize::try_from(res).unwrap_or(0);
    if total > 0 && limit > 0 {
        let data = TraceRecord { kind: RecordKind::Data as u8, ..record };
        iovecs.places(argument::RESULT, limit, total, |place| record_data(data, place, &mut |record| writer.record(record)));
    }
}

fn result_word(outcome: Outcome) -> u64 {
    u64::from(outcome.res.cast_unsigned()) | u64::from(outcome.flags) << 32
}

/// The engine's number of a registered file; -1: there is none.
fn registered_number(res: &RingResources, index: i32) -> i32 {
    res.files.get(index.cast_unsigned()).map_or(-1, |node| node.fd.number())
}

/// What a completion is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracedOutcome {
    pub(crate) tag: TraceTag,
    pub(crate) opcode: Opcode,
    pub(crate) user_data: u64,
    /// It is not suppressed.
    pub(crate) has_cqe: bool,
}

/// A request has a result; `filled`: where the bytes are that it has read.
#[cold]
#[inline(never)]
pub(crate) fn completed(res: &RingResources, end: TracedOutcome, outcome: Outcome, filled: Option<FilledBytes>) {
    let mut record = record_of(res, RecordKind::Completion, end.tag.number());
    record.road = end.tag.road();
    for (is_so, bit) in [
        (!end.has_cqe, TraceRecord::NO_CQE),
        (outcome.flags & cqe::MORE != 0, TraceRecord::MORE),
        (outcome.flags & cqe::NOTIF != 0, TraceRecord::NOTIFICATION),
    ] {
        record.detail |= if is_so { bit } else { 0 };
    }
    record.payload[0] = end.user_data;
    record.payload[1] = result_word(outcome);
    record.payload[2] = end.opcode as u64;
    with_buffer(|writer| {
        if let Some(filled) = filled {
            record_filled(writer, record, &FirstIovecs::of(filled), outcome.res);
        }
        writer.record(&record);
    });
}
