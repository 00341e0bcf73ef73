//! The engine's worker pool beside the same pool under one lock. Runs one measurement and prints
//! its result as a line of JSON.
//!
//! Both pools use the same lists (`io_wq::WorkList`), the same rules for waking workers
//! (`io_wq::WorkerCounts`) and the same threads; they differ in which lock guards what. The process
//! uses the engine's heap, since the pool's threads have no libc.
#![forbid(unsafe_code)]

mod load;
mod one_lock;
mod phases;

use anyhow::{bail, ensure};
use load::{Classes, PoolLoad};
use one_lock::SingleLock;
use phases::SplitLocks;
use std::process::ExitCode;
use uringlet_sys::heap::Heap;

#[global_allocator]
static HEAP: Heap = Heap::new();

const USAGE: &str = "\
usage: uringlet-bench-pool --locks one|split --classes bound|unbound|both [--workers N] [--work-ns N]

Two threads insert, N workers per class consume. Prints million items per second, and the time that
an item waits for locks, ns: inserting with blocked workers, consuming without submitters, and both
at once (flow).";

#[derive(Debug)]
struct PoolArgs {
    locks: String,
    load: PoolLoad,
}

fn parse() -> anyhow::Result<PoolArgs> {
    use lexopt::prelude::*;
    let (mut locks, mut classes, mut workers, mut work_ns) = (String::new(), None, 1, 200);
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("locks") => locks = parser.value()?.string()?,
            Long("classes") => classes = Classes::of(&parser.value()?.string()?),
            Long("workers") => workers = parser.value()?.parse()?,
            Long("work-ns") => work_ns = parser.value()?.parse()?,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    let Some(classes) = classes else { bail!("{USAGE}") };
    ensure!((1..=64).contains(&workers), "1 to 64 workers a class, not {workers}");
    ensure!(work_ns <= 1_000_000, "work of at most 1,000,000 ns, not {work_ns}");
    Ok(PoolArgs { locks, load: PoolLoad::new(classes, workers, work_ns) })
}

fn measure() -> anyhow::Result<String> {
    let PoolArgs { locks, load } = parse()?;
    match locks.as_str() {
        "one" => phases::run(&SingleLock::new(load.limits()), load),
        "split" => phases::run(&SplitLocks::new(load.limits()), load),
        _ => bail!("{USAGE}"),
    }
}

fn main() -> ExitCode {
    match measure() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let text = format!("{error:#}").replace('\\', "/").replace('"', "'").replace('\n', " ");
            println!("{{\"error\": \"{text}\"}}");
            ExitCode::FAILURE
        }
    }
}
