//! One measurement a process, told as a line of JSON. An ordinary io_uring program: it knows nothing of uringlet, which is the point.

mod aio;
mod calls;
mod echo;
mod latency;
mod liburing;
mod loops;
mod slow_fs;
mod timing;
mod ublk;
mod writes;

use anyhow::bail;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use timing::Metrics;
use writes::Pattern;

const USAGE: &str = "\
usage: uringlet-bench-worker enter --via symbol|const|generic|liburing    ns for an io_uring_enter(2) that does nothing
       uringlet-bench-worker nop --batch N                                 NOPs a second, through liburing
       uringlet-bench-worker write --via ring|pwrite|libaio|posixaio --file F [--depth N] [--block BYTES] [--size BYTES] [--sequential]
                                   [--seconds S]                           writes a second into F; random 1 KiB ones, 10 MB
       uringlet-bench-worker latency --slow F --directory D [--depth N] [--block BYTES] [--size BYTES] [--seconds S] [--reads]
                                                                           of submit(), and of files in D, while writes to F are slow; us
       uringlet-bench-worker slow-fs --directory D [--delay-ms N]          mounts a file D/slow, whose writes take so long, until it is killed
       uringlet-bench-worker echo-server --via ring|epoll [--connections N] [--size BYTES] [--defer-taskrun] [--registered-files]
                                   [--async-workers N]                     echoes over TCP on the loopback, tells its port, until it is killed
       uringlet-bench-worker echo [--connections N] [--size BYTES] [--seconds S] [--pause-ms N] -- SERVER ARGS...
                                                                           starts such a server and loads it; requests a second
       uringlet-bench-worker ublk [--op read|write|flush] [--sequential] [--depth N] [--batch N] [--block BYTES] [--via plain|get-data|copy]
                                   [--seconds S]                           a null ublk device served and used in this process; requests a second
       uringlet-bench-worker nbd --socket F [--op read|write] [--depth N] [--block BYTES] [--seconds S]
                                                                           the same of an NBD server on a unix socket
       uringlet-bench-worker nbd-server --socket F                         such a server, of a null ublk device in its own process, until it is killed
       uringlet-bench-worker block --device F ...                          the same of a block device, whose content is lost
       uringlet-bench-worker probe                                         0, if there is a ring";

fn main() -> ExitCode {
    match measure() {
        Ok(metrics) => {
            println!("{}", metrics.json_line());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let text: String = format!("{error:#}").replace('\\', "/").replace('"', "'").chars().filter(|c| !c.is_control()).collect();
            println!("{{\"error\": \"{text}\"}}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug)]
struct WorkerArgs {
    command: String,
    via: String,
    batch: u32,
    depth: u32,
    block: usize,
    size: u64,
    pattern: Pattern,
    others: latency::OtherFilesOp,
    time: Duration,
    delay: Duration,
    file: PathBuf,
    directory: PathBuf,
}

impl Default for WorkerArgs {
    fn default() -> Self {
        Self {
            command: String::new(),
            via: String::new(),
            batch: 1,
            depth: 1,
            block: 1024,
            size: 10 << 20,
            pattern: Pattern::Random,
            others: latency::OtherFilesOp::Writes,
            time: timing::DEFAULT_TIME,
            delay: Duration::from_millis(100),
            file: PathBuf::new(),
            directory: PathBuf::new(),
        }
    }
}

fn parse() -> anyhow::Result<WorkerArgs> {
    use lexopt::prelude::*;
    let mut args = WorkerArgs::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("via") => args.via = parser.value()?.string()?,
            Long("batch") => args.batch = parser.value()?.parse()?,
            Long("depth") => args.depth = parser.value()?.parse()?,
            Long("block") => args.block = parser.value()?.parse()?,
            Long("size") => args.size = parser.value()?.parse()?,
            Long("sequential") => args.pattern = Pattern::Sequential,
            Long("reads") => args.others = latency::OtherFilesOp::Reads,
            Long("seconds") => args.time = Duration::try_from_secs_f64(parser.value()?.parse()?)?,
            Long("delay-ms") => args.delay = Duration::from_millis(parser.value()?.parse()?),
            Long("file" | "slow") => args.file = parser.value()?.into(),
            Long("directory") => args.directory = parser.value()?.into(),
            Value(word) if args.command.is_empty() => args.command = word.string()?,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(args)
}

fn measure() -> anyhow::Result<Metrics> {
    match std::env::args().nth(1).as_deref() {
        Some("echo") => return echo::load(),
        Some("echo-server") => return echo::serve(),
        Some("ublk") => return ublk::run_in_process(),
        Some("nbd-server") => return ublk::serve_nbd(),
        Some(kind @ ("nbd" | "block")) => return ublk::run_client(kind == "nbd"),
        _ => {}
    }
    let args = parse()?;
    match args.command.as_str() {
        "probe" => calls::probe().map(|()| Metrics::value(0.0)),
        "enter" => loops::enter(&args.via).map(Metrics::value),
        "nop" => loops::nop(args.batch).map(Metrics::value),
        "write" => write(args),
        "latency" => latency(args),
        "slow-fs" => slow_fs::serve(&args.directory, args.delay).map(|()| Metrics::default()),
        _ => bail!("{USAGE}"),
    }
}

fn write(args: WorkerArgs) -> anyhow::Result<Metrics> {
    let WorkerArgs { file, block, size, pattern, depth, time, .. } = args;
    let workload = writes::WriteWorkload { file, block, size, pattern, depth, time };
    writes::measure(&args.via, &workload).map(timing::Throughput::into_metrics)
}

fn latency(args: WorkerArgs) -> anyhow::Result<Metrics> {
    latency::measure(&latency::LatencyWorkload {
        slow: args.file,
        directory: args.directory,
        slow_len: args.size,
        slow_block: args.block,
        others: args.others,
        slow_depth: args.depth,
        time: args.time,
    })
}
