//! Differences that stay, and that no rule of the generator can leave out: `docs/differences.md`
//! gives the reasons. Each is recognized as exactly as the transcripts allow.

use crate::scenario::{Scenario, ScenarioStep};
use uringlet_abi::sqe;

/// The line after which the transcript tells of files and memory.
const STATE: &str = "state:";

/// A drained request and a malformed one: in the kernel the malformed one counts as in flight for
/// drain, so that nothing behind completes. All that the kernel has completed is the same, in the
/// same steps; the rest has no CQE there.
pub(crate) fn is_stuck_in_drain(scenario: &Scenario, kernel: &str, ours: &str) -> bool {
    let (kernel, ours) = (events(kernel), events(ours));
    let is_malformed = |line: &&str| is_cqe(line) && line.contains(" -22 ");
    drains(scenario) && kernel.iter().any(is_malformed) && lacks_only_cqes(&kernel, &ours)
}

fn drains(scenario: &Scenario) -> bool {
    scenario.steps.iter().any(|step| match step {
        ScenarioStep::Submit(ops) => ops.iter().any(|op| op.sqe.flags & sqe::IO_DRAIN != 0),
        _ => false,
    })
}

/// The lines about what happened.
fn events(transcript: &str) -> Vec<&str> {
    transcript.lines().take_while(|line| *line != STATE).collect()
}

fn is_cqe(line: &str) -> bool {
    line.starts_with("  #")
}

/// The order of a chain's CQEs says no more than the CQEs where some are missing.
fn is_order(line: &str) -> bool {
    line.starts_with("  order ")
}

/// Whether `fewer` is `all` without some CQEs: at least one.
fn lacks_only_cqes(fewer: &[&str], all: &[&str]) -> bool {
    let mut rest = fewer.iter().filter(|line| !is_order(line)).peekable();
    let mut missing = 0;
    for line in all.iter().filter(|line| !is_order(line)) {
        if rest.peek().is_some_and(|next| *next == line) {
            rest.next();
        } else if is_cqe(line) {
            missing += 1;
        } else {
            return false;
        }
    }
    missing > 0 && rest.peek().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_cqes_count() {
        let all = ["step 0:", "  #1 -22 flags=0x0", "step 1:", "  #2 0 flags=0x0", "  #3 0 flags=0x0", "  order [2, 3]"];
        let stuck = ["step 0:", "  #1 -22 flags=0x0", "step 1:", "  #2 0 flags=0x0"];
        assert!(lacks_only_cqes(&stuck, &all));
        assert!(!lacks_only_cqes(&all, &all), "nothing is missing");
        assert!(!lacks_only_cqes(&["  #1 -125 flags=0x0"], &all), "another result");
        assert!(!lacks_only_cqes(&["  #1 -22 flags=0x0"], &all), "a step is missing");
        assert!(!lacks_only_cqes(&all, &stuck), "the engine lacks CQEs");
    }

    #[test]
    fn lines_behind_the_state_are_no_events() {
        assert_eq!(events("step 0:\n  #1 0 flags=0x0\nstate:\n  open: []"), ["step 0:", "  #1 0 flags=0x0"]);
    }
}
