//! `uringlet`: io_uring in user space, from the command line.
#![cfg_attr(not(test), no_main)]
#![forbid(unsafe_code)]

mod bench;
mod chaos;
mod doctor;
mod documents;
mod ops;
mod powercut;
mod run;
mod shell;
mod stat;
mod status;
mod top;
mod trace;
mod ublk;

use clap::{CommandFactory, Parser, Subcommand};
use status::Status;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

/// Columns of help.
const MAX_TERM_WIDTH: usize = 100;

/// io_uring in user space: for programs that use it, where the kernel's is blocked.
#[derive(Debug, Parser)]
#[command(name = "uringlet", version, max_term_width = MAX_TERM_WIDTH)]
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
    Top(top::TopArgs),
    Trace(trace::TraceArgs),
    Chaos(chaos::ChaosArgs),
    Powercut(powercut::PowercutArgs),
    Ublk(ublk::UblkArgs),
    Ublkd(ublk::DaemonArgs),
    Man(documents::ManArgs),
    Completions(documents::CompletionsArgs),
}

// std's `main` would change signal dispositions that `run` passes on to the program.
#[cfg(not(test))]
uringlet_sys::c_main!(start);

#[cfg_attr(test, allow(dead_code, reason = "tests have their own entry point"))]
fn start(arguments: Vec<&CStr>) -> Status {
    match parse(&arguments) {
        Command::Run(args) => run::run(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Ops(args) => ops::ops(&args),
        Command::Stat(args) => stat::stat(&args),
        Command::Top(args) => top::top(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Chaos(args) => chaos::chaos(&args),
        Command::Powercut(args) => powercut::powercut(&args),
        Command::Ublk(args) => ublk::ublk(&args),
        Command::Ublkd(args) => ublk::ublkd(&args),
        Command::Man(args) => documents::man(&args, Cli::command()),
        Command::Completions(args) => documents::completions(&args, &mut Cli::command()),
    }
}

/// The command that the arguments name. `run` is described alone: the program that it starts would
/// wait for the description of all others.
fn parse(arguments: &[&CStr]) -> Command {
    let arguments: Vec<&OsStr> = arguments.iter().map(|argument| OsStr::from_bytes(argument.to_bytes())).collect();
    match arguments.get(1) {
        Some(name) if *name == run::NAME => Command::Run(run::RunArgs::parse(&arguments[1..], run_alone())),
        _ => Cli::parse_from(arguments).command,
    }
}

fn run_alone() -> clap::Command {
    clap::Command::new(run::NAME).bin_name("uringlet run").max_term_width(MAX_TERM_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_alone_is_described_as_among_all_commands() {
        let mut all = Cli::command();
        all.build();
        let among = all.find_subcommand_mut(run::NAME).expect("the command is there");
        let mut alone = run::RunArgs::describe(run_alone());
        alone.build();
        assert_eq!(alone.render_long_help().to_string(), among.render_long_help().to_string());
        assert_eq!(alone.render_usage().to_string(), among.render_usage().to_string());
    }

    #[test]
    fn run_is_the_first_argument() {
        let Command::Run(_) = parse(&[c"uringlet", c"run", c"--quiet", c"--", c"fio", c"run"]) else { panic!("it is not run") };
        let Command::Stat(_) = parse(&[c"uringlet", c"stat", c"1"]) else { panic!("it is not stat") };
    }
}
