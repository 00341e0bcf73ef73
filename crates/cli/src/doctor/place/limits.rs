//! Limits that the engine meets.

use std::fs;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// A limit, and what it is needed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlaceLimit {
    pub(crate) name: &'static str,
    /// `None`: there is none.
    pub(crate) value: Option<u64>,
    /// What goes wrong, if it is low.
    pub(crate) hurts: Option<String>,
}

/// With fewer descriptors rings and registered files are short of them.
const FEW_FILES: u64 = 4096;
/// With less the kernel's own ring refuses large registered buffers.
const LITTLE_MEMORY: u64 = 8 << 20;
/// With fewer threads requests that block wait for each other.
const FEW_THREADS: u64 = 256;

pub(super) fn here() -> Vec<PlaceLimit> {
    let rlimit = |resource| getrlimit(resource).ok().map(|(soft, _)| soft).filter(|&soft| soft != RLIM_INFINITY);
    let files = rlimit(Resource::RLIMIT_NOFILE);
    let memory = rlimit(Resource::RLIMIT_MEMLOCK);
    let (processes, tasks) = (rlimit(Resource::RLIMIT_NPROC), pids_max());
    let low = |value: Option<u64>, bound: u64, text: &dyn Fn(u64) -> String| value.filter(|&value| value < bound).map(text);
    let few_threads = |value: u64| format!("fewer than {FEW_THREADS}: of {value} tasks, requests that block each need a thread");
    vec![
        PlaceLimit {
            name: "RLIMIT_NOFILE",
            value: files,
            hurts: low(files, FEW_FILES, &|value| {
                format!("each ring takes 3 descriptors, each registered file one: at most {} of them (ulimit -n)", value.saturating_sub(9))
            }),
        },
        PlaceLimit {
            name: "RLIMIT_MEMLOCK",
            value: memory,
            hurts: low(memory, LITTLE_MEMORY, &|_| {
                "the kernel's own ring refuses larger registered buffers; the engine does not".to_owned()
            }),
        },
        PlaceLimit { name: "RLIMIT_NPROC", value: processes, hurts: low(processes, FEW_THREADS, &few_threads) },
        PlaceLimit { name: "pids.max", value: tasks, hurts: low(tasks, FEW_THREADS, &few_threads) },
    ]
}

/// The least of the limits of tasks of this control group and those above it, as far as they are
/// seen.
fn pids_max() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::").or_else(|| line.split_once(":pids:").map(|(_, path)| path)))?;
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"];
    let ancestors = std::path::Path::new(path).ancestors().map(|folder| folder.display().to_string());
    let files = ancestors.flat_map(|folder| roots.map(|root| format!("{root}{folder}/pids.max")));
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_there_and_says_what_it_hurts() {
        let limits = here();
        assert_eq!(
            limits.iter().map(|limit| limit.name).collect::<Vec<_>>(),
            ["RLIMIT_NOFILE", "RLIMIT_MEMLOCK", "RLIMIT_NPROC", "pids.max"]
        );
        let files = &limits[0];
        assert_eq!(files.hurts.is_some(), files.value.is_some_and(|value| value < FEW_FILES));
    }
}
