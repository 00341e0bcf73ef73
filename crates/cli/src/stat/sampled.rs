//! `--requests`: what requests of the processes end in a while, counted from a trace.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};
use uringlet_trace::summary::TraceSummary;

use super::error::StatError;
use crate::trace::sample;

/// See the module.
#[derive(Debug)]
pub(super) struct Sampled {
    pub(super) time: Duration,
    pub(super) summary: TraceSummary,
    pub(super) drops: u64,
}

impl Sampled {
    pub(super) fn of(pids: &[i32], time: Duration) -> Result<Self, StatError> {
        sample(pids, time).map(|(summary, drops)| Self { time, summary, drops }).map_err(StatError::Trace)
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("\nrequests that have ended in {} s\n{}", self.time.as_secs_f64(), self.summary.tables());
        if self.drops > 0 {
            let _ = writeln!(text, "{} records found no room: their requests are not counted", self.drops);
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let mut object: Value = serde_json::from_str(&self.summary.json()).unwrap_or_default();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("event");
        }
        object["seconds"] = json!(self.time.as_secs_f64());
        object["dropped_records"] = json!(self.drops);
        object
    }
}
