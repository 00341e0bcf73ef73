//! Corners of what exists, as C programs see them: on the engine and on the kernel's ring.

mod common;

common::oracle::compare! {
    /// Multishot reads by workers, setup flags that need others, sockets that are shut down, memory
    /// that is not registered, polls that share a file, buffers of cancelled requests, lengths of
    /// sends, link timers of no length, rings that poll rings, time-outs that are over,
    /// transfers of no bytes, signal masks of two waiters.
    corners,
}

/// The wall clock is the machine's: it is set forward and back within milliseconds.
mod corners_clock {
    #[test]
    #[ignore = "sets the machine's clock; run with --ignored"]
    fn engine() {
        crate::common::oracle::engine("corners_clock", &[]);
    }

    #[test]
    #[ignore = "sets the machine's clock; run with --ignored"]
    fn kernel() {
        crate::common::oracle::kernel("corners_clock", &[]);
    }
}
