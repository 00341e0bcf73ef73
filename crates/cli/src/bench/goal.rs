//! The project's performance goals, printed beside the measured values. Missing a goal is not an
//! error, since machines differ.

use serde_json::{Value, json};

use super::summary::number;

/// Whether a goal is a lower or an upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    AtLeast,
    AtMost,
}

/// A goal and the measured value.
#[derive(Debug)]
pub(super) struct Goal {
    what: String,
    bound: Bound,
    limit: f64,
    measured: f64,
    /// The case with the worst value, if the goal covers several.
    at: Option<String>,
}

impl Goal {
    /// `None` if nothing was measured.
    pub(super) fn new(what: impl Into<String>, bound: Bound, limit: f64, measured: Option<f64>) -> Option<Self> {
        Some(Self { what: what.into(), bound, limit, measured: measured?, at: None })
    }

    /// A goal that the worst of several values must meet.
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
    fn the_worst_value_decides_a_goal() {
        let values = || [("a".to_owned(), 1.2), ("b".to_owned(), 0.9)];
        let goal = Goal::worst("speed", Bound::AtLeast, 1.0, values()).unwrap();
        assert_eq!(goal.text(), "goal: speed, at least 1.00: 0.90 (b), not met\n");
        let goal = Goal::worst("delay", Bound::AtMost, 2.0, values()).unwrap();
        assert_eq!(goal.text(), "goal: delay, at most 2.00: 1.20 (a), met\n");
    }

    #[test]
    fn unmeasured_goals_are_left_out() {
        assert!(Goal::new("x", Bound::AtLeast, 1.0, None).is_none());
        assert!(Goal::worst("x", Bound::AtLeast, 1.0, []).is_none());
    }
}
