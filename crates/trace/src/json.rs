//! Events as JSON: an object a line. `docs/trace.md` has the fields.

use serde_json::{Value, json};
use uringlet_abi::cqe;

use crate::clock::TickClock;
use crate::request::{Call, CallKind, CqeShown, Event, PostedCqe, SubmittedRequest};
use crate::{decode, errno, flags, text, value};

/// The line of an event, with its newline.
#[must_use]
pub fn line(event: &Event, clock: &TickClock) -> String {
    let object = match event {
        Event::Process(start) => json!({ "event": "process", "pid": start.pid, "name": start.name }),
        Event::Call(call) => call_object(call, clock),
        Event::Completion(submission, shown) => completion(submission, shown, clock),
        Event::Posted(posted) => posted_object(posted, clock),
        Event::Lost(lost) => {
            json!({ "event": "lost", "pid": lost.pid, "tid": lost.tid, "ring": lost.ring, "sqes": lost.sqes, "cqes": lost.cqes })
        }
        Event::Unfinished(submission, reason) => {
            let mut object = request(submission, None, clock);
            object["event"] = json!("unfinished");
            object["reason"] = json!(reason);
            object
        }
    };
    format!("{object}\n")
}

fn request(submission: &SubmittedRequest, shown: Option<&CqeShown>, clock: &TickClock) -> Value {
    let entry = &submission.sqe;
    json!({
        "event": "request",
        "pid": submission.pid,
        "tid": submission.tid,
        "ring": submission.ring,
        "request": submission.number,
        "time_ns": clock.epoch_ns(submission.ticks),
        "op": text::name(submission),
        "args": value::object(&decode::arguments(submission, shown)),
        "sqe_flags": flags::names(entry.flags, flags::SQE),
        "personality": entry.personality,
        "user_data": entry.user_data,
        "chain": submission.chain.map(|(chain, place)| [chain, place]),
    })
}

fn completion(submission: &SubmittedRequest, shown: &CqeShown, clock: &TickClock) -> Value {
    let mut object = request(submission, Some(shown), clock);
    object["res"] = json!((!shown.is_unseen).then_some(shown.res));
    object["errno"] = json!(errno::of_result(shown.res).map(|(name, _)| name));
    object["cqe_flags"] = json!(cqe_flags(shown.flags));
    object["buffer"] = json!((shown.flags & cqe::BUFFER != 0).then_some(shown.flags >> cqe::BUFFER_SHIFT));
    object["has_cqe"] = json!(!shown.is_skipped);
    object["more"] = json!(shown.has_more);
    object["is_first"] = json!(!shown.is_later);
    object["is_certain"] = json!(!shown.is_uncertain);
    object["latency_ns"] =
        json!((submission.number != 0 && !shown.is_unseen).then(|| clock.ns(shown.ticks.wrapping_sub(submission.ticks))));
    object["completed_by"] = json!(shown.tid);
    object["road"] = json!(shown.road_name());
    object["injected"] = json!(shown.is_injected());
    object
}

fn cqe_flags(bits: u32) -> String {
    flags::names(bits & !(u32::MAX << cqe::BUFFER_SHIFT), flags::CQE)
}

fn posted_object(posted: &PostedCqe, clock: &TickClock) -> Value {
    json!({
        "event": "cqe", "pid": posted.pid, "tid": posted.tid, "ring": posted.ring, "time_ns": clock.epoch_ns(posted.ticks),
        "user_data": posted.user_data, "res": posted.res, "cqe_flags": cqe_flags(posted.flags),
    })
}

fn call_object(call: &Call, clock: &TickClock) -> Value {
    let mut object = match call.kind {
        CallKind::Setup { ring, sq_entries, cq_entries, flags: bits, fd } => json!({
            "call": "io_uring_setup", "ring": ring, "sq_entries": sq_entries, "cq_entries": cq_entries,
            "flags": flags::names(bits, flags::SETUP), "result": fd,
        }),
        CallKind::Enter { fd, to_submit, min_complete, flags: bits, result, since } => json!({
            "call": "io_uring_enter", "fd": fd, "to_submit": to_submit, "min_complete": min_complete,
            "flags": flags::names(bits, flags::ENTER), "result": result, "duration_ns": clock.ns(call.ticks.wrapping_sub(since)),
        }),
        CallKind::Register { fd, opcode, arg, nr_args, result } => json!({
            "call": "io_uring_register", "fd": fd.cast_signed(), "opcode": text::register_name(opcode), "arg": arg,
            "nr_args": nr_args, "result": result,
        }),
    };
    object["event"] = json!("call");
    object["pid"] = json!(call.pid);
    object["tid"] = json!(call.tid);
    object["injected"] = json!(call.is_injected);
    object["time_ns"] = json!(clock.epoch_ns(call.ticks));
    object
}
