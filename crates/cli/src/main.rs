//! `uringlet`: io_uring in user space, from the command line.
#![cfg_attr(not(test), no_main)]
#![forbid(unsafe_code)]

mod bench;
mod documents;
mod run;
mod stat;
mod ublk;

use clap::{Parser, Subcommand};

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
    Bench(bench::BenchArgs),
    Stat(stat::StatArgs),
    Ublk(ublk::Args),
    Ublkd(ublk::DaemonArgs),
    Man(documents::ManArgs),
    Completions(documents::CompletionsArgs),
}

// Not std's `main`: what `run` hands on must be as it found it.
#[cfg(not(test))]
uringlet_sys::c_main!(start);

#[cfg_attr(test, allow(dead_code, reason = "tests have an entry of their own"))]
fn start() -> Status {
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Stat(args) => stat::stat(&args),
        Command::Ublk(args) => ublk::ublk(&args),
        Command::Ublkd(args) => ublk::ublkd(&args),
        Command::Man(args) => documents::man(&args),
        Command::Completions(args) => documents::completions(&args),
    }
}

/// The exit status of a command, as shells understand it.
type Status = u8;
