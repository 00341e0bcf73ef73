//! A life: one process with its threads on a pool of files, and what its parent checks afterwards.

use anyhow::{Context, bail, ensure};
use conformance_rng::Rng;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use crate::actor::{Actor, World};
use crate::identity;
use crate::pool::{FilePool, Ledger};
use crate::ring::{AccountedRing, RingFlavor};
use crate::steps;

const SALT: u64 = 0x6c69_7665_7300_0000;
const LENGTH: Duration = Duration::from_millis(1200);
/// A life ends long before this on any machine.
const HANGS_AFTER: Duration = Duration::from_secs(120);
const THREADS: [usize; 3] = [2, 3, 4];
/// Percentage of lives that are killed.
const KILLED: u64 = 10;

/// What a seed decides about a life.
#[derive(Debug)]
pub(crate) struct LifePlan {
    pub(crate) seed: u64,
    threads: usize,
    killed_after: Option<Duration>,
}

impl LifePlan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed, SALT);
        let threads = rng.pick(&THREADS);
        let killed_after = rng.percent(KILLED).then(|| LENGTH.mul_f64(rng.below(1000) as f64 / 1000.0));
        Self { seed, threads, killed_after }
    }

    /// In the process itself.
    pub(crate) fn live(&self, dir: &Path) -> anyhow::Result<()> {
        let pool = FilePool::at(dir);
        let world = World {
            ledger: Ledger::map(&dir.join("ledger"))?,
            pool,
            threads: self.threads,
            ends: Instant::now() + LENGTH,
            shared: Mutex::new(AccountedRing::new(RingFlavor::Plain).context("a ring")?),
            quiet: RwLock::new(()),
            is_root: identity::is_root(),
        };
        let outcomes: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|me| {
                    scope.spawn({
                        let world = &world;
                        move || steps::play(&mut Actor::new(world, self.seed, me)?)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked"))).collect()
        });
        let settled = world.shared.into_inner().map_or_else(|_| bail!("a thread panicked"), |mut ring| ring.settle());
        outcomes.into_iter().chain([settled]).collect()
    }

    /// In the parent: starts the life, ends it if it is to be killed, and checks what it leaves.
    pub(crate) fn watch(&self, dir: &Path, ledger: &Ledger) -> anyhow::Result<()> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.arg("--life").arg(self.seed.to_string()).arg("--dir").arg(dir).stdin(Stdio::null());
        let mut child = command.spawn().context("starting a life")?;
        let started = Instant::now();
        let mut is_killed = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if self.killed_after.is_some_and(|after| started.elapsed() > after) && !is_killed {
                child.kill()?;
                is_killed = true;
            }
            if started.elapsed() > HANGS_AFTER {
                let stacks = threads_of(child.id());
                child.kill()?;
                child.wait()?;
                bail!("HANGS: {} s; its threads:\n{stacks}", HANGS_AFTER.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        ensure!(status.success() || (is_killed && was_killed(status)), "it ended with {status}");
        FilePool::at(dir).check(ledger)
    }
}

fn was_killed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGKILL)
}

/// Names of a process' threads, and where each waits.
fn threads_of(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    tasks
        .map(|task| {
            format!("  {}: {} {}\n", read(task.path().join("comm")), read(task.path().join("wchan")), read(task.path().join("syscall")))
        })
        .collect()
}
