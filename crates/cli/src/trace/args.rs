//! The command line of `uringlet trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use uringlet_sys::trace::{DROPS_WHEN_FULL, TRACES_CALLS, TracePolicy};
use uringlet_trace::text::{LineStyle, TimeStyle};

/// Show what programs ask of their rings
///
/// Runs PROGRAM as `uringlet run` does and prints a line for each request of it and of its
/// children: its arguments by name, its files by path, its result and how it was executed. With -p
/// it shows the requests of a process that runs under uringlet already, until that ends or Ctrl-C.
/// Lines go to standard error. The exit status is the program's, 128 and the signal that has
/// killed it, or 125 if there is no trace.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct TraceArgs {
    /// Attach to this process, which runs under uringlet, instead of starting a program. May be
    /// given several times. Takes the right to trace the process
    #[arg(short = 'p', long = "attach", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), conflicts_with = "command", required_unless_present = "command")]
    pub(super) pids: Vec<i32>,

    /// Leave the program's rings to the kernel's io_uring, and look at what goes through them: for
    /// a problem that only the kernel's ring has
    #[arg(long, conflicts_with = "pids")]
    pub(super) kernel: bool,

    /// Show only some requests: op=READ,%net  fd=3,4  path=/data/*  failed. `!` behind `=` means
    /// all others. Of several expressions all have to hold
    #[arg(short = 'e', value_name = "EXPRESSION")]
    pub(super) expressions: Vec<String>,

    /// Write to a file instead of standard error
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Print tables instead of requests: by opcode and by file the number of results, errors,
    /// bytes, and latencies
    #[arg(short = 'c', long)]
    pub(super) summary: bool,

    /// Bytes of each buffer to show
    #[arg(short = 's', long = "string-limit", value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u32).range(0..=65536))]
    pub(super) string_limit: u32,

    /// Trace the program's children, too, as in strace. It is so without the option
    #[arg(short = 'f', long = "follow-forks", conflicts_with = "pids")]
    _follow_forks: bool,

    /// Show how long each request took, from its submission to its CQE
    #[arg(short = 'T', long)]
    pub(super) latency: bool,

    /// Show when each request was submitted (UTC); -tt with microseconds
    #[arg(short = 't', action = clap::ArgAction::Count)]
    pub(super) time: u8,

    /// Show calls of io_uring_enter(2) and io_uring_register(2), too
    #[arg(long)]
    pub(super) calls: bool,

    /// One JSON object a line; with -c one object
    #[arg(long)]
    pub(super) json: bool,

    /// Also write a file that ui.perfetto.dev opens
    #[arg(long, value_name = "FILE")]
    pub(super) perfetto: Option<PathBuf>,

    /// Also write one page with heat maps of latencies, the slowest requests, files, threads and
    /// chains, for any browser. It is written at the end
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,

    /// Do not let the program wait while the trace's buffer is full: drop records, and say how
    /// many
    #[arg(long)]
    pub(super) drop: bool,

    /// Records that the buffer holds, a power of two; each takes 128 bytes
    #[arg(long, value_name = "RECORDS", default_value_t = 65536, value_parser = power_of_two)]
    pub(super) buffer: u32,

    /// The program, looked up in PATH, and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    pub(super) command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  uringlet trace -- fio --ioengine=io_uring job.fio
  uringlet trace -c -- qemu-img convert -m 16 a.qcow2 b.raw
  uringlet trace -T -e %net -e failed -p 4711
  uringlet trace -- uringlet run --mode=uringlet -- program
  uringlet trace --kernel -T -- program
  uringlet trace -c --html trace.html -- program

A line: [pid THREAD] ring INDEX: OPCODE(arguments) user_data=... IOSQE_... chain=NUMBER.PLACE = result [road]
Roads: fast path (no request was built), inline (the submitter), poll, io-wq, AIO, uringlet, timer, command;
kernel (--kernel: the way is not seen, and latencies end when the CQE is seen).
docs/trace.md explains lines, filters and the fields of --json.";

impl TraceArgs {
    pub(super) const fn slots(&self) -> u32 {
        self.buffer
    }

    pub(super) fn policy(&self) -> TracePolicy {
        let drops = if self.drop { DROPS_WHEN_FULL } else { 0 };
        let calls = if self.calls { TRACES_CALLS } else { 0 };
        TracePolicy {
            flags: drops | calls,
            string_limit: if self.summary && self.perfetto.is_none() && self.html.is_none() { 0 } else { self.string_limit },
        }
    }

    pub(super) fn style(&self) -> LineStyle {
        let time = match self.time {
            0 => TimeStyle::None,
            1 => TimeStyle::Seconds,
            _ => TimeStyle::Microseconds,
        };
        LineStyle { time, has_latency: self.latency }
    }
}

fn power_of_two(text: &str) -> Result<u32, String> {
    let number: u32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_power_of_two() && (64..=1 << 20).contains(&number) {
        Ok(number)
    } else {
        Err("a power of two from 64 to 1048576".to_owned())
    }
}
