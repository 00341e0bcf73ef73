//! `uringlet`: io_uring in user space, from the command line.
#![cfg_attr(not(test), no_main)]
#![forbid(unsafe_code)]

mod bench;
mod doctor;
mod documents;
mod ops;
mod run;
mod stat;
mod status;
mod trace;
mod ublk;

use clap::{CommandFactory, Parser, Subcommand};
use status::Status;

/// io_uring in user space: for programs that use it, where the kernel's is blocked.
#[derive(Debug, Parser)]
#[command(name = "uringlet", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Doctor(doctor::DoctorArgs),
    Bench(bench::BenchArgs),
    Ops(ops::OpsArgs),
    Stat(stat::StatArgs),
    Trace(trace::TraceArgs),
    Ublk(ublk::UblkArgs),
    Ublkd(ublk::DaemonArgs),
    Man(documents::ManArgs),
    Completions(documents::CompletionsArgs),
}

// std's `main` would change signal dispositions that `run` passes on to the program.
#[cfg(not(test))]
uringlet_sys::c_main!(start);

#[cfg_attr(test, allow(dead_code, reason = "tests have their own entry point"))]
fn start() -> Status {
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Ops(args) => ops::ops(&args),
        Command::Stat(args) => stat::stat(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Ublk(args) => ublk::ublk(&args),
        Command::Ublkd(args) => ublk::ublkd(&args),
        Command::Man(args) => documents::man(&args, Cli::command()),
        Command::Completions(args) => documents::completions(&args, &mut Cli::command()),
    }
}
