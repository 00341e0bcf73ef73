//! Events for ui.perfetto.dev, in the trace-event format: a lane for each ring, where requests are
//! slices from submission to completion, and for each thread; an arrow from the thread that
//! submits to the one that completes.

use serde_json::{Value, json};

use crate::clock::TickClock;
use crate::request::{CallKind, CqeShown, Event, SubmittedRequest};
use crate::{decode, errno, text, value};

/// The beginning of a file.
pub const BEGIN: &str = "[\n";
/// Its end. Without it the file can be opened, too.
pub const END: &str = "{}]\n";

/// Length of the slices that mark a submission and a completion, µs.
const MARK_US: f64 = 0.5;

/// Numbers the arrows and slices.
#[derive(Debug, Default)]
pub struct Perfetto {
    requests: u64,
}

impl Perfetto {
    /// The lines of an event.
    #[must_use]
    pub fn lines(&mut self, event: &Event, clock: &TickClock) -> String {
        let objects = match event {
            Event::Process(start) => {
                vec![json!({ "ph": "M", "name": "process_name", "pid": start.pid, "args": { "name": start.name } })]
            }
            Event::Call(call) => match call.kind {
                CallKind::Enter { since, to_submit, min_complete, result, .. } => vec![json!({
                    "ph": "X", "name": "io_uring_enter", "cat": "call", "pid": call.pid, "tid": call.tid, "ts": micros(clock, since),
                    "dur": clock.ns(call.ticks.wrapping_sub(since)) as f64 / 1e3,
                    "args": { "to_submit": to_submit, "min_complete": min_complete, "result": result },
                })],
                CallKind::Setup { .. } | CallKind::Register { .. } => Vec::new(),
            },
            Event::Completion(submission, shown) if submission.number != 0 => self.request(submission, shown, clock),
            Event::Completion(..) | Event::Unfinished(..) | Event::Posted(_) | Event::Lost(_) => Vec::new(),
        };
        objects.iter().map(|object| format!("{object},\n")).collect()
    }

    fn request(&mut self, submission: &SubmittedRequest, shown: &CqeShown, clock: &TickClock) -> Vec<Value> {
        self.requests += 1;
        let (id, name) = (self.requests, text::name(submission));
        let lane = format!("ring {}", submission.ring);
        let pid = submission.pid;
        let [from, to] = [submission.ticks, shown.ticks].map(|ticks| micros(clock, ticks));
        let mut args = value::object(&decode::arguments(submission, Some(shown)));
        args["res"] = json!(shown.res);
        args["errno"] = json!(errno::of_result(shown.res).map(|(name, _)| name));
        args["road"] = json!(shown.road_name());
        args["injected"] = json!(shown.is_injected());
        args["user_data"] = json!(format!("{:#x}", submission.sqe.user_data));
        let mark = |name: &str, tid: u32, ts: f64| json!({ "ph": "X", "name": name, "cat": "mark", "pid": pid, "tid": tid, "ts": ts, "dur": MARK_US });
        vec![
            json!({ "ph": "b", "name": name, "cat": lane, "id": id, "pid": pid, "tid": submission.tid, "ts": from, "args": args }),
            json!({ "ph": "e", "name": name, "cat": lane, "id": id, "pid": pid, "tid": submission.tid, "ts": to }),
            mark(&format!("submit {name}"), submission.tid, from),
            json!({ "ph": "s", "name": "request", "cat": "request", "id": id, "pid": pid, "tid": submission.tid, "ts": from }),
            mark(&format!("complete {name}"), shown.tid, to),
            json!({ "ph": "f", "bp": "e", "name": "request", "cat": "request", "id": id, "pid": pid, "tid": shown.tid, "ts": to }),
        ]
    }
}

/// Microseconds since the trace began.
fn micros(clock: &TickClock, ticks: u64) -> f64 {
    clock.since_start(ticks) as f64 / 1e3
}
