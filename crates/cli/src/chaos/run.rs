//! One run of the program.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use uringlet_sys::fault_plan::{self, FaultPlan};
use uringlet_sys::trace::{RecordKind, TraceBuffer, TracePolicy};
use uringlet_trace::text::{self, LineStyle};
use uringlet_trace::{Assembler, Event, TickClock};

use super::args::ChaosArgs;
use super::decision::Decision;

/// Records that a run's trace holds at a time; the program waits for the rest.
const SLOTS: u32 = 4096;
/// Bytes of buffers that are shown.
const STRING_LIMIT: u32 = 32;
const NAP_NS: u64 = 1_000_000;
/// Bytes of output that are kept.
const OUTPUT: u64 = 16 << 10;

/// How the program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Exited(i32),
    Killed(i32),
    /// It took too long.
    Hung,
    /// Ctrl-C.
    Stopped,
}

impl End {
    fn of(status: ExitStatus) -> Self {
        status.signal().map_or_else(|| Self::Exited(status.code().unwrap_or(-1)), Self::Killed)
    }

    pub(super) const fn is_failure(self) -> bool {
        !matches!(self, Self::Exited(0) | Self::Stopped)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(status) => write!(f, "exits with status {status}"),
            Self::Killed(signal) => match Signal::try_from(signal) {
                Ok(name) => write!(f, "is killed by {name}"),
                Err(_) => write!(f, "is killed by signal {signal}"),
            },
            Self::Hung => f.write_str("hangs"),
            Self::Stopped => f.write_str("was stopped"),
        }
    }
}

/// What a run has shown.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) end: End,
    pub(super) decisions: Vec<Decision>,
    /// Requests that something was done to, by process, ring and number: their lines.
    pub(super) lines: Vec<((u32, u32, u32), String)>,
    /// The end of standard output and standard error.
    pub(super) output: String,
}

/// Runs the program.
#[derive(Debug)]
pub(super) struct Runner {
    own: PathBuf,
    command: Vec<OsString>,
    timeout: Duration,
    pub(super) stop: Arc<AtomicBool>,
}

impl Runner {
    pub(super) fn new(args: &ChaosArgs, stop: Arc<AtomicBool>) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| format!("where `uringlet` is cannot be found: {error}"))?;
        Ok(Self { own, command: args.command().to_vec(), timeout: args.timeout(), stop })
    }

    /// One run under a plan, or without one.
    pub(super) fn run(&self, plan: Option<&FaultPlan>) -> Result<Run, String> {
        let policy = TracePolicy { flags: 0, string_limit: STRING_LIMIT };
        let buffer = TraceBuffer::create(SLOTS, policy).map_err(|errno| format!("no memory for a trace: {errno}"))?;
        let _owner = buffer.own();
        let output = output_file()?;
        let trace = format!("/proc/{}/fd/{}", std::process::id(), buffer.number().unwrap_or(-1));
        let child = self.start(plan, &trace, &output)?;
        let mut watch =
            Watch { buffer: &buffer, head: 0, assembler: Assembler::default(), clock: TickClock::start(), found: FaultsSeen::default() };
        let end = self.wait(child, &mut watch);
        watch.read();
        let FaultsSeen { decisions, lines } = watch.finish();
        buffer.leave();
        Ok(Run { end, decisions, lines, output: tail(output) })
    }

    fn start(&self, plan: Option<&FaultPlan>, trace: &str, output: &File) -> Result<Child, String> {
        let to_file = || output.try_clone().map(Stdio::from).map_err(|error| error.to_string());
        let mut command = Command::new(&self.own);
        command.args(["run", "--require", "--"]).args(&self.command).env("URINGLET_TRACE", trace);
        match plan {
            Some(plan) => command.env(fault_plan::VARIABLE, plan.to_text()),
            None => command.env_remove(fault_plan::VARIABLE),
        };
        // All that it starts can be killed with it.
        command.process_group(0).stdin(Stdio::null()).stdout(to_file()?).stderr(to_file()?);
        command.spawn().map_err(|error| format!("cannot start `uringlet run`: {error}"))
    }

    /// Waits, and takes out of the trace what comes, so that the program goes on.
    fn wait(&self, mut child: Child, watch: &mut Watch<'_>) -> End {
        let group = Pid::from_raw(child.id().cast_signed());
        let since = Instant::now();
        let end = loop {
            let taken = watch.read();
            match child.try_wait() {
                Ok(Some(status)) => break End::of(status),
                Err(_) => break End::Hung,
                Ok(None) if self.stop.load(Ordering::Relaxed) => break End::Stopped,
                Ok(None) if since.elapsed() > self.timeout => break End::Hung,
                Ok(None) => {}
            }
            if taken == 0 {
                watch.buffer.sleep(NAP_NS);
            }
        };
        // What it has left behind, too.
        let _ = killpg(group, Signal::SIGKILL);
        let _ = child.wait();
        end
    }
}

/// What is looked for in a trace.
#[derive(Debug, Default)]
struct FaultsSeen {
    decisions: Vec<Decision>,
    lines: Vec<((u32, u32, u32), String)>,
}

/// The reader of a run's trace.
struct Watch<'b> {
    buffer: &'b TraceBuffer,
    head: u64,
    assembler: Assembler,
    clock: TickClock,
    found: FaultsSeen,
}

impl Watch<'_> {
    /// Takes what is there. Returns how much that was.
    fn read(&mut self) -> u32 {
        let mut taken = 0;
        while let Some(record) = self.next() {
            taken += 1;
            if record.kind == RecordKind::Fault as u8 {
                self.found.decisions.push(Decision::of_record(&record));
            }
            let (found, clock) = (&mut self.found, &self.clock);
            self.assembler.take(&record, |event| note(found, clock, &event));
            if taken % 512 == 0 {
                self.buffer.announce_room();
            }
        }
        self.buffer.announce_room();
        taken
    }

    /// The next record. One that a killed process has begun is passed over.
    fn next(&mut self) -> Option<uringlet_sys::trace::TraceRecord> {
        loop {
            if let Some(record) = self.buffer.pop(&mut self.head) {
                return Some(record);
            }
            let pid = self.buffer.unfinished(self.head)?;
            if Path::new(&format!("/proc/{pid}")).exists() {
                return None;
            }
            self.buffer.bury(self.head);
        }
    }

    fn finish(mut self) -> FaultsSeen {
        let (found, clock) = (&mut self.found, &self.clock);
        self.assembler.finish(None, "the program has ended", |event| note(found, clock, &event));
        self.found
    }
}

fn note(found: &mut FaultsSeen, clock: &TickClock, event: &Event) {
    let request = match event {
        Event::Completion(submission, shown) if shown.is_injected() => submission,
        Event::Unfinished(submission, _) => submission,
        _ => return,
    };
    let key = (request.pid, request.ring, request.number);
    found.lines.push((key, text::line(event, clock, LineStyle::default()).trim_end().to_owned()));
}

/// A file without a name.
fn output_file() -> Result<File, String> {
    let made = rustix::fs::memfd_create("uringlet-chaos-output", rustix::fs::MemfdFlags::CLOEXEC);
    made.map(File::from).map_err(|error| format!("no memory for the program's output: {error}"))
}

/// Its end.
fn tail(mut file: File) -> String {
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = Vec::new();
    let read = file.seek(std::io::SeekFrom::Start(len.saturating_sub(OUTPUT))).and_then(|_| file.read_to_end(&mut bytes));
    if read.is_ok() { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}
