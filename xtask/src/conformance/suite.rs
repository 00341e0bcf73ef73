//! Running the tests: some at a time, each in a fresh folder, whoever fails under load once more alone.

use super::kill_log::KillLog;
use super::manifest::Verdict;
use super::source::Test;
use crate::job::{self, Ending, Job};
use crate::place;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How a run is done.
#[derive(Debug)]
pub(super) struct Suite {
    /// What stands before each test's path.
    pub(super) launcher: Vec<OsString>,
    /// Names the folder of this kind of run's logs.
    pub(super) kind: &'static str,
    pub(super) jobs: usize,
    pub(super) timeout: Duration,
}

/// What a test that found itself unable to run exits with.
const SKIPPED: i32 = 77;
const HELPER: &str = "exec-target.t";

impl Suite {
    /// Runs all tests. `expect_pass` says whose failure earns a second attempt, alone, since tests measure time.
    pub(super) fn run(&self, tests: &[Test], expect_pass: impl Fn(&str) -> bool) -> anyhow::Result<BTreeMap<String, Verdict>> {
        std::fs::create_dir_all(self.logs())?;
        let mut deaths = KillLog::open();
        let mut results = self.run_side_by_side(tests)?;
        let again = |test: &&Test| expect_pass(&test.name) && matches!(results[&test.name], Verdict::Fail(_));
        let again: Vec<_> = tests.iter().filter(again).cloned().collect();
        if !again.is_empty() {
            println!("once more, alone: {} that should pass", again.len());
        }
        for (index, test) in again.iter().enumerate() {
            let verdict = self.run_one(test, index + 1, again.len(), "alone.log")?;
            if verdict == Verdict::Pass {
                println!("  {} failed beside another test and passed alone", test.name);
            }
            results.insert(test.name.clone(), verdict);
        }
        let killed = deaths.as_mut().map(KillLog::drain).unwrap_or_default();
        for test in tests.iter().filter(|test| test.program.file_name().is_some_and(|name| killed.contains(&*name.to_string_lossy()))) {
            println!("  {}: a call reached the kernel's io_uring", test.name);
            results.insert(test.name.clone(), Verdict::Fail("SIGSYS".to_owned()));
        }
        Ok(results)
    }

    pub(super) fn logs(&self) -> PathBuf {
        place::cache().join("logs").join(self.kind)
    }

    fn run_side_by_side(&self, tests: &[Test]) -> anyhow::Result<BTreeMap<String, Verdict>> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(BTreeMap::new());
        let worker = || -> anyhow::Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(test) = tests.get(index) else {
                    return Ok(());
                };
                let verdict = self.run_one(test, index + 1, tests.len(), "log")?;
                results.lock().expect("no worker panics").insert(test.name.clone(), verdict);
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
        })?;
        Ok(results.into_inner().expect("no worker panics"))
    }

    fn run_one(&self, test: &Test, index: usize, total: usize, log: &str) -> anyhow::Result<Verdict> {
        let cwd = place::cache().join("work").join(format!("{}-{}", self.kind, test.name));
        place::fresh_dir(&cwd)?;
        // One test starts this one by the name it has in the suite's folder.
        std::os::unix::fs::symlink(test.program.with_file_name(HELPER), cwd.join(HELPER))?;
        let mut argv = self.launcher.clone();
        argv.push(test.program.clone().into());
        let log = self.logs().join(format!("{}.{log}", test.name));
        let outcome = job::run(&Job { argv, env: vec![], cwd: cwd.clone(), log, timeout: self.timeout })?;
        std::fs::remove_dir_all(&cwd)?;
        let verdict = verdict_of(outcome.ending);
        println!("[{index:>3}/{total}] {:<28} {:<24} {:>5.1} s", test.name, verdict.to_string(), outcome.took.as_secs_f64());
        Ok(verdict)
    }
}

fn verdict_of(ending: Ending) -> Verdict {
    match ending {
        Ending::Exited(0) => Verdict::Pass,
        Ending::Exited(SKIPPED) => Verdict::Skip("the test says so".to_owned()),
        Ending::Exited(code) => Verdict::Fail(format!("exit {code}")),
        Ending::Signalled(signal) => Verdict::Fail(job::signal_name(signal)),
        Ending::Hung => Verdict::Fail("hang".to_owned()),
    }
}
