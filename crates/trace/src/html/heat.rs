//! How many requests took how long, by the time at which they were submitted.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::clock::TickClock;

/// Columns of a map: parts of the trace's time.
pub(super) const COLUMNS: u64 = 120;
/// Rows for latencies from one power of two to the next.
pub(super) const ROWS_AN_OCTAVE: u32 = 2;
/// Of all opcodes together.
const ALL: &str = "all";

/// A request: when it was submitted, ticks, and the row of its latency.
type HeatPoint = (u64, u32);

/// Points of each opcode. The span of the trace is not known before its end.
#[derive(Debug, Default)]
pub(super) struct HeatMaps {
    points: BTreeMap<String, Vec<HeatPoint>>,
}

impl HeatMaps {
    pub(super) fn add(&mut self, op: &str, ticks: u64, ns: u64) {
        let point = (ticks, row(ns));
        if let Some(points) = self.points.get_mut(op) {
            points.push(point);
        } else {
            self.points.insert(op.to_owned(), vec![point]);
        }
    }

    /// The maps: that of all requests, then those of opcodes by their number.
    pub(super) fn maps(&self, first: u64, span_ns: u64, clock: &TickClock) -> Vec<Value> {
        let mut by_op: Vec<_> =
            self.points.iter().map(|(op, points)| (op.as_str(), points.len(), cells(points, first, span_ns, clock))).collect();
        by_op.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        let mut all = BTreeMap::new();
        for (cell, count) in by_op.iter().flat_map(|(.., cells)| cells) {
            *all.entry(*cell).or_insert(0) += count;
        }
        let total = by_op.iter().map(|(_, count, _)| count).sum();
        let whole = (by_op.len() > 1).then_some((ALL, total, all));
        whole.into_iter().chain(by_op).map(|(op, count, cells)| map(op, count, &cells)).collect()
    }
}

type HeatCells = BTreeMap<(u64, u32), u64>;

fn cells(points: &[HeatPoint], first: u64, span_ns: u64, clock: &TickClock) -> HeatCells {
    let mut cells = HeatCells::new();
    for &(ticks, row) in points {
        let column = u128::from(clock.ns(ticks.wrapping_sub(first))) * u128::from(COLUMNS) / u128::from(span_ns);
        let column = u64::try_from(column).unwrap_or(u64::MAX).min(COLUMNS - 1);
        *cells.entry((column, row)).or_insert(0) += 1;
    }
    cells
}

fn map(op: &str, count: usize, cells: &HeatCells) -> Value {
    let rows = || cells.keys().map(|(_, row)| row);
    json!({
        "op": op, "count": count, "first": rows().min(), "last": rows().max(),
        "cells": cells.iter().map(|((column, row), count)| json!([column, row, count])).collect::<Vec<_>>(),
    })
}

/// The row of a latency: the logarithm, in parts of an octave.
fn row(ns: u64) -> u32 {
    u128::from(ns.max(1)).pow(ROWS_AN_OCTAVE).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_half_an_octave() {
        assert_eq!([0, 1, 2, 3, 4, 1024].map(row), [0, 0, 2, 3, 4, 20]);
    }

    #[test]
    fn requests_are_counted_by_time_and_latency() {
        let mut maps = HeatMaps::default();
        for (op, ticks) in [("READ", 0), ("READ", 10), ("READ", 1199), ("NOP", 1200)] {
            maps.add(op, 1000 + ticks, 4);
        }
        let maps = maps.maps(1000, 1200, &TickClock::of_test());
        assert_eq!(
            [&maps[0]["op"], &maps[0]["count"], &maps[1]["op"], &maps[2]["count"]],
            [&json!("all"), &json!(4), &json!("READ"), &json!(1)]
        );
        assert_eq!(maps[0]["cells"], json!([[0, 4, 1], [1, 4, 1], [119, 4, 2]]));
    }
}
