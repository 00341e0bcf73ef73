//! The requests of running processes for a while, counted.

use std::time::{Duration, Instant};

use uringlet_sys::trace::{DROPS_WHEN_FULL, TraceBuffer, TracePolicy};
use uringlet_trace::summary::TraceSummary;
use uringlet_trace::{Event, TickClock};

use super::error::TraceError;
use super::path_of;
use super::reader::{TraceReader, TraceState};
use super::remote::Attached;
use super::sink::{EventSink, SinkError};

/// Records that the buffer holds. What finds no room is not counted: the processes do not wait.
const RECORDS: u32 = 1 << 16;

/// Counts what comes.
struct Counting {
    summary: TraceSummary,
    clock: TickClock,
}

impl EventSink for Counting {
    fn anchor(&mut self) {
        self.clock.anchor();
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        self.summary.add(event, &self.clock);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Counts the requests of these processes that end within the time, or before the processes do.
/// Returns how many records were dropped, too.
pub(crate) fn sample(pids: &[i32], time: Duration) -> Result<(TraceSummary, u64), String> {
    let text = |TraceError(message): TraceError| message;
    let policy = TracePolicy { flags: DROPS_WHEN_FULL, string_limit: 0 };
    let buffer = TraceBuffer::create(RECORDS, policy).map_err(|errno| format!("no memory for a trace: {errno}"))?;
    let _owner = buffer.own();
    let mut attached = Attached::new(pids, &path_of(&buffer)).map_err(text)?;
    let mut counting = Counting { summary: TraceSummary::default(), clock: TickClock::start() };
    let mut reader = TraceReader::new(&buffer);
    let end = Instant::now() + time;
    let state = || if Instant::now() < end { attached.state() } else { TraceState::Stopped };
    let _: Result<(), SinkError> = reader.read(&mut counting, state);
    attached.leave();
    let drops = reader.drops();
    buffer.leave();
    Ok((counting.summary, drops))
}
