//! The program of a power cut: the kernel asks this process before each call that changes a file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use uringlet_sys::seccomp_notify::CallSupervisor;

use super::calls::{CallFollower, RULES};
use super::disk::Disk;
use super::folder::Folder;

/// Between two looks whether the program has ended, ms.
const LOOK_MS: u32 = 20;

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The program has ended, with this status, as a shell has it.
    Ended(i32),
    /// It was killed before the event.
    Cut,
    /// It was killed because of Ctrl-C.
    Interrupted,
}

/// See the module.
#[derive(Debug)]
pub(super) struct CutProgram {
    supervisor: CallSupervisor,
    starter: Option<JoinHandle<std::io::Result<Pid>>>,
    /// Once it is started.
    child: Option<Pid>,
    follower: CallFollower,
    events: u64,
    /// The event before which it is killed.
    at: u64,
    limits: RunLimits,
    since: Instant,
}

/// What ends a run, whatever the program does.
#[derive(Clone, Debug)]
pub(super) struct RunLimits {
    pub(super) timeout: Duration,
    /// Ctrl-C has come.
    pub(super) stop: Arc<AtomicBool>,
}

impl CutProgram {
    /// Starts it as `uringlet run` does, to be killed before an event.
    pub(super) fn start(command: &[OsString], folder: &Folder, at: u64, limits: &RunLimits) -> Result<Self, String> {
        // What the program leaves behind becomes a child of this process.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|error| format!("cannot adopt the program's children: {error}"))?;
        let own = std::env::current_exe().map_err(|error| format!("where `uringlet` is cannot be found: {error}"))?;
        let mut run = Command::new(own);
        run.args(["run", "--"]).args(command).stdin(Stdio::null()).process_group(0);
        let (supervisors, supervisor) = mpsc::channel();
        // A thread of its own, which is the only one of this process of whose calls is asked.
        let starter = thread::spawn(move || {
            let made = CallSupervisor::over_this_thread(RULES);
            let is_made = made.is_ok();
            let _ = supervisors.send(made);
            if is_made { run.spawn().map(|child| Pid::from_raw(child.id().cast_signed())) } else { Err(std::io::Error::other("no filter")) }
        });
        let made = supervisor.recv().map_err(|error| error.to_string())?;
        let supervisor = made.map_err(|errno| format!("the kernel cannot ask of system calls here (seccomp, Linux 5.5): {errno}"))?;
        Ok(Self {
            supervisor,
            starter: Some(starter),
            child: None,
            follower: CallFollower::new(folder),
            events: 0,
            at,
            limits: limits.clone(),
            since: Instant::now(),
        })
    }

    /// Until the event, or the program's end.
    pub(super) fn run(&mut self) -> Result<Stop, String> {
        loop {
            if self.limits.stop.load(Ordering::Relaxed) {
                self.kill();
                return Ok(Stop::Interrupted);
            }
            if self.since.elapsed() > self.limits.timeout {
                self.kill();
                return Err(format!("the program takes longer than {} s: --timeout", self.limits.timeout.as_secs()));
            }
            match self.supervisor.next() {
                Ok(Some(call)) if self.follower.must_not_wait(call) => self.supervisor.refuse(call, uringlet_sys::Errno::EAGAIN),
                Ok(Some(call)) => {
                    let (events, at) = (&mut self.events, self.at);
                    let mut is_cut = false;
                    self.follower.follow(call, || {
                        *events += 1;
                        is_cut = *events >= at;
                        !is_cut
                    });
                    if is_cut {
                        self.kill();
                        return Ok(Stop::Cut);
                    }
                    self.supervisor.unlock_call(call);
                }
                Ok(None) => {
                    if let Some(status) = self.ended()? {
                        // What it has left behind.
                        self.kill();
                        return Ok(Stop::Ended(status));
                    }
                    self.supervisor.sleep(LOOK_MS);
                }
                Err(_) => {
                    let status = self.ended()?;
                    self.kill();
                    return Ok(Stop::Ended(status.unwrap_or(0)));
                }
            }
        }
    }

    pub(super) const fn events(&self) -> u64 {
        self.events
    }

    pub(super) const fn disk(&self) -> &Disk {
        &self.follower.disk
    }

    /// Its exit status, if it has ended.
    fn ended(&mut self) -> Result<Option<i32>, String> {
        if let Some(starter) = self.starter.take_if(|starter| starter.is_finished()) {
            let started = starter.join().map_err(|_| "the program's starter has failed".to_owned())?;
            self.child = Some(started.map_err(|error| format!("cannot start `uringlet run`: {error}"))?);
        }
        let Some(child) = self.child else { return Ok(None) };
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, status)) => Ok(Some(status)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Ok(Some(128 + signal as i32)),
            Ok(_) | Err(Errno::EINTR) => Ok(None),
            Err(errno) => Err(format!("cannot wait for the program: {errno}")),
        }
    }

    /// Kills all that descends from the program, at once.
    fn kill(&self) {
        loop {
            let descendants = descendants();
            for pid in &descendants {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            while let Ok(status) = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                if status == WaitStatus::StillAlive {
                    break;
                }
            }
            if descendants.is_empty() {
                return;
            }
            thread::yield_now();
        }
    }
}

/// All that descends from this process.
fn descendants() -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut left = vec![std::process::id().cast_signed()];
    while let Some(pid) = left.pop() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            left.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()).filter(|child| found.insert(*child)));
        }
    }
    found
}
