//! Runs one third-party program in its folder, with its log, for a bounded time, and leaves no
//! process behind.

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// One program to run.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: PathBuf,
    /// The file that receives stdout and stderr.
    pub(crate) log: PathBuf,
    pub(crate) timeout: Duration,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited(i32),
    Signalled(i32),
    /// Killed at its timeout.
    Hung,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct JobOutcome {
    pub(crate) ending: Ending,
    pub(crate) took: Duration,
}

/// The environment variable that marks every process of a job, so that processes that left its
/// process group are found too.
pub(crate) const MARK: &str = "XTASK_JOB";
static JOBS: AtomicU32 = AtomicU32::new(0);

/// How long a killed process may take to end: it may be in an uninterruptible system call.
const GRACE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(4);

/// A unique value for [`MARK`].
pub(crate) fn new_mark() -> String {
    format!("{}.{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed))
}

/// Runs the job to its end or timeout.
pub(crate) fn run(job: &Job) -> anyhow::Result<JobOutcome> {
    let mark = new_mark();
    let log = File::create(&job.log).with_context(|| format!("making the log {}", job.log.display()))?;
    let (program, args) = job.argv.split_first().context("a job without a program")?;
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .envs(job.env.iter().map(|(k, v)| (k, v)))
        .env(MARK, &mark)
        .current_dir(&job.cwd)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let status = wait(&mut child, job.timeout)?;
    let took = started.elapsed();
    sweep(&child, &mark);
    if status.is_none() {
        // Reaps it. A process that cannot be killed stays until its parent ends.
        wait(&mut child, GRACE)?;
    }
    Ok(JobOutcome { ending: status.map_or(Ending::Hung, ending_of), took })
}

fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

fn ending_of(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, Some(signal)) => Ending::Signalled(signal),
        (None, None) => Ending::Hung,
    }
}

/// Kills what is left of the job: its process group, then every process with its mark. Errors mean
/// that the process has ended.
fn sweep(child: &Child, mark: &str) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    kill_marked(mark);
}

/// Kills every process with the mark.
pub(crate) fn kill_marked(mark: &str) {
    let wanted = format!("{MARK}={mark}");
    // A process may fork between the scan and the kill; the next scan finds its child.
    for _ in 0..3 {
        let marked = marked_processes(&wanted);
        if marked.is_empty() {
            return;
        }
        for pid in marked {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(POLL);
    }
}

fn marked_processes(wanted: &str) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environ = std::fs::read(entry.path().join("environ")).ok()?;
            let is_ours = environ.split(|byte| *byte == 0).any(|var| var == wanted.as_bytes());
            is_ours.then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}

/// The name of a signal that ends programs; the number of any other.
pub(crate) fn signal_name(signal: i32) -> String {
    let known = [
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (31, "SIGSYS"),
    ];
    match known.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> JobOutcome {
        let dir = std::env::temp_dir();
        let log = dir.join(format!("xtask-job-{}-{}", std::process::id(), JOBS.load(Ordering::Relaxed)));
        let argv = ["sh", "-c", script].map(OsString::from).to_vec();
        let job = Job { argv, env: vec![], cwd: dir, log: log.clone(), timeout };
        let outcome = run(&job).unwrap();
        let _ = std::fs::remove_file(log);
        outcome
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn exit_status_and_signals_are_told_apart() {
        assert_eq!(shell("exit 77", LONG).ending, Ending::Exited(77));
        assert_eq!(shell("kill -SEGV $$", LONG).ending, Ending::Signalled(11));
    }

    #[test]
    fn a_hanging_program_is_killed_at_its_timeout() {
        let outcome = shell("sleep 600", Duration::from_millis(200));
        assert_eq!(outcome.ending, Ending::Hung);
        assert!(outcome.took < Duration::from_secs(100));
    }

    #[test]
    fn daemons_do_not_outlive_their_job() {
        let flag = format!("xtask-daemon-{}", std::process::id());
        let script = format!("setsid sh -c 'sleep 4321 & echo $!' >$PWD/{flag}; sleep 0.1");
        shell(&script, LONG);
        let file = std::env::temp_dir().join(flag);
        let pid = std::fs::read_to_string(&file).unwrap().trim().to_owned();
        std::fs::remove_file(file).unwrap();
        // On a busy machine a killed process takes a while to end.
        let is_there = || std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|cmdline| cmdline.contains("4321"));
        let deadline = Instant::now() + LONG;
        while is_there() {
            assert!(Instant::now() < deadline, "process {pid} is still there");
            std::thread::sleep(POLL);
        }
    }
}
