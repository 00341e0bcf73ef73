//! `-p`: asks the engine in a running process to record.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use uringlet_sys::trace::{TraceBuffer, TraceControl};

use super::error::TraceError;
use super::processes::{is_alive, shares_numbers};
use super::reader::TraceState;
use crate::stat::{RemoteProcess, StatError, StatsBlock};

/// The traced processes.
#[derive(Debug)]
pub(super) struct Attached {
    controls: Vec<RemoteControl>,
    has_come: Vec<Arc<AtomicBool>>,
}

/// The word of an engine, in another process, that tells whether it records.
#[derive(Debug)]
struct RemoteControl {
    process: RemoteProcess,
    address: u64,
}

impl Attached {
    /// Asks all of these processes. Fails if one cannot be asked; then none records.
    pub(super) fn new(pids: &[i32], trace: &OsStr) -> Result<Self, TraceError> {
        let flag = |signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag)).map(|_| flag)
        };
        let has_come = [SIGINT, SIGTERM, SIGHUP].into_iter().map(flag).collect::<Result<_, _>>();
        let has_come = has_come.map_err(|error| TraceError(format!("cannot handle signals: {error}")))?;
        let mut attached = Self { controls: Vec::new(), has_come };
        for &pid in pids {
            match RemoteControl::find(pid).and_then(|control| control.request(trace).map(|()| control)) {
                Ok(control) => attached.controls.push(control),
                Err(error) => {
                    attached.leave();
                    return Err(error);
                }
            }
        }
        Ok(attached)
    }

    /// Whether one of them runs, and no signal has come to end the trace.
    pub(super) fn state(&mut self) -> TraceState {
        if self.has_come.iter().any(|flag| flag.load(Ordering::Relaxed)) {
            return TraceState::Stopped;
        }
        self.controls.retain(|control| is_alive(control.process.pid.cast_unsigned()));
        if self.controls.is_empty() { TraceState::Ending } else { TraceState::Running }
    }

    /// Those that have not begun to record need not. The others find the buffer without a reader.
    pub(super) fn leave(&mut self) {
        for control in self.controls.drain(..) {
            // A process that has ended records nothing.
            let _ = control.withdraw();
        }
    }
}

impl RemoteControl {
    fn find(pid: i32) -> Result<Self, TraceError> {
        let message = |error: StatError| TraceError(error.message(pid));
        let process = RemoteProcess::find(pid).map_err(message)?;
        if !shares_numbers(pid) {
            return Err(TraceError(format!("process {pid} runs in another container: run `uringlet trace` there")));
        }
        let engine = StatsBlock::find(&process).map_err(message)?;
        let address = engine.trace_control(&process).map_err(message)?;
        Ok(Self { process, address })
    }

    fn read(&self) -> Result<[u8; TraceControl::LEN], StatError> {
        let mut bytes = [0; TraceControl::LEN];
        self.process.read(self.address, &mut bytes).map(|()| bytes)
    }

    fn request(&self, trace: &OsStr) -> Result<(), TraceError> {
        let pid = self.process.pid;
        let message = |error: StatError| TraceError(error.message(pid));
        let control = self.read().map_err(message)?;
        if let Some(path) = TraceControl::path_of(&control)
            && TraceBuffer::open(path).is_ok_and(|buffer| buffer.has_reader())
        {
            return Err(TraceError(format!("process {pid} is traced already, by {}", path.to_string_lossy())));
        }
        let (path, state) = TraceControl::request_bytes(trace.as_bytes()).ok_or_else(|| TraceError("the path is too long".into()))?;
        self.process.write(self.address + TraceControl::PATH_AT as u64, &path).map_err(message)?;
        self.process.write(self.address, &state).map_err(message)
    }

    fn withdraw(&self) -> Result<(), StatError> {
        let control = self.read()?;
        let is_requested = TraceControl::is_requested(&control);
        if is_requested { self.process.write(self.address, &TraceControl::idle_bytes(&control)) } else { Ok(()) }
    }
}
