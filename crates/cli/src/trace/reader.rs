//! Takes records out of the buffer as long as there is something to trace.

use std::time::{Duration, Instant};

use uringlet_sys::trace::TraceBuffer;
use uringlet_trace::Assembler;

use super::processes::is_alive;
use super::sink::{EventSink, SinkError};

/// Records after which waiting writers are let go on.
const BATCH: u32 = 512;
/// Between two looks at an empty buffer: a writer that finds it full ends this sleep.
const NAP: Duration = Duration::from_millis(2);
/// Between two looks at which processes are left.
const PROCESS_CHECK: Duration = Duration::from_millis(50);
/// A record that has been unfinished for so long, of a process that runs, is given up: its thread
/// was ended by an execve(2) of another one.
const UNFINISHED_MAX: Duration = Duration::from_secs(2);

/// Whether there is more to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceState {
    Running,
    /// Only from processes that have recorded something.
    Ending,
    /// Nothing is awaited.
    Stopped,
}

/// See the module.
#[derive(Debug)]
pub(super) struct TraceReader<'b> {
    buffer: &'b TraceBuffer,
    head: u64,
    assembler: Assembler,
    /// Since when the next record is unfinished.
    unfinished_since: Option<Instant>,
    processes_checked: Instant,
}

impl<'b> TraceReader<'b> {
    pub(super) fn new(buffer: &'b TraceBuffer) -> Self {
        Self { buffer, head: 0, assembler: Assembler::default(), unfinished_since: None, processes_checked: Instant::now() }
    }

    pub(super) fn drops(&self) -> u64 {
        self.buffer.drops()
    }

    /// Reads as long as there is more to come.
    pub(super) fn read(&mut self, sink: &mut impl EventSink, mut state: impl FnMut() -> TraceState) -> Result<(), SinkError> {
        loop {
            let state = state();
            sink.anchor();
            let taken = self.drain(sink)?;
            sink.flush()?;
            if taken == 0 {
                self.skip_dead();
                self.check_processes(sink)?;
                let is_over = state == TraceState::Ending && self.assembler.processes().next().is_none();
                if is_over || state == TraceState::Stopped {
                    let mut result = Ok(());
                    self.assembler.finish(None, "the trace has ended", |event| result = sink.take(&event));
                    return result;
                }
                self.buffer.sleep(u64::try_from(NAP.as_nanos()).unwrap_or(u64::MAX));
            }
        }
    }

    /// Takes what is there. Returns how much that was.
    fn drain(&mut self, sink: &mut impl EventSink) -> Result<u32, SinkError> {
        let (mut taken, mut result) = (0, Ok(()));
        while taken < 64 * BATCH
            && let Some(record) = self.buffer.pop(&mut self.head)
        {
            taken += 1;
            self.assembler.take(&record, |event| {
                if result.is_ok() {
                    result = sink.take(&event);
                }
            });
            if taken % BATCH == 0 {
                self.buffer.announce_room();
            }
        }
        if taken > 0 {
            self.unfinished_since = None;
            self.buffer.announce_room();
        }
        result.map(|()| taken)
    }

    /// A process that was killed in the middle of a record must not keep those behind it.
    fn skip_dead(&mut self) {
        let Some(pid) = self.buffer.unfinished(self.head) else { return };
        let since = *self.unfinished_since.get_or_insert_with(Instant::now);
        if !is_alive(pid) || since.elapsed() > UNFINISHED_MAX {
            self.buffer.bury(self.head);
            self.unfinished_since = None;
        }
    }

    fn check_processes(&mut self, sink: &mut impl EventSink) -> Result<(), SinkError> {
        if self.processes_checked.elapsed() < PROCESS_CHECK {
            return Ok(());
        }
        self.processes_checked = Instant::now();
        let ended: Vec<u32> = self.assembler.processes().filter(|&pid| !is_alive(pid)).collect();
        if ended.is_empty() {
            return Ok(());
        }
        // What they have recorded before they ended.
        self.drain(sink)?;
        let mut result = Ok(());
        for pid in ended {
            self.assembler.forget(pid, |event| {
                if result.is_ok() {
                    result = sink.take(&event);
                }
            });
        }
        result
    }
}
