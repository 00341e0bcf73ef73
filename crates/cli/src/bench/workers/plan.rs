//! The measurements of `uringlet bench workers`.

use std::path::Path;
use std::time::Duration;

use crate::bench::job::{BenchJob, Jobs, TableCell};
use crate::bench::json;
use crate::bench::launch::Launch;

pub(super) const ONE: &str = "one lock";
pub(super) const SPLIT: &str = "split locks";
pub(super) const CLASSES: [&str; 3] = ["bound", "unbound", "both"];
/// Expected duration of one process.
const EXPECTED: Duration = Duration::from_millis(900);

pub(super) fn plan(pool: &Path, cpus: usize, work_ns: u32) -> Jobs {
    let mut jobs = Jobs::default();
    for classes in CLASSES {
        for workers in worker_counts(cpus) {
            for (column, locks) in [(ONE, "one"), (SPLIT, "split")] {
                let row = format!("{workers} worker{}", if workers == 1 { "" } else { "s" });
                let numbers = [workers.to_string(), work_ns.to_string()];
                let options = ["--locks", locks, "--classes", classes, "--workers", &numbers[0], "--work-ns", &numbers[1]];
                let launch = Launch::new(std::iter::once(pool.as_os_str()).chain(options.into_iter().map(AsRef::as_ref)));
                jobs.push(BenchJob::program(TableCell::new(classes, row, column), EXPECTED, launch, json::sample));
            }
        }
    }
    jobs
}

/// Powers of two up to twice the CPUs, and the number of CPUs.
fn worker_counts(cpus: usize) -> Vec<usize> {
    let most = (2 * cpus).clamp(1, 64);
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|&n| n < most).chain([cpus.min(most), most]).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_counts_reach_twice_the_cpus() {
        assert_eq!(worker_counts(1), [1, 2]);
        assert_eq!(worker_counts(2), [1, 2, 4]);
        assert_eq!(worker_counts(6), [1, 2, 4, 6, 8, 12]);
        assert_eq!(worker_counts(200), [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn both_pools_get_the_same_jobs() {
        let jobs = plan(Path::new("/p"), 2, 200);
        assert_eq!(jobs.0.len(), 3 * 3 * 2);
        assert_eq!(jobs.rows("both"), ["1 worker", "2 workers", "4 workers"]);
        assert!(jobs.find_job("unbound", "4 workers", SPLIT).is_some());
    }
}
