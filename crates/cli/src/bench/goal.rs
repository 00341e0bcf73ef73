//! What the project wants to reach, beside what was measured. Told, never enforced: a slow machine is no failure.

use serde_json::{Value, json};

use super::summary::number;

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

    /// A goal for each of several values: the worst of them decides.
    pub(super) fn worst(
        what: impl Into<String>,
        bound: Bound,
        limit: f64,
        values: impl IntoIterator<Item = (String, f64)>,
    ) -> Option<Self> {
        let by_value = |a: &(String, f64), b: &(String, f64)| a.1.total_cmp(&b.1);
        let (at, measured) = match bound {
            Bound::AtLeast => values.into_iter().min_by(by_value),
            Bound::AtMost => values.into_iter().max_by(by_value),
        }?;
        Some(Self { what: what.into(), bound, limit, measured, at: Some(at) })
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
    fn the_worst_decides() {
        let values = || [("a".to_owned(), 1.2), ("b".to_owned(), 0.9)];
        let goal = Goal::worst("speed", Bound::AtLeast, 1.0, values()).unwrap();
        assert_eq!(goal.text(), "goal: speed, at least 1.00: 0.90 (b), not met\n");
        let goal = Goal::worst("delay", Bound::AtMost, 2.0, values()).unwrap();
        assert_eq!(goal.text(), "goal: delay, at most 2.00: 1.20 (a), met\n");
    }

    #[test]
    fn what_was_not_measured_is_no_goal() {
        assert!(Goal::new("x", Bound::AtLeast, 1.0, None).is_none());
        assert!(Goal::worst("x", Bound::AtLeast, 1.0, []).is_none());
    }
}
