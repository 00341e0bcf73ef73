//! Counts of what was checked, and the failures that are printed again at the end.

use std::fmt;

/// Cases by their result.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct TestCounts {
    pub(crate) passed: u32,
    /// Failures that no manifest lists: any of them makes the task fail.
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
    /// Failures that a manifest lists.
    pub(crate) known: u32,
    /// The failures. A task may count more failures than it describes here.
    pub(crate) failures: Vec<Failure>,
    /// Passed cases that did not pass at the first attempt, one line each.
    pub(crate) repeated: Vec<String>,
}

/// One failure, as it is printed at the end of a long output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// A test's name.
    pub(crate) item: String,
    /// How it failed.
    pub(crate) verdict: String,
    /// The last lines of its output.
    pub(crate) output: Vec<String>,
}

/// Lines of an output that are kept.
pub(crate) const TAIL_LINES: usize = 15;
/// Characters of a line that are kept: a program's report may be a single line.
const LINE_CHARS: usize = 200;

impl Failure {
    /// Keeps the end of `output`.
    pub(crate) fn new(item: impl Into<String>, verdict: impl Into<String>, output: &str) -> Self {
        Self { item: item.into(), verdict: verdict.into(), output: tail(output) }
    }
}

/// The last lines that are not blank.
pub(crate) fn tail(output: &str) -> Vec<String> {
    let lines: Vec<_> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    shown.iter().map(|line| line.chars().filter(|c| !c.is_control() || *c == '\t').take(LINE_CHARS).collect()).collect()
}

impl TestCounts {
    pub(crate) const PASSED: Self = Self { passed: 1, failed: 0, skipped: 0, known: 0, failures: Vec::new(), repeated: Vec::new() };

    /// One case that failed.
    pub(crate) fn failure(failure: Failure) -> Self {
        Self { failed: 1, failures: vec![failure], ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.known += other.known;
        self.failures.extend(other.failures);
        self.repeated.extend(other.repeated);
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for TestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)?;
        if self.known > 0 {
            write!(f, ", {} known to fail", self.known)?;
        }
        if !self.repeated.is_empty() {
            write!(f, ", {} passed only when repeated", self.repeated.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_kept() {
        let long: String = (0..100).map(|n| format!("line {n}\n\n")).collect();
        let kept = tail(&long);
        assert_eq!(kept.len(), TAIL_LINES);
        assert_eq!(kept.last().map(String::as_str), Some("line 99"));
        assert_eq!(tail(&"x".repeat(1000))[0].len(), LINE_CHARS);
    }

    #[test]
    fn sums_keep_names() {
        let mut sum = TestCounts::PASSED;
        sum.add(TestCounts::failure(Failure::new("a", "hang", "said\n")));
        assert_eq!((sum.passed, sum.failed, sum.is_good()), (1, 1, false));
        assert_eq!(sum.failures[0].output, ["said"]);
        sum.repeated.push("b: passed at attempt 2".to_owned());
        assert_eq!(sum.to_string(), "1 passed, 1 failed, 0 skipped, 1 passed only when repeated");
    }
}
