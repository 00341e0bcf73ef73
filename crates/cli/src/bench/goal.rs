//! What the project wants to reach, beside what was measured. Told, never enforced: a slow machine is no failure.

use serde_json::{Value, json};

use super::stats::number;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    AtLeast,
    AtMost,
}

/// A goal and what was measured of it.
#[derive(Debug)]
pub(super) struct Goal {
    what: String,
    bound: Bound,
    limit: f64,
    measured: f64,
    /// Where the worst of several values was found.
    at: Option<String>,
}

impl Goal {
    /// Nothing, if nothing was measured.
    pub(super) fn new(what: impl Into<String>, bound: Bound, limit: f64, measured: Option<f64>) -> Option<Self> {
        Some(Self { what: what.into(), bound, limit, measured: measured?, at: None })
    }

    pub(super) fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast => self.measured >= self.limit,
            Bound::AtMost => self.measured <= self.limit,
        }
    }

    pub(super) fn text(&self) -> String {
        let bound = if self.bound == Bound::AtLeast { "at least" } else { "at most" };
        let at = self.at.as_ref().map_or_else(String::new, |at| format!(" ({at})"));
        let met = if self.is_met() { "met" } else { "not met" };
        format!("goal: {}, {bound} {}: {}{at}, {met}\n", self.what, number(self.limit), number(self.measured))
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "goal": self.what,
            "bound": if self.bound == Bound::AtLeast { "at least" } else { "at most" },
            "limit": self.limit,
            "measured": self.measured,
            "at": self.at,
            "met": self.is_met(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_met_or_not() {
        let goal = Goal::new("speed", Bound::AtLeast, 1.0, Some(0.9)).unwrap();
        assert_eq!(goal.text(), "goal: speed, at least 1.00: 0.90, not met\n");
        assert!(Goal::new("delay", Bound::AtMost, 1.0, Some(0.9)).unwrap().is_met());
    }

    #[test]
    fn what_was_not_measured_is_no_goal() {
        assert!(Goal::new("x", Bound::AtLeast, 1.0, None).is_none());
    }
}
