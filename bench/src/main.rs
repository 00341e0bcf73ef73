//! Runs one measurement and prints its result as a line of JSON.
//!
//! An ordinary io_uring program: the same code runs on the kernel's rings and on uringlet's.
#![deny(unsafe_code)]

mod armed;
mod echo;
mod latency;
mod latency_histogram;
mod loops;
mod meta;
mod reads;
mod rings;
mod slow_fs;
mod start;
mod sys;
mod timing;
mod ublk;
mod wakeups;
mod workload;
mod writes;

use anyhow::bail;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use timing::Metrics;
use workload::{FileWorkload, Pattern};

const USAGE: &str = "\
usage: uringlet-bench-worker enter --via symbol|const|generic|made|liburing
           duration of an io_uring_enter(2) that does nothing, ns
       uringlet-bench-worker nop --batch N
           NOPs per second, through liburing
       uringlet-bench-worker write --via ring|pwrite|libaio|posixaio --file F [--depth N]
               [--block BYTES] [--size BYTES] [--sequential] [--seconds S]
           writes per second to F; by default random ones of 1 KiB in 10 MB
       uringlet-bench-worker read --via ring|pread --op cached|direct|cold --file F [--depth N]
               [--block BYTES] [--size BYTES] [--seconds S]
           time of a random read of F, ns
       uringlet-bench-worker armed --via ring|calls --op insert|remove|cancel|link-timeout
               [--batch ARMED] [--seconds S]
           time of a TIMEOUT, its removal, or a cancellation beside so many armed requests, ns
       uringlet-bench-worker rings --op make --batch ENTRIES | --op rss|mappings|descriptors --batch N
           time to make and close a ring, ns; or what N rings with a waiting read take
       uringlet-bench-worker wakeup --via ring|calls --op pipe|message [--seconds S]
           time in which two threads have woken each other, ns
       uringlet-bench-worker latency --slow F --directory D [--depth N] [--block BYTES]
               [--size BYTES] [--seconds S] [--reads]
           latency of submit() and of files in D while writes to F are slow, us
       uringlet-bench-worker meta --via calls|ring --op statx|open|unlink|create --directory D
               [--batch N] [--seconds S]
           time of an operation on a file in D, N submitted together, ns
       uringlet-bench-worker slow-fs --directory D [--delay-ms N]
           mounts a filesystem with the file D/slow, each write to which takes N ms, until killed
       uringlet-bench-worker echo-server --via ring|epoll [--connections N] [--size BYTES]
               [--defer-taskrun] [--registered-files] [--async-workers N]
           TCP echo server on the loopback; prints its port and serves until killed
       uringlet-bench-worker echo [--connections N] [--size BYTES] [--seconds S] [--pause-ms N]
               -- SERVER ARGS...
           starts such a server and loads it; requests per second
       uringlet-bench-worker ublk [--op read|write|flush] [--sequential] [--depth N] [--batch N]
               [--block BYTES] [--via plain|get-data|copy] [--seconds S]
           a null ublk device, its server and its client in one process; requests per second
       uringlet-bench-worker nbd --socket F [--op read|write] [--depth N] [--block BYTES]
               [--seconds S]
           the same for an NBD server on a unix socket
       uringlet-bench-worker nbd-server --socket F
           NBD server of a null ublk device in this process, until killed
       uringlet-bench-worker block --device F ...
           the same for a block device, whose content is lost
       uringlet-bench-worker start [--variables N] -- PROGRAM ARGS...
           fork, exec and end of a program with N more variables in its environment, us
       uringlet-bench-worker probe
           exits with 0 if io_uring_setup(2) succeeds";

fn main() -> ExitCode {
    match measure() {
        Ok(metrics) => {
            println!("{}", metrics.into_json());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{}", serde_json::json!({ "error": format!("{error:#}") }));
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug)]
struct WorkerArgs {
    command: String,
    via: String,
    op: String,
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
            op: String::new(),
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

impl WorkerArgs {
    fn into_workload(self) -> FileWorkload {
        let Self { file, block, size, pattern, depth, time, .. } = self;
        FileWorkload { file, block, size, pattern, depth, time }
    }
}

fn parse() -> anyhow::Result<WorkerArgs> {
    use lexopt::prelude::*;
    let mut args = WorkerArgs::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("via") => args.via = parser.value()?.string()?,
            Long("op") => args.op = parser.value()?.string()?,
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
        Some("nbd") => return ublk::run_nbd_client(),
        Some("block") => return ublk::run_block_client(),
        Some("start") => return start::measure(),
        _ => {}
    }
    let args = parse()?;
    match args.command.as_str() {
        "probe" => sys::enter::probe().map(|()| Metrics::value(0.0)),
        "enter" => loops::enter(&args.via).map(Metrics::value),
        "nop" => loops::nop(args.batch).map(Metrics::value),
        "write" => writes::measure(&args.via.clone(), &args.into_workload()).map(timing::Throughput::into_metrics),
        "read" => reads::measure(&args.via.clone(), &args.op.clone(), &args.into_workload()),
        "armed" => armed::measure(&args.via, &args.op, args.batch, args.time),
        "rings" => rings::measure(&args.op, args.batch, args.time),
        "wakeup" => wakeups::measure(&args.via, &args.op, args.time),
        "latency" => latency(args),
        "meta" => {
            let workload = meta::MetaWorkload { directory: args.directory, batch: args.batch, time: args.time };
            meta::measure(&args.via, &args.op, &workload)
        }
        "slow-fs" => slow_fs::serve(&args.directory, args.delay).map(|()| Metrics::default()),
        _ => bail!("{USAGE}"),
    }
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
