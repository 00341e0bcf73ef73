//! A scenario by its parameters: the seed, and the parts left out.

use crate::generate;
use crate::scenario::{Scenario, ScenarioKind, ScenarioOp, ScenarioStep};
use anyhow::Context;
use std::collections::BTreeSet;
use std::fmt;
use uringlet_abi::sqe;

/// The parameters that name a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) ops: u64,
    pub(crate) kind: ScenarioKind,
    pub(crate) dropped: Dropped,
}

impl Case {
    /// The seed, with the option of its kind.
    pub(crate) fn name(&self) -> String {
        [Some(self.seed.to_string().as_str()), self.kind.option()].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn scenario(&self) -> Scenario {
        self.dropped.without(generate::scenario(self.seed, self.ops, self.kind))
    }
}

/// The parts left out: steps by index, requests by user_data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) steps: BTreeSet<usize>,
    pub(crate) requests: BTreeSet<u64>,
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
            if let ScenarioStep::Submit(ops) = step {
                self.leave_out(ops);
                return keeps && !ops.is_empty();
            }
            keeps
        });
        scenario
    }
}

impl Dropped {
    /// Removes requests. If the last one of a chain is removed, the one before it becomes the end
    /// of the chain.
    fn leave_out(&self, ops: &mut Vec<ScenarioOp>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_parts_round_trip_through_the_command_line() {
        let dropped = Dropped::parse("s1,s20,r3").unwrap();
        assert_eq!(dropped.to_string(), "s1,s20,r3");
        assert!(Dropped::parse("x1").is_err());
    }
}
