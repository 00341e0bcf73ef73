//! Which counters there are.

/// Number of blocks of counters.
pub(super) const BLOCKS: usize = 64;
/// Rings with this index or a higher one share a block.
pub const SHARED: u32 = BLOCKS as u32 - 1;

/// Declares the counters: `kind Name "name" "doc"`. The kind tells how to combine several rings'
/// values: `+` counts events (sum), `=` is a current level (sum), `^` is the highest value ever
/// (maximum).
macro_rules! counters {
    ($($kind:literal $name:ident $text:literal $doc:literal;)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $(#[doc = $doc] $name,)*
        }

        /// Name and meaning of each counter, for output.
        pub const COUNTER_DOCS: &[(&str, &str)] = &[$(($text, $doc)),*];

        /// Kind and name of each counter, each with a NUL.
        #[cfg(not(loom))]
        pub(super) const NAMES: &str = concat!($($kind, $text, "\0",)*);
        #[cfg(not(loom))]
        pub(super) const COUNTERS: usize = [$(Counter::$name),*].len();
    };
}

counters! {
    "+" Submitted "submitted" "SQEs consumed.";
    "+" WritesInline "writes_inline" "Buffered writes that the submitting thread executed.";
    "+" WritesNowait "writes_nowait" "Writes that `RWF_NOWAIT` completed whole.";
    "+" WritesWorker "writes_worker" "Buffered writes that went to a worker.";
    "+" SlowInlineWrites "slow_inline_writes" "Inline writes that took longer than the limit.";
    "+" FilesDemoted "files_demoted" "Files whose writes moved to a slower path.";
    "+" FilesPromoted "files_promoted" "Files whose writes moved back to a faster path.";
    "+" ShortWrites "short_writes" "Writes that a worker had to finish.";
    "+" Throttled "throttled" "Writes delayed because too many pages were dirty.";
    "+" ThrottledNs "throttled_ns" "Sum of these delays, ns.";
    "=" ThrottledNow "throttled_now" "Writes delayed at this moment.";
    "^" ThrottledMax "throttled_max" "Most writes delayed at one moment.";
    "+" UringletRunsEmpty "uringlet_runs_empty" "Runs of a uringlet worker that found no work.";
    "+" UringletRunsInline "uringlet_runs_inline" "Runs that completed all requests without blocking.";
    "+" UringletRunsScheduled "uringlet_runs_scheduled" "Runs that blocked and handed the baton over.";
    "+" UringletPunts "uringlet_punts" "Writes punted to io-wq instead of the run queue because their files often block.";
    "+" UringletRunByWaiter "uringlet_run_by_waiter" "Queued requests that a waiting thread of the program executed itself.";
}
