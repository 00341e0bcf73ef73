//! Calls of the program for a tracer: io_uring_setup(2), and the others if it asks for them.

use uringlet_abi::UringParams;
use uringlet_sys::clock::ticks;
use uringlet_sys::fault_plan::Fault;
use uringlet_sys::process::{pid, tid};
use uringlet_sys::trace::{FaultedCall, RecordKind, TRACES_CALLS, TraceRecord, road, with_buffer};

fn call(kind: RecordKind, ring: u32, payload: &[u64]) -> TraceRecord {
    let mut record = TraceRecord { kind: kind as u8, ring, ticks: ticks(), pid: pid(), tid: tid(), ..TraceRecord::default() };
    record.payload[..payload.len()].copy_from_slice(payload);
    record
}

/// A ring of this index was made. Always told: its index may have been another ring's.
#[cold]
pub(crate) fn ring_made(ring: u32, params: &UringParams, fd: i32) {
    let sizes = u64::from(params.sq_entries) | u64::from(params.cq_entries) << 32;
    let record = call(RecordKind::Setup, ring, &[sizes, u64::from(params.flags), u64::from(fd.cast_unsigned())]);
    with_buffer(|writer| writer.record(&record));
}

fn is_wanted() -> bool {
    with_buffer(|writer| writer.policy().flags & TRACES_CALLS != 0) == Some(true)
}

/// io_uring_enter(2) begins. Returns when, for [`entered`]; 0: the tracer does not ask for it.
#[cold]
pub(crate) fn entering() -> u64 {
    if is_wanted() { ticks() } else { 0 }
}

/// A call of io_uring_enter(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnterCall {
    pub(crate) fd: u32,
    pub(crate) to_submit: u32,
    pub(crate) min_complete: u32,
    pub(crate) flags: u32,
    /// Of [`entering`].
    pub(crate) since: u64,
    /// Something was done to it on purpose.
    pub(crate) is_injected: bool,
}

/// A call of io_uring_register(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterCall {
    pub(crate) fd: u32,
    pub(crate) opcode: u32,
    pub(crate) arg: usize,
    pub(crate) nr_args: u32,
    /// It was not executed on purpose.
    pub(crate) is_injected: bool,
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn marked(mut record: TraceRecord, is_injected: bool) -> TraceRecord {
    record.road = if is_injected { road::INJECTED } else { 0 };
    record
}

/// io_uring_setup(2) has failed on purpose.
#[cold]
pub(crate) fn ring_refused(entries: u32, result: isize) {
    let record = call(RecordKind::Setup, u32::MAX, &[entries.into(), 0, u64::from(i32::try_from(result).unwrap_or(-1).cast_unsigned())]);
    let record = marked(record, true);
    with_buffer(|writer| writer.record(&record));
}

/// io_uring_enter(2) has ended.
#[cold]
pub(crate) fn entered(args: EnterCall, result: isize) {
    let EnterCall { fd, to_submit, min_complete, flags, since, is_injected } = args;
    let record = call(RecordKind::Enter, 0, &[pair(fd, to_submit), pair(min_complete, flags), result as u64, since]);
    let record = marked(record, is_injected);
    with_buffer(|writer| writer.record(&record));
}

/// io_uring_register(2) has ended.
#[cold]
pub(crate) fn registered(args: RegisterCall, result: isize) {
    let RegisterCall { fd, opcode, arg, nr_args, is_injected } = args;
    if is_wanted() {
        let record = call(RecordKind::Register, 0, &[pair(fd, opcode), arg as u64, nr_args.into(), result as u64]);
        let record = marked(record, is_injected);
        with_buffer(|writer| writer.record(&record));
    }
}

/// Something was done to a call on purpose.
#[cold]
pub(crate) fn faulted_call(name: FaultedCall, fault: Fault) {
    let record = call(RecordKind::Fault, fault.id.ring, &super::fault_words(fault, name as u64, 0));
    with_buffer(|writer| writer.record(&record));
}
