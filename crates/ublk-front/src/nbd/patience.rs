//! How long to look for input before sleeping: as long as it lately took to come, and not at all where it takes its time.
//!
//! A client with one request at a time sends the next one when it has the reply. To sleep meanwhile costs a wake-up by another CPU, 10 to 20 µs in a
//! virtual machine: more than the whole request. So who waits looks again and again, for [`MOST`] at most, and learns from how long it took.

use std::time::Duration;
use uringlet_sys::process;

/// What a wake-up may cost, about: to look for longer than that saves nothing.
const MOST: Duration = Duration::from_micros(32);
const LEAST: Duration = Duration::from_micros(4);

#[derive(Debug)]
pub(super) struct Patience {
    window: Duration,
    /// On one CPU nobody can send while this thread looks.
    is_possible: bool,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { window: Duration::ZERO, is_possible: process::cpu_count() > 1 }
    }

    /// How long to look.
    pub(super) fn window(&self) -> Duration {
        self.window
    }

    /// Input came after so long.
    pub(super) fn learn(&mut self, waited: Duration) {
        if !self.is_possible || waited > MOST * 2 {
            self.window = Duration::ZERO;
        } else if waited > self.window {
            // A sleep is longer than what was waited for: by the wake-up itself.
            self.window = (self.window * 2).clamp(LEAST, MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_to_what_is_waited_for_and_shuts() {
        let mut patience = Patience { window: Duration::ZERO, is_possible: true };
        let us = Duration::from_micros;
        let mut learn = |waited| {
            patience.learn(us(waited));
            patience.window()
        };
        assert_eq!([learn(25), learn(25), learn(25), learn(25), learn(25)], [us(4), us(8), us(16), us(32), us(32)]);
        assert_eq!([learn(3), learn(60), learn(65)], [us(32), us(32), us(0)]);
        assert_eq!([learn(1_000_000), learn(2)], [us(0), us(4)]);
        let mut alone = Patience { window: Duration::ZERO, is_possible: false };
        alone.learn(us(1));
        assert_eq!(alone.window(), us(0));
    }
}
