//! `uringlet bench`: numbers for this machine, beside the kernel's own ring where there is one.
//!
//! Each number is a process of its own: `uringlet-bench-worker` (an ordinary io_uring program) or fio, run as it is, under `uringlet run`, or with the
//! drop-in `liburing.so.2`. Rounds are interleaved, so that what else the machine does hurts all of them alike.
//!
//! What the benchmarks share: `tools` (which programs), `launch` and `stop` (running them, Ctrl-C), `job` and `progress` (rounds), `summary`, `table`,
//! `goal`, `json` and `plot` (telling).

mod echo;
mod fio;
mod goal;
mod host;
mod job;
mod json;
mod launch;
mod plot;
mod progress;
mod ring;
mod stop;
mod summary;
mod table;
mod tools;
mod ublk;
mod value_parsers;
mod workers;
mod writes;

use std::io::Write;
use std::path::Path;

use crate::Status;

/// Measure uringlet on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, clap::Subcommand)]
enum Benchmark {
    Ring(ring::BenchRingArgs),
    Writes(writes::BenchWritesArgs),
    Workers(workers::BenchWorkersArgs),
    Echo(echo::BenchEchoArgs),
    Ublk(ublk::BenchUblkArgs),
}

/// How a what ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BenchOutcome {
    Whole,
    /// By Ctrl-C: what was measured until then is told.
    Stopped,
}

/// As shells tell a program that SIGINT ended.
const INTERRUPTED: Status = 130;

pub(crate) fn bench(args: &BenchArgs) -> Status {
    let ended = match &args.benchmark {
        Benchmark::Ring(args) => ring::run(args),
        Benchmark::Writes(args) => writes::run(args),
        Benchmark::Workers(args) => workers::run(args),
        Benchmark::Echo(args) => echo::run(args),
        Benchmark::Ublk(args) => ublk::run(args),
    };
    match ended {
        Ok(BenchOutcome::Whole) => 0,
        Ok(BenchOutcome::Stopped) => INTERRUPTED,
        Err(message) => {
            eprintln!("uringlet bench: {message}");
            1
        }
    }
}

/// To standard output. Nobody may be there any more: what was made is removed all the same.
fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn remove_if_there(file: &Path) -> Result<(), String> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("cannot remove {}: {error}", file.display())),
        _ => Ok(()),
    }
}
