//! The machine on which the numbers were measured.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

#[derive(Debug)]
pub(super) struct HostInfo {
    pub(super) kernel: String,
    pub(super) filesystem: String,
    pub(super) cpu: String,
    pub(super) cpus: usize,
}

impl HostInfo {
    /// Describes this machine; `directory` is where test files are written.
    pub(super) fn detect(directory: &Path) -> Self {
        let uname = rustix::system::uname();
        let words = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let directory = directory.canonicalize().unwrap_or_default();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(": ")));
        Self {
            kernel: format!("{} {} {}", words(uname.sysname()), words(uname.release()), words(uname.machine())),
            filesystem: filesystem_of(&mounts, &directory).unwrap_or("an unknown filesystem").to_owned(),
            cpu: model.map_or("an unknown CPU", |(_, model)| model).to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl fmt::Display for HostInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; files on {}; {} CPUs, {}", self.kernel, self.filesystem, self.cpus, self.cpu)
    }
}

/// CPU time of other programs during a measurement.
#[derive(Debug)]
pub(super) struct BackgroundLoad {
    before: (Duration, Duration),
    ours_before: Duration,
}

impl BackgroundLoad {
    pub(super) fn begin() -> Self {
        Self { before: cpu_ticks(), ours_before: children_cpu_time() }
    }

    /// A warning if other programs used a considerable part of the CPUs.
    pub(super) fn warning(&self) -> Option<String> {
        const THRESHOLD_PERCENT: f64 = 10.0;
        let (busy, all) = cpu_ticks();
        let (busy, all) = (busy.saturating_sub(self.before.0), all.saturating_sub(self.before.1));
        let others = busy.saturating_sub(children_cpu_time().saturating_sub(self.ours_before));
        let percent = others.as_secs_f64() / all.as_secs_f64().max(1e-3) * 100.0;
        let warning =
            || format!("other programs used {percent:.0}% of the CPUs meanwhile: on an idle machine the numbers are more reliable");
        (percent > THRESHOLD_PERCENT).then(warning)
    }
}

/// Busy and total time of all CPUs.
fn cpu_ticks() -> (Duration, Duration) {
    let ticks = parse_stat(&fs::read_to_string("/proc/stat").unwrap_or_default());
    // USER_HZ is 100 in every supported ABI.
    let time = |ticks: u64| Duration::from_millis(ticks * 10);
    (time(ticks.0), time(ticks.1))
}

/// Busy ticks and all ticks, from the first line of /proc/stat. Guest time is part of `user`.
fn parse_stat(text: &str) -> (u64, u64) {
    let fields: Vec<u64> =
        text.lines().next().unwrap_or_default().split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let all = fields.iter().take(8).sum();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    (all - idle, all)
}

/// CPU time of all ended child processes.
fn children_cpu_time() -> Duration {
    let time = |t: nix::sys::time::TimeVal| Duration::from_micros(u64::try_from(t.num_microseconds()).unwrap_or(0));
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(Duration::ZERO, |usage| time(usage.user_time()) + time(usage.system_time()))
}

/// The filesystem type of a path, from the text of mountinfo: that of the deepest mount point, the
/// last one if several are equally deep.
fn filesystem_of<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split(' ').nth(4) else { continue };
        let is_deeper = best.is_none_or(|(len, _)| point.len() >= len);
        if path.starts_with(point) && is_deeper {
            best = right.split(' ').next().map(|kind| (point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_ticks_exclude_idle_ticks() {
        assert_eq!(parse_stat("cpu  10 1 20 300 40 0 2 3 9 0\ncpu0 1 1 1 1\n"), (36, 376));
        assert_eq!(parse_stat(""), (0, 0));
    }

    #[test]
    fn the_deepest_mount_point_wins() {
        let mounts = "20 1 8:1 / / rw - ext4 /dev/a rw\n21 20 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\n";
        assert_eq!(filesystem_of(mounts, Path::new("/tmp/x")), Some("tmpfs"));
        assert_eq!(filesystem_of(mounts, Path::new("/tmpx")), Some("ext4"));
        assert_eq!(filesystem_of("", Path::new("/")), None);
    }
}
