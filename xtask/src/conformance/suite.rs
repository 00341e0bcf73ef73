//! Runs the tests, several at a time, each in an empty folder. A test that fails though the
//! manifest lists it as a pass is run again alone. If it passes then, it still counts as a failure,
//! unless the manifest says that it may be repeated.

use super::kill_log::KillLog;
use super::manifest::{Manifest, TestVerdict};
use super::source::Test;
use crate::job::{self, Ending, Job};
use crate::paths;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How a run is done.
#[derive(Debug)]
pub(super) struct Suite<'m> {
    /// What stands before each test's path.
    pub(super) launcher: Vec<OsString>,
    /// Names the folder of this kind of run's logs.
    pub(super) kind: String,
    pub(super) jobs: usize,
    pub(super) timeout: Duration,
    pub(super) manifest: &'m Manifest,
}

/// What came of a test.
#[derive(Debug, Clone)]
pub(super) struct TestEnd {
    pub(super) verdict: TestVerdict,
    /// How each attempt ended that was not the last, if there were more than one.
    pub(super) before: Vec<TestVerdict>,
}

/// How often a test that should pass is run at most.
const ATTEMPTS: usize = 3;
/// Enough for one that is known to hang.
const KNOWN_HANG: Duration = Duration::from_secs(15);

/// What a test that found itself unable to run exits with.
const SKIPPED: i32 = 77;
const HELPER: &str = "exec-target.t";

impl Suite<'_> {
    /// Runs all tests.
    pub(super) fn run(&self, tests: &[Test]) -> anyhow::Result<BTreeMap<String, TestEnd>> {
        std::fs::create_dir_all(self.logs())?;
        let mut deaths = KillLog::open();
        let mut results = self.run_side_by_side(tests)?;
        let again = |test: &&Test| self.manifest.is_listed_as_pass(&test.name) && matches!(results[&test.name], TestVerdict::Fail(_));
        let again: Vec<_> = tests.iter().filter(again).cloned().collect();
        let mut repeated = BTreeMap::new();
        for (index, test) in again.iter().enumerate() {
            println!("  {} should pass and did not; it said:", test.name);
            self.said(&test.name, 1).iter().for_each(|line| println!("    {line}"));
            repeated.insert(test.name.clone(), self.repeat(test, index + 1, again.len(), results[&test.name].clone())?);
        }
        let killed = deaths.as_mut().map(KillLog::drain).unwrap_or_default();
        for test in tests.iter().filter(|test| killed.contains(&*test.program.to_string_lossy())) {
            println!("  {}: a call reached the kernel's io_uring", test.name);
            repeated.remove(&test.name);
            results.insert(test.name.clone(), TestVerdict::Fail("SIGSYS".to_owned()));
        }
        let of_first = |(name, verdict)| (name, TestEnd { verdict, before: Vec::new() });
        let mut ended: BTreeMap<_, _> = results.into_iter().map(of_first).collect();
        ended.extend(repeated);
        Ok(ended)
    }

    /// Runs a test alone until it passes or has had its attempts.
    fn repeat(&self, test: &Test, index: usize, total: usize, first: TestVerdict) -> anyhow::Result<TestEnd> {
        let mut before = vec![first];
        loop {
            let verdict = self.run_one(test, index, total, before.len() + 1)?;
            if verdict == TestVerdict::Pass {
                return Ok(TestEnd { verdict: self.worth(test, before.len() + 1), before });
            }
            if before.len() + 1 == ATTEMPTS {
                return Ok(TestEnd { verdict, before });
            }
            before.push(verdict);
        }
    }

    /// What a pass is worth that is not the first attempt's.
    fn worth(&self, test: &Test, attempt: usize) -> TestVerdict {
        println!("  {}: passed at attempt {attempt}, alone", test.name);
        let is_excused = self.manifest.is_repeatable(&test.name);
        if is_excused { TestVerdict::Pass } else { TestVerdict::Fail(format!("unstable, passed at attempt {attempt}")) }
    }

    /// The last lines of an attempt's log.
    pub(super) fn said(&self, test: &str, attempt: usize) -> Vec<String> {
        let log = std::fs::read(self.log(test, attempt)).unwrap_or_default();
        crate::test_counts::tail(&String::from_utf8_lossy(&log))
    }

    fn log(&self, test: &str, attempt: usize) -> PathBuf {
        self.logs().join(format!("{test}.{attempt}.log"))
    }

    pub(super) fn logs(&self) -> PathBuf {
        paths::cache().join("logs").join(&self.kind)
    }

    fn run_side_by_side(&self, tests: &[Test]) -> anyhow::Result<BTreeMap<String, TestVerdict>> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(BTreeMap::new());
        let worker = || -> anyhow::Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(test) = tests.get(index) else {
                    return Ok(());
                };
                let verdict = self.run_one(test, index + 1, tests.len(), 1)?;
                results.lock().expect("no worker panics").insert(test.name.clone(), verdict);
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
        })?;
        Ok(results.into_inner().expect("no worker panics"))
    }

    fn run_one(&self, test: &Test, index: usize, total: usize, attempt: usize) -> anyhow::Result<TestVerdict> {
        let cwd = paths::cache().join("work").join(format!("{}-{}", self.kind, test.name));
        paths::fresh_dir(&cwd)?;
        // One test starts this one by the name it has in the suite's folder.
        std::os::unix::fs::symlink(test.program.with_file_name(HELPER), cwd.join(HELPER))?;
        let mut argv = self.launcher.clone();
        argv.push(test.program.clone().into());
        let log = self.log(&test.name, attempt);
        let is_hopeless = self.manifest.is_listed_as_hanging(&test.name);
        let timeout = if is_hopeless { self.timeout.min(KNOWN_HANG) } else { self.timeout };
        let outcome = job::run(&Job { argv, env: vec![], cwd: cwd.clone(), log, timeout })?;
        std::fs::remove_dir_all(&cwd)?;
        let verdict = verdict_of(outcome.ending);
        println!("[{index:>3}/{total}] {:<28} {:<24} {:>5.1} s", test.name, verdict.to_string(), outcome.took.as_secs_f64());
        Ok(verdict)
    }
}

fn verdict_of(ending: Ending) -> TestVerdict {
    match ending {
        Ending::Exited(0) => TestVerdict::Pass,
        Ending::Exited(SKIPPED) => TestVerdict::Skip("the test says so".to_owned()),
        Ending::Exited(code) => TestVerdict::Fail(format!("exit {code}")),
        Ending::Signalled(signal) => TestVerdict::Fail(job::signal_name(signal)),
        Ending::Hung => TestVerdict::Fail("hang".to_owned()),
    }
}
