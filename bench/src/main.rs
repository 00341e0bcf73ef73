//! One measurement a process, told as a line of JSON. An ordinary io_uring program: it knows nothing of uringlet, which is the point.

mod calls;
mod liburing;
mod loops;

use anyhow::bail;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: uringlet-bench-worker enter --road symbol|const|generic|liburing    ns for an io_uring_enter(2) that does nothing
       uringlet-bench-worker nop --batch N                                 NOPs a second, through liburing
       uringlet-bench-worker write --via ring|pwrite --depth N --file F    random 1 KiB writes a second into F, 10 MB
       uringlet-bench-worker probe                                         0, if there is a ring";

fn main() -> ExitCode {
    match measure() {
        Ok(value) => {
            println!("{{\"value\": {value:.3}}}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let text = format!("{error:#}").replace('\\', "/").replace('"', "'");
            println!("{{\"error\": \"{text}\"}}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, Default)]
struct Args {
    command: String,
    road: String,
    via: String,
    batch: u32,
    depth: u32,
    file: PathBuf,
}

fn parse() -> anyhow::Result<Args> {
    use lexopt::prelude::*;
    let mut args = Args { batch: 1, depth: 1, ..Args::default() };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("road") => args.road = parser.value()?.string()?,
            Long("via") => args.via = parser.value()?.string()?,
            Long("batch") => args.batch = parser.value()?.parse()?,
            Long("depth") => args.depth = parser.value()?.parse()?,
            Long("file") => args.file = parser.value()?.into(),
            Value(word) if args.command.is_empty() => args.command = word.string()?,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(args)
}

fn measure() -> anyhow::Result<f64> {
    let args = parse()?;
    match args.command.as_str() {
        "probe" => calls::probe().map(|()| 0.0),
        "enter" => loops::enter(&args.road),
        "nop" => loops::nop(args.batch),
        "write" if args.via == "pwrite" => loops::pwrites(&args.file),
        "write" if args.via == "ring" => loops::ring_writes(&args.file, args.depth),
        _ => bail!("{USAGE}"),
    }
}
