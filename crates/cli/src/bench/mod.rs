//! `uringlet bench`: numbers for this machine, beside the kernel's own ring where there is one.
//!
//! Each number is a process of its own: `uringlet-bench-worker` (an ordinary io_uring program) or fio, run as it is, under `uringlet run`, or with the
//! drop-in `liburing.so.2`. Rounds are interleaved, so that what else the machine does hurts all of them alike.
//!
//! What the benchmarks share: `tools` (which programs), `child` and `stop` (running them, Ctrl-C), `job` and `progress` (rounds), `stats`, `table`,
//! `goal`, `json` and `plot` (telling).

mod arguments;
mod child;
mod echo;
mod fio;
mod goal;
mod host;
mod job;
mod json;
mod plot;
mod progress;
mod ring;
mod stats;
mod stop;
mod table;
mod tools;
mod ublk;
mod workers;
mod writes;

use std::io::Write;
use std::path::Path;

use crate::Status;

/// Measure uringlet on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Ring(ring::Args),
    Writes(writes::Args),
    Workers(workers::Args),
    Echo(echo::Args),
    Ublk(ublk::Args),
}

/// How a benchmark ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// By Ctrl-C: what was measured until then is told.
    Stopped,
}

/// As shells tell a program that SIGINT ended.
const INTERRUPTED: Status = 130;

pub(crate) fn bench(args: &Args) -> Status {
    let ended = match &args.what {
        What::Ring(args) => ring::run(args),
        What::Writes(args) => writes::run(args),
        What::Workers(args) => workers::run(args),
        What::Echo(args) => echo::run(args),
        What::Ublk(args) => ublk::run(args),
    };
    match ended {
        Ok(End::Whole) => 0,
        Ok(End::Stopped) => INTERRUPTED,
        Err(message) => {
            eprintln!("uringlet bench: {message}");
            1
        }
    }
}

/// To standard output. Nobody may be there any more: what was made is removed all the same.
fn tell(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn remove_if_there(file: &Path) -> Result<(), String> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("cannot remove {}: {error}", file.display())),
        _ => Ok(()),
    }
}
