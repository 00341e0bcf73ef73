//! Plays one scenario on both runners and compares.

use crate::case::Case;
use crate::listed::is_listed;
use anyhow::Context;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Same,
    Differs,
    /// They differ in a way that stays ([`crate::listed`]).
    Listed,
    /// The difference is not reproducible, or the kernel differs from itself.
    Unsteady,
}

/// A command line on which scenarios are played.
#[derive(Debug)]
pub(crate) struct ScenarioRunner {
    /// Prefix of the worker's command line.
    before: Vec<OsString>,
    name: &'static str,
}

#[derive(Debug)]
pub(crate) struct RunnerPair {
    pub(crate) kernel: ScenarioRunner,
    pub(crate) ours: ScenarioRunner,
}

/// Where a runner that traces writes to, seen from the worker's directory.
pub(crate) const TRACE_FILE: &str = "../trace";
/// A worker that takes longer hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);
/// Idle times in ms, from quick to reliable.
const QUIET_SHORT_MS: u64 = 3;
pub(crate) const QUIET_MS: u64 = 20;
const QUIET_LONG_MS: u64 = 80;
/// For a machine under heavy load.
const QUIET_BUSY_MS: u64 = 400;
/// Of the attempts, in order.
pub(crate) const QUIETS_MS: [u64; 4] = [QUIET_SHORT_MS, QUIET_MS, QUIET_LONG_MS, QUIET_BUSY_MS];

impl RunnerPair {
    /// The kernel's runner alone.
    pub(crate) fn native() -> ScenarioRunner {
        ScenarioRunner { before: Vec::new(), name: "kernel" }
    }

    /// The prefixes of the worker's command line for each runner.
    pub(crate) fn new(kernel: Vec<OsString>, ours: Vec<OsString>) -> Self {
        Self { kernel: ScenarioRunner { before: kernel, name: "kernel" }, ours: ScenarioRunner { before: ours, name: "ours" } }
    }

    /// Plays until the transcripts agree, or all attempts are used.
    pub(crate) fn compare(&self, case: &Case) -> anyhow::Result<Comparison> {
        let (mut kernels, mut ours) = (Vec::new(), Vec::new());
        for quiet_ms in QUIETS_MS {
            kernels.push(self.kernel.play(case, quiet_ms)?);
            ours.push(self.ours.play(case, quiet_ms)?);
            if ours.last() == kernels.last() {
                return Ok(Comparison::Same);
            }
        }
        let agree = ours.iter().any(|one| kernels.contains(one));
        let is_steady = kernels[1..].windows(2).all(|two| two[0] == two[1]);
        let scenario = case.scenario();
        let is_listed = kernels.iter().zip(&ours).skip(1).all(|(kernel, ours)| is_listed(&scenario, kernel, ours));
        Ok(match () {
            () if is_listed => Comparison::Listed,
            () if agree || !is_steady => Comparison::Unsteady,
            () => Comparison::Differs,
        })
    }

    /// Whether the transcripts differ in one attempt.
    pub(crate) fn differ(&self, case: &Case) -> anyhow::Result<bool> {
        let kernel = self.kernel.play(case, QUIET_MS)?;
        Ok(kernel != self.ours.play(case, QUIET_MS)? && kernel == self.kernel.play(case, QUIET_MS)?)
    }

    /// The scenario and a diff of the transcripts.
    pub(crate) fn report(&self, case: &Case) -> anyhow::Result<String> {
        let kernel = self.kernel.play(case, QUIET_LONG_MS)?;
        let ours = self.ours.play(case, QUIET_LONG_MS)?;
        let mut text = format!(
            "---- seed {} ops {} {}{}\n{}",
            case.seed,
            case.ops,
            case.kind.option().unwrap_or_default(),
            case.dropped.option(),
            case.scenario()
        );
        for line in difference(&kernel, &ours) {
            text += &line;
            text.push('\n');
        }
        Ok(text)
    }
}

/// A diff: `-` lines only of the kernel's, `+` only of ours.
pub(crate) fn difference(kernel: &str, ours: &str) -> Vec<String> {
    let (kernel, ours): (Vec<_>, Vec<_>) = (kernel.lines().collect(), ours.lines().collect());
    let mut lines = Vec::new();
    let (mut k, mut o) = (0, 0);
    while k < kernel.len() || o < ours.len() {
        if k < kernel.len() && o < ours.len() && kernel[k] == ours[o] {
            // Of equal lines only those about the course of events help.
            if !kernel[k].contains("memory of") && !kernel[k].contains("left in") && !kernel[k].starts_with("  ./") {
                lines.push(format!("  {}", kernel[k]));
            }
            (k, o) = (k + 1, o + 1);
            continue;
        }
        let skips_kernel = o < ours.len() && kernel[k.min(kernel.len())..].iter().take(12).any(|line| *line == ours[o]);
        let skips_ours = k < kernel.len() && ours[o.min(ours.len())..].iter().take(12).any(|line| *line == kernel[k]);
        if k < kernel.len() && (skips_kernel || !skips_ours) {
            lines.push(format!("- {}", kernel[k]));
            k += 1;
        }
        if o < ours.len() && !skips_kernel {
            lines.push(format!("+ {}", ours[o]));
            o += 1;
        }
    }
    lines
}

impl ScenarioRunner {
    /// With the prefix of the worker's command line.
    pub(crate) fn new(before: Vec<OsString>, name: &'static str) -> Self {
        Self { before, name }
    }

    /// The transcript of one run in a fresh directory.
    pub(crate) fn play(&self, case: &Case, quiet_ms: u64) -> anyhow::Result<String> {
        self.play_traced(case, quiet_ms).map(|(transcript, _)| transcript)
    }

    /// The transcript of one run in a fresh directory, and what the runner has written to
    /// [`TRACE_FILE`] above it.
    pub(crate) fn play_traced(&self, case: &Case, quiet_ms: u64) -> anyhow::Result<(String, String)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let top: PathBuf = std::env::temp_dir().join(format!("differential-{}-{id}", std::process::id()));
        let cwd = top.join(self.name);
        fs::create_dir_all(&cwd).context("making a folder to play in")?;
        let log = top.join("transcript");
        let mut line = self.before.clone();
        line.push(own_path()?.into());
        line.extend(["worker", "--seed", &case.seed.to_string(), "--ops", &case.ops.to_string()].map(Into::into));
        line.extend(case.kind.option().map(Into::into));
        line.extend(["--quiet-ms", &quiet_ms.to_string(), "--drop", &case.dropped.to_string()].map(Into::into));
        let out = File::create(&log)?;
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).current_dir(&cwd).process_group(0).stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        let child = command.spawn().with_context(|| format!("starting {}", line[0].display()))?;
        let ending = wait(child)?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let trace = fs::read_to_string(cwd.join(TRACE_FILE)).unwrap_or_default();
        fs::remove_dir_all(&top).context("removing a folder")?;
        Ok((format!("{text}{ending}\n"), trace))
    }
}

/// This program's path, fixed at the first call: it may be rebuilt meanwhile.
fn own_path() -> anyhow::Result<PathBuf> {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    if PATH.get().is_none() {
        let _ = PATH.set(std::env::current_exe()?);
    }
    PATH.get().cloned().context("this program has no path")
}

fn wait(mut child: Child) -> anyhow::Result<String> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(describe_exit(status));
        }
        if started.elapsed() > HANG_TIMEOUT {
            // SAFETY: the process group created for this child, which has not been reaped.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait()?;
            return Ok("ended: HANG".to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended: exit {code}"),
        (None, signal) => format!("ended: signal {}", signal.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_marks_the_lines_of_both_runs() {
        assert_eq!(difference("a\nb\nc", "a\nx\nc"), ["  a", "- b", "+ x", "  c"]);
        assert_eq!(difference("a\nc", "a\nb\nc"), ["  a", "+ b", "  c"]);
        assert_eq!(difference("a\nb\nc", "a"), ["  a", "- b", "- c"]);
    }
}
