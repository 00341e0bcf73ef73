//! The rows of each benchmark, and what the engine may take.

use super::row::Limit::{Over, Times};
use super::row::{BenchRow, KERNEL, MB, NS, NUMBER, PLAIN, US};

/// One benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum BenchSuite {
    Meta,
    Reads,
    Timers,
    Cancel,
    Rings,
    Wakeups,
}

impl BenchSuite {
    pub(super) fn rows(self) -> Vec<BenchRow> {
        match self {
            Self::Meta => meta(),
            Self::Reads => reads(),
            Self::Timers => timers(),
            Self::Cancel => cancel(),
            Self::Rings => rings(),
            Self::Wakeups => wakeups(),
        }
    }
}

fn meta() -> Vec<BenchRow> {
    const OPS: [(&str, &str, f64); 4] = [
        ("statx", "statx, cached", 1.4),
        ("open", "openat, close", 1.4),
        ("unlink", "unlinkat", 1.0),
        ("create", "openat with O_CREAT, close", 1.1),
    ];
    let row = |table, batch, (op, name, limit)| {
        let row = BenchRow::new(table, name, NS, &["meta", "--op", op, "--batch", batch]).plain("calls").in_directory();
        if batch == "64" { row.goal(Times(PLAIN, limit)) } else { row }
    };
    let batches = [("batches of 1", "1"), ("batches of 64", "64")];
    batches.into_iter().flat_map(|(table, batch)| OPS.map(|op| row(table, batch, op))).collect()
}

/// Longer than the devices' own caches would like, and read within a second.
const UNCACHED: &str = "67108864";

fn reads() -> Vec<BenchRow> {
    let row = |name, unit, op, depth, size| {
        let words = ["read", "--op", op, "--depth", depth, "--block", "4096", "--size", size];
        BenchRow::new("4 KiB random reads", name, unit, &words).plain("pread").on_file()
    };
    const CACHED: &str = "10485760";
    vec![
        row("cached, depth 1", NS, "cached", "1", CACHED).goal(Over(PLAIN, 60.0)),
        row("cached, depth 32", NS, "cached", "32", CACHED).goal(Times(KERNEL, 1.0)),
        row("O_DIRECT, depth 1", US, "direct", "1", UNCACHED).goal(Times(KERNEL, 1.0)),
        row("O_DIRECT, depth 32", US, "direct", "32", UNCACHED).goal(Times(KERNEL, 1.0)),
        row("not in the page cache, depth 1", US, "cold", "1", UNCACHED).goal(Times(PLAIN, 1.05)),
        row("not in the page cache, depth 32", US, "cold", "32", UNCACHED).goal(Times(KERNEL, 1.0)),
    ]
}

fn timers() -> Vec<BenchRow> {
    const TABLE: &str = "time-outs";
    let row = |name, op| BenchRow::new(TABLE, name, NS, &["armed", "--batch", "10000", "--op", op]);
    vec![
        row("TIMEOUT beside 10,000", "insert").goal(Times(KERNEL, 1.0)),
        row("TIMEOUT_REMOVE beside 10,000", "remove").goal(Times(KERNEL, 1.0)),
        row("pipe read with LINK_TIMEOUT, and a write(2)", "link-timeout").plain("calls").goal(Times(KERNEL, 1.57)),
    ]
}

fn cancel() -> Vec<BenchRow> {
    let row = |name, armed| {
        BenchRow::new("ASYNC_CANCEL by user_data", name, NS, &["armed", "--op", "cancel", "--batch", armed]).goal(Times(KERNEL, 1.0))
    };
    vec![row("beside 1,000 polls", "1000"), row("beside 19,000 polls", "19000")]
}

fn rings() -> Vec<BenchRow> {
    const MADE: &str = "a ring made and closed";
    const WAITING: &str = "1,000 rings with a read that waits";
    let waiting = |name, unit, op| BenchRow::new(WAITING, name, unit, &["rings", "--batch", "1000", "--op", op]);
    vec![
        BenchRow::new(MADE, "8 entries", US, &["rings", "--op", "make", "--batch", "8"]).goal(Times(KERNEL, 1.2)),
        BenchRow::new(MADE, "256 entries", US, &["rings", "--op", "make", "--batch", "256"]).goal(Times(KERNEL, 1.2)),
        waiting("resident memory", MB, "rss").goal(Times(KERNEL, 1.5)),
        waiting("mappings", NUMBER, "mappings").goal(Times(KERNEL, 1.5)),
        waiting("descriptors", NUMBER, "descriptors").goal(Times(KERNEL, 2.0)),
    ]
}

fn wakeups() -> Vec<BenchRow> {
    const TABLE: &str = "two threads that wake each other, round trip";
    vec![
        BenchRow::new(TABLE, "write(2), and a read of a pipe", US, &["wakeup", "--op", "pipe"]).plain("calls").goal(Times(KERNEL, 1.05)),
        BenchRow::new(TABLE, "MSG_RING", US, &["wakeup", "--op", "message"]).goal(Times(KERNEL, 1.05)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suite_has_goals_and_no_row_twice() {
        for suite in [BenchSuite::Meta, BenchSuite::Reads, BenchSuite::Timers, BenchSuite::Cancel, BenchSuite::Rings, BenchSuite::Wakeups] {
            let rows = suite.rows();
            assert!(rows.iter().any(|row| !row.limits.is_empty()), "{suite:?}");
            for (at, row) in rows.iter().enumerate() {
                assert!(!rows[..at].iter().any(|other| (other.table, other.name) == (row.table, row.name)), "{row:?}");
            }
        }
    }
}
