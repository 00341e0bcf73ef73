//! The command line of `uringlet bench writes`.

use crate::bench::value_parsers::{deduplicated, seconds};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::engine::WriteEngine;

/// Buffered writes with every engine, and the latency of submit() while a file is slow
///
/// Random writes of 1 KiB in a 10 MB file by queue depth, and sequential and random ones of 4 KiB
/// at depth 1, with uringlet's load generator and with fio, if that is installed. On this machine's
/// filesystem and, as root, on fresh xfs and btrfs images. Then the latency of submit() and of
/// requests to other files while one file blocks for 100 ms per write. Measurements are interleaved
/// in rounds; medians are shown.
///
/// All files are removed at the end. After Ctrl-C, the results so far are printed.
#[derive(Debug, clap::Args)]
pub(in crate::bench) struct BenchWritesArgs {
    /// One short round with few depths, about two minutes; the options below override it
    #[arg(long)]
    quick: bool,

    /// The measurements to run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", default_values_t = WritesPart::ALL)]
    pub(super) parts: Vec<WritesPart>,

    /// The filesystems to write to
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", default_values_t = FsChoice::ALL)]
    fs: Vec<FsChoice>,

    /// The engines to compare
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", default_values_t = WriteEngine::ALL)]
    engines: Vec<WriteEngine>,

    /// Queue depths [default: 1,2,4,8,16,32; quick: 1,8,32]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=1024))]
    depths: Option<Vec<u32>>,

    /// Time of each measurement; latencies take six times as long [default: 0.5; quick: 0.2]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,

    /// Number of rounds [default: 3; quick: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// Directory for files and images; its filesystem is `machine`
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) directory: PathBuf,

    /// Leave fio out
    #[arg(long)]
    pub(super) no_fio: bool,

    /// Also measure while dirty pages are throttled (needs root): vm.dirty_bytes and
    /// vm.dirty_background_bytes are lowered meanwhile, which slows down other writers
    #[arg(long)]
    pub(super) allow_sysctl: bool,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// Plot writes per second by queue depth to this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WritesPart {
    /// 1 KiB random writes by queue depth
    Depths,
    /// 4 KiB sequential and random writes at depth 1
    Blocks,
    /// submit() and requests to other files while one file is slow
    Latency,
}

impl WritesPart {
    const ALL: [Self; 3] = [Self::Depths, Self::Blocks, Self::Latency];
}

/// A filesystem to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FsChoice {
    /// The filesystem of the directory
    Machine,
    /// A fresh xfs on a loop image
    Xfs,
    /// A fresh btrfs on a loop image
    Btrfs,
}

impl FsChoice {
    const ALL: [Self; 3] = [Self::Machine, Self::Xfs, Self::Btrfs];

    /// The type for mkfs and mount; `None` if none is to be made.
    pub(super) fn made(self) -> Option<&'static str> {
        match self {
            Self::Machine => None,
            Self::Xfs => Some("xfs"),
            Self::Btrfs => Some("btrfs"),
        }
    }
}

impl BenchWritesArgs {
    fn or<T>(&self, given: Option<T>, usual: T, quick: T) -> T {
        given.unwrap_or(if self.quick { quick } else { usual })
    }

    pub(super) fn engines(&self) -> Vec<WriteEngine> {
        deduplicated(&self.engines)
    }

    pub(super) fn filesystems(&self) -> Vec<FsChoice> {
        deduplicated(&self.fs)
    }

    pub(super) fn depths(&self) -> Vec<u32> {
        deduplicated(&self.or(self.depths.clone(), vec![1, 2, 4, 8, 16, 32], vec![1, 8, 32]))
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.or(self.seconds, 0.5, 0.2))
    }

    pub(super) fn latency_time(&self) -> Duration {
        self.time() * 6
    }

    pub(super) fn rounds(&self) -> u32 {
        self.or(self.rounds, 3, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: BenchWritesArgs,
    }

    fn parse(args: &[&str]) -> Result<BenchWritesArgs, String> {
        let argv = std::iter::once("bench").chain(args.iter().copied());
        Command::try_parse_from(argv).map(|command| command.args).map_err(|error| error.to_string())
    }

    #[test]
    fn explicit_options_override_quick() {
        let args = parse(&["--quick", "--rounds=2"]).unwrap();
        assert_eq!((args.depths(), args.time(), args.rounds()), (vec![1, 8, 32], Duration::from_millis(200), 2));
        let args = parse(&[]).unwrap();
        assert_eq!((args.depths().len(), args.rounds(), args.engines.len(), args.fs.len()), (6, 3, 7, 3));
    }

    #[test]
    fn lists_are_parsed_and_deduplicated() {
        let args = parse(&["--fs=xfs,machine,xfs", "--engines", "psync,kernel", "--depths=4,2,4"]).unwrap();
        assert_eq!(
            (args.filesystems(), args.engines()),
            (vec![FsChoice::Xfs, FsChoice::Machine], vec![WriteEngine::Psync, WriteEngine::Kernel])
        );
        assert_eq!(args.depths(), [4, 2]);
    }

    #[test]
    fn invalid_values_are_refused() {
        for (args, word) in [("--fs=zfs", "[possible values: machine, xfs, btrfs]"), ("--depths=0", "1..=1024"), ("--seconds=0", "between")]
        {
            assert!(parse(&[args]).unwrap_err().contains(word), "{args}");
        }
    }
}
