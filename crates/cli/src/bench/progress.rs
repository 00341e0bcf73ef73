//! What is being measured, how far it is, and how long it will take: on standard error, one line that is written over; in a log, a line now and then.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

/// Lines in a log are this far apart at least.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// How far a run is. Steps differ in length, so that what is done and what is left are counted in expected time.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    done: Duration,
    total: Duration,
    is_terminal: bool,
    last_line: Option<Instant>,
}

impl Progress {
    /// `total`: what all steps are expected to take.
    pub(super) fn new(total: Duration) -> Self {
        Self { begun: Instant::now(), done: Duration::ZERO, total, is_terminal: stderr().is_terminal(), last_line: None }
    }

    /// A step begins.
    pub(super) fn show(&mut self, what: &str) {
        let percent = (self.done.as_secs_f64() / self.total.as_secs_f64().max(1e-9) * 100.0).min(99.0);
        let left = left(self.begun.elapsed(), self.done, self.total);
        let line = format!("{percent:2.0}%, {} left: {what}", clock(left));
        if self.is_terminal {
            // A line that wraps could not be written over.
            let width = tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
            let width = if width == 0 { 80 } else { width };
            let _ = write!(stderr(), "\r\x1b[K{}", cut(&line, width - 1));
        } else if self.last_line.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            let _ = writeln!(stderr(), "{line}");
            self.last_line = Some(Instant::now());
        }
    }

    /// It is over.
    pub(super) fn add(&mut self, expected: Duration) {
        self.done += expected;
    }

    /// Leaves an empty line for what comes next.
    pub(super) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// What is left, at the speed so far; as expected, while nothing is done.
fn left(elapsed: Duration, done: Duration, total: Duration) -> Duration {
    let left = total.saturating_sub(done);
    if done.is_zero() { left } else { left.mul_f64(elapsed.as_secs_f64() / done.as_secs_f64()) }
}

/// The first so many characters.
fn cut(line: &str, width: usize) -> &str {
    line.char_indices().nth(width).map_or(line, |(at, _)| &line[..at])
}

/// `2:05` minutes, `45 s`.
pub(super) fn clock(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 60.. => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_rest_is_reckoned_from_what_is_done() {
        assert_eq!(left(Duration::ZERO, Duration::ZERO, 10 * SECOND), 10 * SECOND);
        assert_eq!(left(4 * SECOND, 2 * SECOND, 10 * SECOND), 16 * SECOND);
        assert_eq!(left(4 * SECOND, 12 * SECOND, 10 * SECOND), Duration::ZERO);
    }

    #[test]
    fn lines_are_cut_between_characters() {
        assert_eq!([cut("aäb", 2), cut("aäb", 3), cut("aäb", 0)], ["aä", "aäb", ""]);
    }

    #[test]
    fn times_are_short() {
        assert_eq!([clock(SECOND), clock(125 * SECOND)], ["1 s", "2:05 min"]);
    }
}
