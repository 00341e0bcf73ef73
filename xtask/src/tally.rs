//! Counting what was checked.

use std::fmt;

/// Cases by their end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    /// Failures that nobody has listed: any of them makes the chore fail.
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
    /// Failures that a manifest lists.
    pub(crate) known: u32,
}

impl Tally {
    pub(crate) const PASSED: Self = Self { passed: 1, failed: 0, skipped: 0, known: 0 };
    pub(crate) const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0, known: 0 };

    /// One case that passed or failed.
    pub(crate) fn of(is_good: bool) -> Self {
        if is_good { Self::PASSED } else { Self::FAILED }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.known += other.known;
    }

    pub(crate) fn is_good(self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)?;
        if self.known > 0 {
            write!(f, ", {} known to fail", self.known)?;
        }
        Ok(())
    }
}
