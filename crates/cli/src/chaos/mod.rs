//! `uringlet chaos`: a program under many seeds of `--legal`, and the least that breaks it.
//!
//! ```text
//!   args -> runs of seeds (workers) -> failures -> shrink: runs of fewer decisions -> show
//!                 run: `uringlet run` with a plan, and a trace that has its decisions
//! ```

mod args;
mod decision;
mod run;
mod seeds;
mod show;
mod shrink;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::status::Status;
pub(crate) use args::ChaosArgs;
use run::{End, Runner};

/// Some seed fails.
const BROKEN: Status = 1;
/// Nothing could be tried.
const FAILED: Status = 125;
/// Ctrl-C came before all seeds were tried.
const INTERRUPTED: Status = 130;

pub(crate) fn chaos(args: &ChaosArgs) -> Status {
    match try_seeds(args) {
        Ok(status) => status,
        Err(message) => {
            eprintln!("uringlet chaos: {message}");
            FAILED
        }
    }
}

fn try_seeds(args: &ChaosArgs) -> Result<Status, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| format!("cannot handle signals: {error}"))?;
    }
    let runner = Runner::new(args, Arc::clone(&stop))?;
    let plain = runner.run(None)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(INTERRUPTED);
    }
    if plain.end != End::Exited(0) {
        show::output(&plain);
        return Err(format!("without a fault the program {} already: chaos needs one that succeeds", plain.end));
    }
    let tried = seeds::try_all(args, &runner)?;
    show::summary(args, &tried);
    let mut failures = tried.failures;
    failures.sort_by_key(|failure| failure.seed);
    for failure in failures.iter().take(args.shrunk()) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let shrunk = shrink::shrink(args, &runner, failure)?;
        show::failure(args, failure, &shrunk);
    }
    Ok(match (failures.is_empty(), stop.load(Ordering::Relaxed)) {
        (_, true) => INTERRUPTED,
        (false, false) => BROKEN,
        (true, false) => 0,
    })
}
