//! `uringlet bench`: measures uringlet on this machine, beside the kernel's io_uring where it is
//! available.
//!
//! Each number comes from a process of its own: `uringlet-bench-worker` (an ordinary io_uring
//! program) or fio, run natively, under `uringlet run`, or with the drop-in `liburing.so.2`. Rounds
//! are interleaved, so that disturbances affect all series alike.
//!
//! Shared by the benchmarks: `tools` (programs and libraries), `launch` and `stop` (child
//! processes, Ctrl-C), `job` and `progress` (rounds), `summary`, `table`, `goal`, `json`, `plot`
//! and `bars` (output).

mod bars;
mod compare;
mod echo;
mod fio;
mod goal;
mod goals;
mod host;
mod job;
mod json;
mod launch;
mod outcome;
mod output;
mod plot;
mod progress;
mod ring;
mod start;
mod stop;
mod summary;
mod table;
mod tools;
mod trace;
mod ublk;
mod value_parsers;
mod workers;
mod writes;

use crate::status::Status;
use compare::{BenchSuite, CompareArgs};
use outcome::BenchOutcome;

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
    /// Metadata operations, beside the same calls and the kernel's ring
    Meta(CompareArgs),
    /// Random reads: cached, by O_DIRECT, and of files that are not in the page cache
    Reads(CompareArgs),
    /// Time-outs beside thousands of others, and linked ones
    Timers(CompareArgs),
    /// Cancellation beside thousands of requests
    Cancel(CompareArgs),
    /// Making rings, and what a thousand of them take
    Rings(CompareArgs),
    /// Threads that wake each other
    Wakeups(CompareArgs),
    Echo(echo::BenchEchoArgs),
    Ublk(ublk::BenchUblkArgs),
    Start(start::BenchStartArgs),
    Trace(trace::BenchTraceArgs),
    Goals(goals::BenchGoalsArgs),
}

/// The status of a program that SIGINT killed, as shells report it.
const INTERRUPTED: Status = 130;

pub(crate) fn bench(args: &BenchArgs) -> Status {
    let ended = match &args.benchmark {
        Benchmark::Ring(args) => ring::run(args),
        Benchmark::Writes(args) => writes::run(args),
        Benchmark::Workers(args) => workers::run(args),
        Benchmark::Meta(args) => compare::run(BenchSuite::Meta, args),
        Benchmark::Reads(args) => compare::run(BenchSuite::Reads, args),
        Benchmark::Timers(args) => compare::run(BenchSuite::Timers, args),
        Benchmark::Cancel(args) => compare::run(BenchSuite::Cancel, args),
        Benchmark::Rings(args) => compare::run(BenchSuite::Rings, args),
        Benchmark::Wakeups(args) => compare::run(BenchSuite::Wakeups, args),
        Benchmark::Echo(args) => echo::run(args),
        Benchmark::Ublk(args) => ublk::run(args),
        Benchmark::Start(args) => start::run(args),
        Benchmark::Trace(args) => trace::run(args),
        Benchmark::Goals(args) => goals::run(args),
    };
    match ended {
        Ok(BenchOutcome::Complete) => 0,
        Ok(BenchOutcome::Interrupted) => INTERRUPTED,
        Err(message) => {
            eprintln!("uringlet bench: {message}");
            1
        }
    }
}
