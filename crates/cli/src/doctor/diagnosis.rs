//! What the facts mean.

use std::path::PathBuf;

use super::elf::ProgramFile;
use super::facts::{Facts, ObjectFacts, RingTrial};
use super::kernel::KernelAnswer;
use super::place::DoctorPlace;
use crate::status::Status;

/// How far a start would come.
#[derive(Debug)]
pub(super) enum StartOutcome {
    /// Why.
    CannotRun(String),
    /// It runs as without uringlet: why, and what to do.
    NotAttached(String),
    /// The library was loaded and has examined it.
    Started(Facts),
}

/// Everything that is known.
#[derive(Debug)]
pub(super) struct Diagnosis {
    /// The program; the file that is executed, which for a script is its last interpreter; and what
    /// that is.
    pub(super) program: Option<(PathBuf, PathBuf, ProgramFile)>,
    pub(super) kernel: KernelAnswer,
    pub(super) place: DoctorPlace,
    pub(super) outcome: StartOutcome,
    /// No program was asked about: the outcome is that of any program here.
    pub(super) is_of_place: bool,
}

impl Diagnosis {
    pub(super) fn new(kernel: KernelAnswer, outcome: StartOutcome) -> Self {
        Self { program: None, kernel, place: DoctorPlace::here(), outcome, is_of_place: false }
    }

    /// Of one program that can be attached anywhere, the answer for any.
    pub(super) fn of_place(self) -> Self {
        Self { program: None, is_of_place: true, ..self }
    }

    /// The facts of the program, if it was loaded.
    pub(super) fn facts(&self) -> Option<&Facts> {
        match &self.outcome {
            StartOutcome::Started(facts) if !self.is_of_place => Some(facts),
            _ => None,
        }
    }

    /// 0: the kernel's io_uring is free; 1: it is blocked; 2: the program cannot run, or the kernel
    /// could not be asked. Whether programs are attached does not change it.
    pub(super) fn status(&self) -> Status {
        match (&self.outcome, self.kernel.is_free()) {
            (StartOutcome::CannotRun(_), _) if !self.is_of_place => 2,
            (_, None) => 2,
            (_, Some(is_free)) => Status::from(!is_free),
        }
    }

    /// Whether io_uring calls of the program, or of any program here, would reach the engine.
    pub(super) fn is_attached(&self) -> bool {
        matches!(&self.outcome, StartOutcome::Started(facts) if obstacle(facts).is_none())
    }

    /// What answers io_uring calls, with and without `--when-blocked`.
    pub(super) fn instead(&self) -> &'static str {
        match (self.kernel.works(), self.is_attached()) {
            (true, true) => "the kernel under --when-blocked (URINGLET=when-blocked), else uringlet's engine",
            (false, true) => "uringlet's engine",
            (true, false) => "the kernel",
            (false, false) => "nothing",
        }
    }

    /// The last line: what would happen, and why.
    pub(super) fn verdict(&self) -> String {
        let not_attached = |reason: &str| {
            let subject = if self.is_of_place { "programs would run" } else { "would run" };
            format!("{subject}, but not attached: {reason}")
        };
        match &self.outcome {
            StartOutcome::CannotRun(reason) => format!("cannot run: {reason}"),
            StartOutcome::NotAttached(reason) => not_attached(reason),
            StartOutcome::Started(facts) => match obstacle(facts) {
                Some(reason) => not_attached(&reason),
                None if self.is_of_place => "programs can be attached here".into(),
                None if facts.objects.iter().any(ObjectFacts::reaches_engine) => "would be attached".into(),
                None => "would be attached; no io_uring call of its own was found so far".into(),
            },
        }
    }
}

/// Why io_uring calls of a program that was loaded would not reach the engine.
fn obstacle(facts: &Facts) -> Option<String> {
    const CALLS: &str = "docs/system-calls.md lists the calls that a seccomp filter must allow";
    if !facts.refused.is_empty() {
        return Some(format!(
            "the code of {} may not be changed: mprotect(2) and mmap(2) make no code here; {CALLS}",
            facts.refused.join(", ")
        ));
    }
    if !facts.reaches_engine() {
        return Some("neither it nor its libraries can make an io_uring call, load a library or start a program".into());
    }
    if let Some(name) = &facts.denied {
        return Some(format!("no ring can be made: the system call {name} is denied; {CALLS}"));
    }
    match facts.ring {
        RingTrial::Made => None,
        RingTrial::Unknown => Some("whether a ring can be made is not known: no process can be made to try".into()),
        RingTrial::Errno(errno) => Some(format!("no ring can be made: {}; {CALLS}", std::io::Error::from_raw_os_error(errno))),
        RingTrial::Signal(signal) => Some(format!("the process is killed when it makes a ring (signal {signal}); {CALLS}")),
    }
}
