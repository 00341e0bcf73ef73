//! `uringlet powercut`: a program is killed as by a power cut, and what it had not made durable may
//! be gone.
//!
//! ```text
//!   args -> program: runs it, asked by the kernel before each call that changes a file
//!             calls: what such a call changes -> disk: base, live (trees), journal
//!           at the chosen event: SIGKILL; disk::cut -> folder: the files are written -> the check
//! ```

mod args;
mod calls;
mod disk;
mod folder;
mod program;
mod tree;
mod watched;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use signal_hook::consts::{SIGINT, SIGTERM};

use uringlet_sys::fault_plan::draw;

use crate::status::Status;
use args::CutPlace;
pub(crate) use args::PowercutArgs;
use disk::CutCount;
use folder::Folder;
use program::{CutProgram, RunLimits, Stop};

/// The check has failed.
const BROKEN: Status = 1;
/// Nothing could be tried.
const FAILED: Status = 125;
const INTERRUPTED: Status = 130;

pub(crate) fn powercut(args: &PowercutArgs) -> Status {
    match try_cuts(args) {
        Ok(status) => status,
        Err(message) => {
            eprintln!("uringlet powercut: {message}");
            FAILED
        }
    }
}

/// One cut.
#[derive(Clone, Copy, Debug)]
struct PowerCut {
    /// Before this event, from 1.
    at: u64,
    seed: u64,
}

fn try_cuts(args: &PowercutArgs) -> Result<Status, String> {
    let folder = Folder::open(args.dir(), args.fsync())?;
    let limits = RunLimits { timeout: args.timeout(), stop: Arc::default() };
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&limits.stop)).map_err(|error| format!("cannot handle signals: {error}"))?;
    }
    let tried = try_in(args, &folder, &limits);
    if limits.stop.load(Ordering::Relaxed) {
        folder.restore()?;
        return Ok(INTERRUPTED);
    }
    tried
}

fn try_in(args: &PowercutArgs, folder: &Folder, limits: &RunLimits) -> Result<Status, String> {
    let cut_of: Box<dyn Fn(u64) -> PowerCut> = match args.at() {
        CutPlace::At(at) => Box::new(move |nth| PowerCut { at, seed: args.seed() + nth }),
        CutPlace::Random => {
            let events = count_events(args, folder, limits)?;
            // Behind the last event, too.
            Box::new(move |nth| {
                let seed = args.seed() + nth;
                PowerCut { at: 1 + draw([seed, 0, 0, 1]) % (events + 1), seed }
            })
        }
    };
    let (mut sum, cuts) = (CutCount::default(), args.cuts());
    for nth in 0..cuts {
        let cut = cut_of(nth);
        let count = cut_once(args, folder, cut, limits)?;
        for (sum, count) in [(&mut sum.kept, count.kept), (&mut sum.lost, count.lost), (&mut sum.torn, count.torn)] {
            *sum += count;
        }
        if !passes(args)? {
            println!("cut {} of {cuts} breaks it, before event {}: {}", nth + 1, cut.at, said(count));
            println!("  repeat: {}", args.repeat(cut.at, cut.seed));
            println!("  {} is as after the cut", args.dir().display());
            return Ok(BROKEN);
        }
        if cuts > 1 {
            folder.restore()?;
        }
    }
    let survived = if args.check().is_some() { "survived" } else { "made" };
    println!("{cuts} cuts {survived}: {}", said(sum));
    Ok(0)
}

fn said(count: CutCount) -> String {
    let CutCount { kept, lost, torn } = count;
    format!("of the changes that no fsync covered {kept} kept, {lost} lost, {torn} torn")
}

/// The program as a whole, without a cut.
fn count_events(args: &PowercutArgs, folder: &Folder, limits: &RunLimits) -> Result<u64, String> {
    let mut program = CutProgram::start(args.command(), folder, u64::MAX, limits)?;
    let end = program.run()?;
    folder.restore()?;
    match end {
        Stop::Ended(0) => Ok(program.events()),
        Stop::Ended(status) => Err(format!("without a cut the program ends with status {status} already: it has to succeed")),
        Stop::Interrupted => Err("interrupted".to_owned()),
        Stop::Cut => Err("more events than can be counted".to_owned()),
    }
}

fn cut_once(args: &PowercutArgs, folder: &Folder, cut: PowerCut, limits: &RunLimits) -> Result<CutCount, String> {
    let mut program = CutProgram::start(args.command(), folder, cut.at, limits)?;
    if program.run()? == Stop::Interrupted {
        return Err("interrupted".to_owned());
    }
    let (tree, count) = program.disk().cut(cut.seed);
    folder.write(&tree)?;
    Ok(count)
}

/// Whether the check succeeds. Without one: always.
fn passes(args: &PowercutArgs) -> Result<bool, String> {
    let Some(check) = args.check() else { return Ok(true) };
    let status = Command::new("sh").arg("-c").arg(check).status().map_err(|error| format!("cannot start sh: {error}"))?;
    Ok(status.success())
}
