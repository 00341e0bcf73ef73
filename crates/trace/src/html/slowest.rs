//! The requests that took longest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde_json::{Value, json};

use crate::clock::TickClock;
use crate::request::{CqeShown, SubmittedRequest};
use crate::{decode, errno, text};

/// So many are kept.
const KEPT: usize = 200;

/// A request, in the order of latencies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SlowRequest {
    ns: u64,
    ticks: u64,
    pid: u32,
    tid: u32,
    ring: u32,
    what: String,
    result: String,
    road: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SlowestRequests {
    heap: BinaryHeap<Reverse<SlowRequest>>,
}

impl SlowestRequests {
    pub(super) fn add(&mut self, submission: &SubmittedRequest, shown: &CqeShown, ns: u64) {
        if self.heap.len() == KEPT && self.heap.peek().is_some_and(|Reverse(fastest)| ns <= fastest.ns) {
            return;
        }
        let args: Vec<String> = decode::arguments(submission, Some(shown)).iter().map(crate::value::RequestArg::text).collect();
        self.heap.push(Reverse(SlowRequest {
            ns,
            ticks: submission.ticks,
            pid: submission.pid,
            tid: submission.tid,
            ring: submission.ring,
            what: format!("{}({}) user_data={:#x}", text::name(submission), args.join(", "), submission.sqe.user_data),
            result: errno::text(shown.res).trim_start_matches("= ").to_owned(),
            road: shown.road_name(),
        }));
        if self.heap.len() > KEPT {
            self.heap.pop();
        }
    }

    pub(super) fn table(&self, first: u64, clock: &TickClock) -> Value {
        let mut requests: Vec<&SlowRequest> = self.heap.iter().map(|Reverse(request)| request).collect();
        requests.sort_by_key(|request| Reverse(request.ns));
        let row = |request: &SlowRequest| {
            let at = clock.ns(request.ticks.wrapping_sub(first));
            json!([request.ns, at, request.what, request.result, request.road, request.tid.to_string(), request.ring])
        };
        json!({
            "name": "Slowest requests",
            "note": format!("The {KEPT} that took longest. Of a multishot request each CQE counts from its submission."),
            "columns": [["took", "time"], ["at", "time"], ["request", "text"], ["result", "text"], ["road", "word"], ["thread", "word"], ["ring", "count"]],
            "rows": requests.into_iter().map(row).collect::<Vec<_>>(),
        })
    }
}
