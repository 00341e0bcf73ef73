//! Leaving out steps and requests while the sides still differ.

use crate::compare::{Case, Sides};
use crate::scenario::{Op, Scenario, Step};
use anyhow::Context;
use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};
use uringlet_abi::sqe;

/// What is left out: steps by index, requests by user_data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped {
    steps: BTreeSet<usize>,
    requests: BTreeSet<u64>,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.iter().map(|n| format!("s{n}"));
        let requests = self.requests.iter().map(|n| format!("r{n}"));
        f.write_str(&steps.chain(requests).collect::<Vec<_>>().join(","))
    }
}

impl Dropped {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut dropped = Self::default();
        for unit in text.split(',').filter(|unit| !unit.is_empty()) {
            let (kind, number) = unit.split_at(1);
            let number: u64 = number.parse().with_context(|| format!("`{unit}` names nothing to drop"))?;
            match kind {
                "s" => dropped.steps.extend([number as usize]),
                "r" => dropped.requests.extend([number]),
                _ => anyhow::bail!("`{unit}` names nothing to drop: s and a step's number, or r and a request's"),
            }
        }
        Ok(dropped)
    }

    /// As an option of the command line.
    pub(crate) fn option(&self) -> String {
        let text = self.to_string();
        if text.is_empty() { text } else { format!(" --drop {text}") }
    }

    pub(crate) fn without(&self, mut scenario: Scenario) -> Scenario {
        let mut index = 0;
        scenario.steps.retain_mut(|step| {
            let keeps = !self.steps.contains(&index);
            index += 1;
            if let Step::Submit(ops) = step {
                self.leave_out(ops);
                return keeps && !ops.is_empty();
            }
            keeps
        });
        scenario
    }
}

impl Dropped {
    /// Leaves requests out; where the last of a chain goes, the one before it ends the chain.
    fn leave_out(&self, ops: &mut Vec<Op>) {
        for at in 0..ops.len() {
            let ends_chain = ops.get(at + 1).is_none_or(|next| next.chain != ops[at].chain);
            if !ends_chain || !self.requests.contains(&ops[at].user_data()) {
                continue;
            }
            let (chain, links) = (ops[at].chain, ops[at].sqe.flags & LINKS);
            let survivor = ops.iter_mut().rev().find(|op| op.chain == chain && !self.requests.contains(&op.user_data()));
            if let Some(survivor) = survivor {
                survivor.sqe.flags = survivor.sqe.flags & !LINKS | links;
            }
        }
        ops.retain(|op| !self.requests.contains(&op.user_data()));
    }
}

const LINKS: u8 = sqe::IO_LINK | sqe::IO_HARDLINK;

/// So long at most for one finding.
const LIMIT: Duration = Duration::from_secs(40);

/// The smallest case found that still differs.
pub(crate) fn shrink(sides: &Sides, case: Case) -> anyhow::Result<Case> {
    let whole = Case { dropped: Dropped::default(), ..case.clone() }.scenario();
    let begun = Instant::now();
    let mut best = case;
    let steps = whole.steps.len();
    // The tail first: most differences show early.
    let mut chunk = steps.div_ceil(2);
    while chunk > 0 && begun.elapsed() < LIMIT {
        for start in (0..steps).step_by(chunk).rev() {
            let drop_steps = |dropped: &mut Dropped| dropped.steps.extend(start..steps.min(start + chunk));
            attempt(sides, &mut best, begun, drop_steps)?;
        }
        chunk /= 2;
    }
    for step in best.scenario().steps.iter().rev() {
        let Step::Submit(ops) = step else { continue };
        for op in ops.iter().rev() {
            attempt(sides, &mut best, begun, |dropped| dropped.requests.extend([op.user_data()]))?;
        }
    }
    Ok(best)
}

fn attempt(sides: &Sides, best: &mut Case, begun: Instant, leave_out: impl FnOnce(&mut Dropped)) -> anyhow::Result<()> {
    let mut smaller = best.clone();
    leave_out(&mut smaller.dropped);
    if begun.elapsed() < LIMIT && smaller.dropped.to_string() != best.dropped.to_string() && sides.differ(&smaller)? {
        *best = smaller;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_survives_the_command_line() {
        let dropped = Dropped::parse("s1,s20,r3").unwrap();
        assert_eq!(dropped.to_string(), "s1,s20,r3");
        assert!(Dropped::parse("x1").is_err());
    }
}
