//! The clocks of timers. All run on `CLOCK_MONOTONIC`. An absolute deadline on another clock is
//! converted when it is armed, and again when that clock has stepped: the ring's epoll set has an
//! event for it (`timeout::follow_clocks`).

use crate::ops::timeout::TimeoutSpec;
use crate::state::UringGuard;

/// The deadline of a timer that is armed now. Where steps of the clock are not told, it stays.
pub(super) fn deadline(guard: &mut UringGuard, when: TimeoutSpec) -> u64 {
    if when.follows_clock() {
        let _ = guard.res.poller().and_then(|poller| poller.watch_clock());
    }
    when.deadline_ns()
}
