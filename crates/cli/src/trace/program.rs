//! The program of a trace.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use uringlet_sys::ring_backend::RingBackend;

use super::error::{FAILED, TraceError};
use super::reader::TraceState;
use crate::status::Status;

/// See the module.
#[derive(Debug)]
pub(super) struct TracedProgram {
    child: Child,
    ended: Option<ExitStatus>,
    /// SIGTERM and SIGHUP have come, which are passed on. What a terminal sends reaches the
    /// program without help.
    passed_on: [(Signal, Arc<AtomicBool>); 2],
}

impl TracedProgram {
    /// Starts it as `uringlet run` does.
    pub(super) fn start(command: &[OsString], trace: &OsStr, is_of_kernel: bool) -> Result<Self, TraceError> {
        let flag = |signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag)).map(|_| flag)
        };
        let failed = |error: std::io::Error| TraceError(format!("cannot start `uringlet run`: {error}"));
        for signal in [SIGINT, SIGQUIT] {
            flag(signal).map_err(failed)?;
        }
        let passed_on = [(Signal::SIGTERM, flag(SIGTERM).map_err(failed)?), (Signal::SIGHUP, flag(SIGHUP).map_err(failed)?)];
        let own = std::env::current_exe().map_err(failed)?;
        let mut start = Command::new(own);
        start.args(["run", "--"]).args(command).env("URINGLET_TRACE", trace);
        if is_of_kernel {
            start.env(RingBackend::VARIABLE, RingBackend::NAME_KERNEL_TRACED);
        }
        let child = start.spawn().map_err(failed)?;
        Ok(Self { child, ended: None, passed_on })
    }

    pub(super) fn state(&mut self) -> TraceState {
        for (signal, has_come) in &self.passed_on {
            if has_come.swap(false, Ordering::Relaxed) {
                let _ = kill(Pid::from_raw(self.child.id().cast_signed()), *signal);
            }
        }
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        if self.ended.is_none() { TraceState::Running } else { TraceState::Ending }
    }

    /// Its exit status, as a shell has it.
    pub(super) fn wait(mut self) -> Status {
        let ended = self.ended.map_or_else(|| self.child.wait(), Ok);
        let code = ended.ok().and_then(|status| status.code().or_else(|| status.signal().map(|signal| 128 + signal)));
        code.and_then(|code| Status::try_from(code).ok()).unwrap_or(FAILED)
    }
}
