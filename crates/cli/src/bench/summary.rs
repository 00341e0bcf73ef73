//! The summary of repeated measurements.

/// Median and extremes of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Summary {
    /// `None` without values.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }

    pub(super) fn divided(self, by: f64) -> Self {
        Self { median: self.median / by, min: self.min / by, max: self.max / by }
    }

    /// `12.3 (11.0 - 13.0)`.
    pub(super) fn wide(self) -> String {
        format!("{} ({} - {})", number(self.median), number(self.min), number(self.max))
    }

    /// `12.3 ±8%`: half the spread, in percent of the median. Without the percentage if all values
    /// are equal.
    pub(super) fn narrow(self) -> String {
        if self.min == self.max {
            return number(self.median);
        }
        format!("{} ±{:.0}%", number(self.median), (self.max - self.min) / 2.0 / self.median * 100.0)
    }
}

/// Three digits, or all before the decimal point.
pub(super) fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        let of = |values: &[f64]| Summary::of(values).map(|s| (s.median, s.min, s.max));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(of(&[4.0, 1.0]), Some((2.5, 1.0, 4.0)));
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([number(1.234), number(12.34), number(1234.5)], ["1.23", "12.3", "1234"]);
    }

    #[test]
    fn the_spread_is_printed() {
        let summary = Summary { median: 200.0, min: 180.0, max: 220.0 };
        assert_eq!(summary.wide(), "200 (180 - 220)");
        assert_eq!(summary.narrow(), "200 ±10%");
        assert_eq!(summary.divided(100.0).wide(), "2.00 (1.80 - 2.20)");
        assert_eq!(Summary { median: 0.0, min: 0.0, max: 0.0 }.narrow(), "0.00");
    }
}
