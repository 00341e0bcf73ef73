//! `uringlet bench`: numbers for this machine, beside the kernel's own ring where there is one.
//!
//! Each number is a process of its own: `uringlet-bench-worker` (an ordinary io_uring program) or fio, run as it is, under `uringlet run`, or with the
//! drop-in `liburing.so.2`. Rounds are interleaved, so that what else the machine does hurts all of them alike.

mod host;
mod json;
mod plan;
mod report;
mod worker;

use std::path::{Path, PathBuf};

use crate::Status;

/// Measure uringlet on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Ring(RingArgs),
}

/// Cost of a call by each road, NOP rates and small buffered writes, beside the kernel's ring
#[derive(Debug, clap::Args)]
pub(crate) struct RingArgs {
    /// How often everything is measured; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Where the file to write to is made; its filesystem decides much
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Leave fio out
    #[arg(long)]
    no_fio: bool,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn bench(args: &Args) -> Status {
    let What::Ring(ring) = &args.what;
    match run(ring) {
        Ok(()) => 0,
        Err(message) => {
            eprintln!("uringlet bench: {message}");
            1
        }
    }
}

fn run(args: &RingArgs) -> Result<(), String> {
    let tools = worker::Tools::find()?;
    let host = host::Host::look(&args.directory);
    let file = args.directory.join(format!("uringlet-bench-{}", std::process::id()));
    let mut plan = plan::plan(&tools, &file, !args.no_fio);
    println!("{host}");
    let measured = measure(&mut plan, args.rounds, &file);
    let _ = std::fs::remove_file(&file);
    measured?;
    print!("{}", report::tables(&plan));
    if let Some(path) = &args.json {
        write(path, &json::document(&host, args.rounds, &plan))?;
    }
    Ok(())
}

/// All series, one after the other, so many times.
fn measure(plan: &mut plan::Plan, rounds: u32, file: &Path) -> Result<(), String> {
    let total = plan.series.len() * rounds as usize;
    let mut done = 0;
    for round in 1..=rounds {
        for series in &mut plan.series {
            done += 1;
            eprint!("\r\x1b[K[{done}/{total}] round {round}: {}, {}, {}", series.group.title(), series.row, series.column);
            series.measure();
            // fio makes a file of its own size.
            std::fs::remove_file(file).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(format!("cannot remove {}: {error}", file.display())),
            })?;
        }
    }
    eprint!("\r\x1b[K");
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
