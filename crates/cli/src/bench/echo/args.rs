//! The command line of `uringlet bench echo`.

use crate::bench::value_parsers::{deduplicated, seconds};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

/// An echo server on the kernel's ring, on uringlet and on epoll
///
/// Each number comes from a server of its own, loaded over TCP on the loopback by one thread of
/// another process, with one message in flight per connection and every byte compared: requests per
/// second, p50 and p99 of their latency at the client, the server's CPU time per request, and its
/// highest number of threads. The largest number of connections with the smallest messages is also
/// measured with IOSQE_ASYNC and random pauses between messages, so that workers wait on some
/// connections while others have work. Measurements are interleaved in rounds; medians are shown.
/// Load generator and server want a CPU each.
#[derive(Debug, clap::Args)]
pub(in crate::bench) struct BenchEchoArgs {
    /// One short round with few numbers, about 15 seconds; the options below override it
    #[arg(long)]
    quick: bool,

    /// How the server uses its ring
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", default_values_t = EchoMode::ALL)]
    modes: Vec<EchoMode>,

    /// Numbers of connections [default: 1,100,1000; quick: 100,1000]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Option<Vec<u32>>,

    /// Message lengths in bytes [default: 12,16,4096; quick: 12]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    sizes: Option<Vec<u32>>,

    /// Mean pause between messages where connections pause; 0 leaves those measurements out
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(super) pause_ms: u32,

    /// Time of each measurement [default: 0.3; quick: 0.2]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,

    /// Number of rounds [default: 5; quick: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// Plot requests per second by connections to this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

/// How the server uses its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EchoMode {
    /// A plain ring, and epoll for comparison
    Default,
    /// IORING_SETUP_DEFER_TASKRUN and SINGLE_ISSUER
    DeferTaskrun,
    /// Sockets as registered files
    RegisteredFiles,
    /// IOSQE_ASYNC, registered files, at most 20 unbounded workers
    #[value(name = "async-20")]
    Async20,
    /// IOSQE_ASYNC, registered files, at most 4 unbounded workers
    #[value(name = "async-4")]
    Async4,
}

impl EchoMode {
    const ALL: [Self; 5] = [Self::Default, Self::DeferTaskrun, Self::RegisteredFiles, Self::Async20, Self::Async4];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::DeferTaskrun => "DEFER_TASKRUN",
            Self::RegisteredFiles => "registered files",
            Self::Async20 => "IOSQE_ASYNC, 20 workers",
            Self::Async4 => "IOSQE_ASYNC, 4 workers",
        }
    }

    /// The server's options.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::DeferTaskrun => &["--defer-taskrun"],
            Self::RegisteredFiles => &["--registered-files"],
            Self::Async20 => &["--registered-files", "--async-workers=20"],
            Self::Async4 => &["--registered-files", "--async-workers=4"],
        }
    }

    pub(super) fn is_async(self) -> bool {
        matches!(self, Self::Async20 | Self::Async4)
    }
}

impl BenchEchoArgs {
    fn or<T>(&self, given: Option<T>, usual: T, quick: T) -> T {
        given.unwrap_or(if self.quick { quick } else { usual })
    }

    pub(super) fn modes(&self) -> Vec<EchoMode> {
        deduplicated(&self.modes)
    }

    pub(super) fn connections(&self) -> Vec<u32> {
        deduplicated(&self.or(self.connections.clone(), vec![1, 100, 1000], vec![100, 1000]))
    }

    pub(super) fn sizes(&self) -> Vec<u32> {
        deduplicated(&self.or(self.sizes.clone(), vec![12, 16, 4096], vec![12]))
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.or(self.seconds, 0.3, 0.2))
    }

    pub(super) fn rounds(&self) -> u32 {
        self.or(self.rounds, 5, 1)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: BenchEchoArgs,
    }

    pub(in crate::bench::echo) fn parse(args: &[&str]) -> Result<BenchEchoArgs, String> {
        let argv = std::iter::once("bench").chain(args.iter().copied());
        Command::try_parse_from(argv).map(|command| command.args).map_err(|error| error.to_string())
    }

    #[test]
    fn explicit_options_override_quick() {
        let args = parse(&["--quick", "--rounds=2", "--connections=5,1,5"]).unwrap();
        assert_eq!((args.connections(), args.sizes(), args.rounds()), (vec![5, 1], vec![12], 2));
        let args = parse(&[]).unwrap();
        assert_eq!((args.connections(), args.sizes(), args.modes().len()), (vec![1, 100, 1000], vec![12, 16, 4096], 5));
        assert_eq!((args.time(), args.rounds()), (Duration::from_millis(300), 5));
    }

    #[test]
    fn modes_are_parsed_by_name() {
        let args = parse(&["--modes=async-20,default,async-20"]).unwrap();
        assert_eq!(args.modes(), [EchoMode::Async20, EchoMode::Default]);
    }

    #[test]
    fn invalid_values_are_refused() {
        for (args, word) in [("--modes=fast", "defer-taskrun"), ("--connections=0", "1..=10000"), ("--sizes=100000", "1..=65536")] {
            assert!(parse(&[args]).unwrap_err().contains(word), "{args}");
        }
        assert!(parse(&["--seconds=0"]).unwrap_err().contains("between"));
    }
}
