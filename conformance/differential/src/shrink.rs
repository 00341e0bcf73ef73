//! Leaves out steps and requests while the transcripts still differ.

use crate::case::{Case, Dropped};
use crate::compare::RunnerPair;
use crate::scenario::ScenarioStep;
use std::time::{Duration, Instant};

/// Time limit for one finding.
const LIMIT: Duration = Duration::from_secs(40);

/// The smallest case found that still differs.
pub(crate) fn shrink(runners: &RunnerPair, case: Case) -> anyhow::Result<Case> {
    let whole = Case { dropped: Dropped::default(), ..case.clone() }.scenario();
    let started = Instant::now();
    let mut best = case;
    let steps = whole.steps.len();
    // The tail first: most differences show early.
    let mut chunk = steps.div_ceil(2);
    while chunk > 0 && started.elapsed() < LIMIT {
        for start in (0..steps).step_by(chunk).rev() {
            let drop_steps = |dropped: &mut Dropped| dropped.steps.extend(start..steps.min(start + chunk));
            attempt(runners, &mut best, started, drop_steps)?;
        }
        chunk /= 2;
    }
    for step in best.scenario().steps.iter().rev() {
        let ScenarioStep::Submit(ops) = step else { continue };
        for op in ops.iter().rev() {
            attempt(runners, &mut best, started, |dropped| dropped.requests.extend([op.user_data()]))?;
        }
    }
    Ok(best)
}

fn attempt(runners: &RunnerPair, best: &mut Case, started: Instant, leave_out: impl FnOnce(&mut Dropped)) -> anyhow::Result<()> {
    let mut smaller = best.clone();
    leave_out(&mut smaller.dropped);
    if started.elapsed() < LIMIT && smaller.dropped.to_string() != best.dropped.to_string() && runners.differ(&smaller)? {
        *best = smaller;
    }
    Ok(())
}
