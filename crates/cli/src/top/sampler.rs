//! The requests of one process, counted second by second by a thread.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use uringlet_trace::summary::TraceSummary;

use crate::trace::sample;

const SECOND: Duration = Duration::from_secs(1);

/// What a sample has said, or why there is none.
pub(super) type TopSample = Result<TraceSummary, String>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    pid: Option<i32>,
    running: Option<Receiver<TopSample>>,
}

impl Sampler {
    /// Counts requests of this process from now on.
    pub(super) fn follow(&mut self, pid: Option<i32>) {
        if self.pid != pid {
            // A sample that runs ends by itself, unread.
            (self.pid, self.running) = (pid, None);
        }
        if let (Some(pid), None) = (pid, &self.running) {
            let (sender, receiver) = mpsc::channel();
            self.running = Some(receiver);
            std::thread::spawn(move || sender.send(sample(&[pid], SECOND).map(|(summary, _)| summary)));
        }
    }

    /// The sample that has ended since the last call.
    pub(super) fn take(&mut self) -> Option<(i32, TopSample)> {
        let sample = self.running.as_ref()?.try_recv().ok()?;
        self.running = None;
        self.pid.map(|pid| (pid, sample))
    }
}
