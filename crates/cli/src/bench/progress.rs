//! Progress on standard error: a line that is redrawn on a terminal, otherwise an occasional line.

use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Minimum interval between lines that are not redrawn.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of a run. Steps differ in length, so it is counted in expected milliseconds.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    total: Duration,
    last_line: Option<Instant>,
}

impl Progress {
    /// `total`: the expected duration of all steps.
    pub(super) fn new(total: Duration) -> Self {
        // Hides itself if standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(millis(total)), ProgressDrawTarget::stderr());
        let left = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let left = if state.pos() == 0 { total } else { state.eta() };
            let _ = write!(out, "{:#}", HumanDuration(left));
        };
        if let Ok(style) = ProgressStyle::with_template("{percent:>2}%, {left} left: {wide_msg}") {
            bar.set_style(style.with_key("left", left));
        }
        Self { bar, total, last_line: None }
    }

    /// Shows the step that starts.
    pub(super) fn show(&mut self, step: &str) {
        self.bar.set_message(step.to_owned());
        self.bar.tick();
        let is_due = self.last_line.is_none_or(|at| at.elapsed() >= LOG_INTERVAL);
        if self.bar.is_hidden() && is_due {
            let done = self.bar.position();
            let left = if done == 0 { self.total } else { self.bar.eta() };
            eprintln!("{:2}%, {:#} left: {step}", done * 100 / millis(self.total).max(1), HumanDuration(left));
            self.last_line = Some(Instant::now());
        }
    }

    /// Ends a step of this expected duration.
    pub(super) fn add(&mut self, expected: Duration) {
        self.bar.inc(millis(expected));
    }

    /// Removes the line from the terminal.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_by_their_expected_duration() {
        let mut progress = Progress::new(Duration::from_secs(10));
        progress.show("a step");
        progress.add(Duration::from_secs(4));
        assert_eq!((progress.bar.position(), progress.bar.length()), (4000, Some(10_000)));
        progress.clear();
        assert!(progress.bar.is_finished());
    }
}
