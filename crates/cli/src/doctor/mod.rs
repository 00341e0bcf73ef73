//! `uringlet doctor`: what `uringlet run` would do with a program, without running it.
//!
//! The program is started as always: its dynamic linker or our loader maps it, and
//! `liburinglet.so` examines and rewrites it. But then that writes what it has found to standard
//! output, and ends the process before the program's code runs (`crates/attach/src/doctor.rs`). So
//! the answer is that of the real thing.

mod diagnosis;
mod elf;
mod facts;
mod kernel;
mod liburing;
mod place;
mod show;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::run::{self, Resolved};
use crate::status::Status;
use diagnosis::{Diagnosis, StartOutcome};
use facts::Facts;

const AFTER_HELP: &str = "\
Exit status:
  0  free: the kernel's io_uring works here
  1  blocked: it does not; \"the kernel's io_uring\" says by what
  2  the program cannot run, or what the kernel says could not be asked

Whether the program would be attached is in the last line, and in \"attached\" of --json.

Examples:
  uringlet doctor                                     what blocks io_uring here
  uringlet doctor fio                                 how fio would be attached
  uringlet doctor >/dev/null || exec uringlet run -- fio job   uringlet only where it is needed
  uringlet doctor --json fio | jq .attached           would it be attached?
";

/// Say what `uringlet run` would do with a program, without running it
///
/// Shows what the program is, its libraries, the io_uring calls in them and how they would reach
/// the engine, what the kernel says to io_uring, and whether a ring can be made here. The program's
/// dynamic linker runs, the program does not. Which libraries it loads later (dlopen) cannot be
/// known. Without a program it says what the kernel says to io_uring here, and whether programs can
/// be attached.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// As uringlet run --trap would start it
    #[arg(long)]
    trap: bool,

    /// The program, looked up in PATH. Its arguments are ignored
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

pub(crate) fn doctor(args: &DoctorArgs) -> Status {
    let diagnosis = diagnose(args);
    let text = if args.json { show::json(&diagnosis) } else { show::text(&diagnosis) };
    // A reader that has gone away wants no more.
    let _ = io::stdout().write_all(text.as_bytes());
    diagnosis.status()
}

fn diagnose(args: &DoctorArgs) -> Diagnosis {
    match args.command.first() {
        Some(program) => diagnose_program(args, program),
        None => diagnose_program(args, &own_program()).of_place(),
    }
}

/// This program: it has io_uring calls, so it is attached wherever programs can be.
fn own_program() -> OsString {
    std::env::current_exe().map_or_else(|_| "uringlet".into(), PathBuf::into_os_string)
}

fn diagnose_program(args: &DoctorArgs, program: &OsStr) -> Diagnosis {
    let kernel = kernel::ask();
    let resolved = match run::resolve(program) {
        Ok(resolved) => resolved,
        Err(error) => return Diagnosis::new(kernel, StartOutcome::CannotRun(error.message)),
    };
    let executed = elf::inspect(&resolved.target.file);
    let outcome = match (&resolved.target.why_not, &executed.linker) {
        (Some(reason), _) => StartOutcome::NotAttached(reason.clone()),
        (None, None) => start(args, &resolved),
        (None, Some(linker)) => list(linker, &resolved).err().unwrap_or_else(|| start(args, &resolved)),
    };
    Diagnosis { program: Some((resolved.program, resolved.target.file, executed)), ..Diagnosis::new(kernel, outcome) }
}

/// Starts the program as always; the library examines it and ends it.
fn start(args: &DoctorArgs, resolved: &Resolved) -> StartOutcome {
    let started = std::env::current_exe().and_then(|uringlet| {
        let mut run = Command::new(uringlet);
        run.args(["run", "--quiet"])
            .args(args.trap.then_some("--trap"))
            .arg("--")
            .arg(&resolved.program)
            .env("URINGLET", "engine")
            .env("URINGLET_DOCTOR", "1")
            .env_remove("URINGLET_EXPLAIN");
        run.stdin(Stdio::null()).output()
    });
    let name = resolved.program.display();
    match started {
        Ok(output) => match Facts::parse(&output.stdout) {
            Some(facts) => StartOutcome::Started(facts),
            None if matches!(output.status.code(), Some(126 | 127)) => StartOutcome::CannotRun(end_of(&output)),
            None => StartOutcome::NotAttached(format!("{name}: the start ended early: {}", end_of(&output))),
        },
        Err(error) => StartOutcome::CannotRun(format!("{name}: {error}")),
    }
}

/// Asks the dynamic linker what it would load; it runs no code then. The program is started only if
/// the library is among it, and ends it before its own code.
fn list(linker: &Path, resolved: &Resolved) -> Result<(), StartOutcome> {
    let file = resolved.target.file.display();
    let mut command = Command::new(linker);
    command.arg("--list").arg(&resolved.target.file).env("LD_PRELOAD", run::preload_list(&resolved.library));
    let listed = command.stdin(Stdio::null()).output();
    let listed = listed.map_err(|error| StartOutcome::CannotRun(format!("{}: {error}", linker.display())))?;
    let text = String::from_utf8_lossy(&listed.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        return Err(StartOutcome::CannotRun(format!("{file}: a library is missing: {}", line.trim())));
    }
    if !listed.status.success() {
        return Err(StartOutcome::CannotRun(format!("{file}: {}", end_of(&listed))));
    }
    let is_loaded = text.contains(&*resolved.library.to_string_lossy());
    if is_loaded { Ok(()) } else { Err(StartOutcome::NotAttached(format!("{}: {}", linker.display(), end_of(&listed)))) }
}

/// How a process has ended, and the first line that it has written to standard error.
fn end_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().next().unwrap_or("no message");
    format!("{first} ({})", output.status)
}
