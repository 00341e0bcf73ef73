//! How a benchmark ended.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BenchOutcome {
    Complete,
    /// By Ctrl-C. What was measured until then is printed.
    Interrupted,
}

impl BenchOutcome {
    /// The note for a report of incomplete results.
    pub(super) fn note(self) -> Option<String> {
        const NOTE: &str = "interrupted: some numbers come from fewer rounds, some are missing";
        (self == Self::Interrupted).then(|| NOTE.to_owned())
    }
}
