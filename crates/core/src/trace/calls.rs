//! Calls of the program for a tracer: io_uring_setup(2), and the others if it asks for them.

use uringlet_abi::UringParams;
use uringlet_sys::clock::ticks;
use uringlet_sys::process::{pid, tid};
use uringlet_sys::trace::{RecordKind, TRACES_CALLS, TraceRecord, with_buffer};

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

/// io_uring_enter(2) has ended.
#[cold]
pub(crate) fn entered(fd: u32, to_submit: u32, min_complete: u32, flags: u32, since: u64, result: isize) {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let record = call(RecordKind::Enter, 0, &[pair(fd, to_submit), pair(min_complete, flags), result as u64, since]);
    with_buffer(|writer| writer.record(&record));
}

/// io_uring_register(2) has ended.
#[cold]
pub(crate) fn registered(fd: u32, opcode: u32, arg: usize, nr_args: u32, result: isize) {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    if is_wanted() {
        let record = call(RecordKind::Register, 0, &[pair(fd, opcode), arg as u64, u64::from(nr_args), result as u64]);
        with_buffer(|writer| writer.record(&record));
    }
}
