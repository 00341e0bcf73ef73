//! Reads the output of `cargo test`: how many tests passed, and names and output of those that
//! failed.

use crate::stream;
use crate::test_counts::{Failure, TestCounts};
use std::collections::BTreeMap;
use std::process::Command;

/// Runs a test command and adds up what its programs count.
pub(crate) fn tally_of(command: Command) -> anyhow::Result<TestCounts> {
    let mut reader = LibtestReader::default();
    let finished = stream::run(command, |line| reader.line(line))?;
    let mut counts = reader.finish();
    if !finished.is_good() && counts.is_good() {
        // The build failed, or the command hung.
        counts.add(TestCounts::failure(finished.failure("cargo test")));
    }
    Ok(counts)
}

/// The part of a test program's report that is being read.
#[derive(Debug, Default, PartialEq, Eq)]
enum ReportPart {
    #[default]
    Running,
    /// Between the two headings `failures:`: a section for the output of each failed test.
    Outputs,
    /// After the second heading: names of failed tests.
    Names,
}

/// Takes lines and turns into counts.
#[derive(Debug, Default)]
pub(crate) struct LibtestReader {
    counts: TestCounts,
    /// The test program that is running, until it has counted.
    program: Option<String>,
    part: ReportPart,
    /// The test whose section is being read.
    section: String,
    outputs: BTreeMap<String, String>,
    /// Output of the running program, and of cargo about it.
    said: String,
}

impl LibtestReader {
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(program) = program_of(line) {
            self.end_program();
            self.program = Some(program);
            return;
        }
        if self.program.is_some() {
            self.said += &format!("{line}\n");
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.counts.passed += number_before(result, " passed");
            self.counts.failed += number_before(result, " failed");
            self.counts.skipped += number_before(result, " ignored");
            self.program = None;
            self.said.clear();
            self.part = ReportPart::Running;
        } else if line == "failures:" {
            self.part = if self.part == ReportPart::Running { ReportPart::Outputs } else { ReportPart::Names };
        } else {
            self.line_of_report(line);
        }
    }

    fn line_of_report(&mut self, line: &str) {
        let heading = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        match (&self.part, heading, line.strip_prefix("    ")) {
            (ReportPart::Outputs, Some(name), _) => self.section = name.to_owned(),
            (ReportPart::Outputs, None, _) => *self.outputs.entry(self.section.clone()).or_default() += &format!("{line}\n"),
            (ReportPart::Names, _, Some(name)) => {
                let output = self.outputs.remove(name).unwrap_or_default();
                let program = self.program.as_deref().unwrap_or("doc tests");
                self.counts.failures.push(Failure::new(format!("{program} {name}"), "FAILED", &without_backtrace(&output)));
            }
            _ => {}
        }
    }

    /// A program without a result line died.
    fn end_program(&mut self) {
        if let Some(program) = self.program.take() {
            self.counts.add(TestCounts::failure(Failure::new(program, "died", &self.said)));
        }
        self.said.clear();
        self.outputs.clear();
        self.part = ReportPart::Running;
    }

    /// The counts, at the end of the output.
    pub(crate) fn finish(mut self) -> TestCounts {
        self.end_program();
        self.counts
    }
}

/// `     Running tests/robust.rs (target/debug/deps/robust-1a2b)`, `   Doc-tests uringlet`.
fn program_of(line: &str) -> Option<String> {
    let line = line.strip_prefix("   ")?.trim_start();
    if let Some(doc) = line.strip_prefix("Doc-tests ") {
        return Some(format!("doc tests of {doc}"));
    }
    let (what, path) = line.strip_prefix("Running ")?.split_once(" (")?;
    // The crate's name stands before the hash; unit tests of every crate have the same `what`.
    let file = path.trim_end_matches(')').rsplit('/').next()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    Some(if what.starts_with("unittests") { format!("{name} (unit tests)") } else { name.to_owned() })
}

/// The panic message comes first, and only the last lines of an output are kept.
fn without_backtrace(output: &str) -> String {
    output.split("stack backtrace:").next().unwrap_or_default().to_owned()
}

fn number_before(text: &str, word: &str) -> u32 {
    let Some((before, _)) = text.split_once(word) else { return 0 };
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> TestCounts {
        let mut reader = LibtestReader::default();
        text.lines().for_each(|line| reader.line(line));
        reader.finish()
    }

    #[test]
    fn counts_of_libtest_are_read() {
        let counts = read("test result: ok. 15 passed; 2 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.22s");
        assert_eq!((counts.passed, counts.failed, counts.skipped), (15, 2, 3));
    }

    #[test]
    fn failed_tests_are_named_with_their_output() {
        let counts = read(
            "     Running tests/robust.rs (target/debug/deps/robust-1a2b)\n\nrunning 3 tests\ntest a ... ok\ntest b ... FAILED\n\
             test c::d ... FAILED\n\nfailures:\n\n---- b stdout ----\n\nthread 'b' panicked at x.rs:1:1:\nlost one\n\
             stack backtrace:\n   0: x\n\n---- c::d stdout ----\nsecond\n    indented\n\n\nfailures:\n    b\n    c::d\n\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\n\
             error: test failed, to rerun pass `-p uringlet-cli --test robust`\n",
        );
        assert_eq!((counts.passed, counts.failed), (1, 2));
        let told: Vec<_> = counts.failures.iter().map(|f| (f.item.as_str(), f.output.last().map(String::as_str))).collect();
        assert_eq!(told, [("robust b", Some("lost one")), ("robust c::d", Some("    indented"))]);
    }

    #[test]
    fn a_program_that_died_is_named() {
        let counts = read(
            "     Running unittests src/lib.rs (target/debug/deps/uringlet_sys-1a2b)\n\nrunning 3 tests\n\
             error: test failed, to rerun pass `-p uringlet-sys --lib`\n\nCaused by:\n  process didn't exit successfully: (signal: 11, SIGSEGV)\n\
             \x20    Running tests/abi.rs (target/debug/deps/abi-99)\n\
             test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n",
        );
        assert_eq!((counts.passed, counts.failed), (4, 1));
        assert_eq!(counts.failures[0].item, "uringlet_sys (unit tests)");
        assert!(counts.failures[0].output.last().is_some_and(|line| line.contains("SIGSEGV")));
    }
}
