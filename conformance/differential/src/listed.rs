//! Differences that stay, and that no rule of the generator can leave out: `docs/differences.md`
//! gives the reasons. Each is recognized as exactly as the transcripts allow.

use crate::scenario::{Scenario, ScenarioOp, ScenarioStep};
use std::collections::BTreeMap;
use uringlet_abi::{Opcode, sqe};

/// The line after which the transcript tells of files and memory.
const STATE: &str = "state:";
const CANCELLED: &str = "-125";

/// Whether the transcripts differ in a listed way, and in no other.
pub(crate) fn is_listed(scenario: &Scenario, kernel: &str, ours: &str) -> bool {
    let requests = requests(scenario);
    is_stuck_in_drain(scenario, &requests, kernel, ours) || is_late_link_timeout(&requests, kernel, ours)
}

type Requests<'a> = BTreeMap<u64, &'a ScenarioOp>;

fn requests(scenario: &Scenario) -> Requests<'_> {
    let submitted = scenario.steps.iter().filter_map(|step| if let ScenarioStep::Submit(ops) = step { Some(ops) } else { None });
    submitted.flatten().map(|op| (op.user_data(), op)).collect()
}

/// A drained request and a malformed one: in the kernel the malformed one counts as in flight for
/// drain, so that nothing behind completes. All that the kernel has completed is the same, in the
/// same steps; the rest has no CQE there.
fn is_stuck_in_drain(scenario: &Scenario, requests: &Requests<'_>, kernel: &str, ours: &str) -> bool {
    let (kernel, ours) = (events(kernel), events(ours));
    let is_refused = |line: &str| is_malformed(requests, line) || CqeLine::parse(line).is_some_and(|cqe| cqe.res == CANCELLED);
    let is_stuck = || lacks_only_cqes(&kernel, &ours) || ends_stuck(&kernel, &ours, is_refused);
    drains(scenario) && kernel.iter().any(|line| is_malformed(requests, line)) && is_stuck()
}

/// Whether both are the same up to a CQE that `stuck` lacks, and what completes there from then on
/// was only refused: the calls between the requests find other files then.
fn ends_stuck(stuck: &[&str], other: &[&str], is_refused: impl Fn(&str) -> bool) -> bool {
    let same = stuck.iter().zip(other).take_while(|(a, b)| a == b).count();
    let lacks_cqe = other.get(same).is_some_and(|line| is_cqe(line));
    let mut rest = stuck[same..].iter().filter(|line| is_cqe(line));
    lacks_cqe && rest.all(|line| is_refused(line))
}

/// Whether the CQE is that of a request that was refused before it was issued.
fn is_malformed(requests: &Requests<'_>, line: &str) -> bool {
    let Some(cqe) = CqeLine::parse(line) else { return false };
    let Some(op) = requests.get(&cqe.user_data) else { return false };
    let gives_buffers = op.sqe.opcode == Opcode::ProvideBuffers as u8;
    let selects_buffer = op.sqe.flags & sqe::BUFFER_SELECT != 0;
    cqe.res == "-22" || gives_buffers && cqe.res == "-7" || selects_buffer && cqe.res == "-95"
}

/// A worker of the kernel runs the next link before the LINK_TIMEOUT between them has its CQE.
fn is_late_link_timeout(requests: &Requests<'_>, kernel: &str, ours: &str) -> bool {
    let (kernel, ours): (Vec<_>, Vec<_>) = (kernel.lines().collect(), ours.lines().collect());
    let cancelled: Vec<_> = kernel.iter().filter_map(|line| CqeLine::parse(line)).filter(|cqe| cqe.res == CANCELLED).collect();
    let is_timeout = |id: u64| {
        let is_of_kind = requests.get(&id).is_some_and(|op| op.sqe.opcode == Opcode::LinkTimeout as u8);
        is_of_kind && cancelled.iter().any(|cqe| cqe.user_data == id)
    };
    let is_later = |kernel: &str, ours: &str| match (order(kernel), order(ours)) {
        (Some(kernel), Some(ours)) => is_moved_back(&ours, &kernel, is_timeout),
        _ => false,
    };
    kernel.len() == ours.len() && kernel != ours && kernel.iter().zip(&ours).all(|(kernel, ours)| kernel == ours || is_later(kernel, ours))
}

/// Whether `after` is `before`, with each timer in it either in its place or behind its successor.
fn is_moved_back(before: &[u64], after: &[u64], is_timer: impl Fn(u64) -> bool) -> bool {
    let mut expected = before.to_vec();
    for at in 0..expected.len().min(after.len()) {
        if expected[at] != after[at] && is_timer(expected[at]) && at + 1 < expected.len() {
            expected.swap(at, at + 1);
        }
    }
    expected == after
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

/// A line that tells of a CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CqeLine<'a> {
    user_data: u64,
    /// A number, or what stands for one that differs from run to run.
    res: &'a str,
}

impl<'a> CqeLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (user_data, rest) = line.strip_prefix("  #")?.split_once(' ')?;
        let (res, _) = rest.split_once(" flags=")?;
        Some(Self { user_data: user_data.parse().ok()?, res })
    }
}

fn is_cqe(line: &str) -> bool {
    line.starts_with("  #")
}

/// The order of a chain's CQEs says no more than the CQEs where some are missing.
fn is_order(line: &str) -> bool {
    line.starts_with("  order ")
}

/// The requests of a chain in the order of their CQEs.
fn order(line: &str) -> Option<Vec<u64>> {
    let list = line.strip_prefix("  order [")?.strip_suffix(']')?;
    list.split(", ").map(|id| id.parse().ok()).collect()
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
    use crate::scenario::ResultKind;
    use uringlet_abi::Sqe;

    fn request(user_data: u64, opcode: Opcode) -> ScenarioOp {
        let sqe = Sqe { opcode: opcode as u8, user_data, ..Sqe::default() };
        ScenarioOp { sqe, memory: Vec::new(), result: ResultKind::Number, may_pend: false, chain: 0 }
    }

    fn listed(requests: &[ScenarioOp], is: impl Fn(&Requests<'_>, &str, &str) -> bool, kernel: &str, ours: &str) -> bool {
        is(&requests.iter().map(|op| (op.user_data(), op)).collect(), kernel, ours)
    }

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
    fn nothing_completes_behind_a_drain_that_is_stuck() {
        let refused = |line: &str| line.contains(" -22 ");
        let other = ["step 0:", "  #1 -22 flags=0x0", "step 1:", "  #2 0 flags=0x0", "step 2:", "  write: 0"];
        let stuck = ["step 0:", "  #1 -22 flags=0x0", "step 1:", "step 2:", "  write: -32", "  #3 -22 flags=0x0"];
        assert!(ends_stuck(&stuck, &other, refused));
        assert!(!ends_stuck(&other, &stuck, refused), "the engine lacks CQEs");
        assert!(!ends_stuck(&[&stuck[..], &["  #4 0 flags=0x0"]].concat(), &other, refused), "it goes on");
        assert!(!ends_stuck(&["step 0:", "  write: 0"], &["step 0:", "  write: 1"], refused), "no CQE is missing");
    }

    #[test]
    fn lines_behind_the_state_are_no_events() {
        assert_eq!(events("step 0:\n  #1 0 flags=0x0\nstate:\n  open: []"), ["step 0:", "  #1 0 flags=0x0"]);
    }

    #[test]
    fn a_malformed_request_is_one_that_was_not_issued() {
        let requests = [request(1, Opcode::ProvideBuffers), request(2, Opcode::Read)];
        let is = |line: &str| listed(&requests, |requests, _, _| is_malformed(requests, line), "", "");
        assert!(is("  #2 -22 flags=0x0") && is("  #1 -7 flags=0x0"));
        assert!(!is("  #2 -7 flags=0x0") && !is("  #2 22 flags=0x0") && !is("step 2:"));
    }

    #[test]
    fn a_link_timeout_may_be_behind_the_next_link_only() {
        let requests = [request(1, Opcode::Madvise), request(2, Opcode::LinkTimeout), request(3, Opcode::Nop)];
        let with = |order: &str| format!("  #1 0 flags=0x0\n  #2 -125 flags=0x0\n  #3 0 flags=0x0\n  order {order}");
        let is = |kernel: &str, ours: &str| listed(&requests, is_late_link_timeout, &with(kernel), &with(ours));
        assert!(is("[1, 3, 2]", "[1, 2, 3]"));
        assert!(!is("[1, 2, 3]", "[1, 2, 3]"), "no difference");
        assert!(!is("[1, 2, 3]", "[1, 3, 2]"), "the engine's is late");
        assert!(!is("[3, 1, 2]", "[1, 2, 3]"), "another order");
        let other = with("[1, 2, 3]").replace("#3 0", "#3 -22");
        assert!(!listed(&requests, is_late_link_timeout, &with("[1, 3, 2]"), &other), "another result as well");
    }
}
