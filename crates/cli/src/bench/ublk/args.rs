//! The command line of `uringlet bench ublk`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::bench::value_parsers::{deduplicated, seconds};

/// Block devices served by a program: NEED_GET_DATA, and a null device through each interface
///
/// get-data: 4 KiB writes to a null device whose server and client are two threads of one process,
/// with and without NEED_GET_DATA. copies: random writes of 4 KiB to 1 MiB into a buffer that is
/// taken from a pool when the write arrives, through NEED_GET_DATA or through a copy by the server.
/// paths: a null device in one process, over NBD on a unix socket (beside nbdkit and
/// qemu-storage-daemon, if they are installed) and, for root, as a block device. Measurements are
/// interleaved in rounds; medians are shown. Server and client want a CPU each.
#[derive(Debug, clap::Args)]
pub(in crate::bench) struct BenchUblkArgs {
    /// One short round, about 15 seconds; the options below override it
    #[arg(long)]
    quick: bool,

    /// The measurements to run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST", default_values_t = UblkPart::ALL)]
    parts: Vec<UblkPart>,

    /// Sizes of copies in KiB [default: 4,64,128,256,512,1024; quick: 4,64,1024]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=1024))]
    sizes: Option<Vec<u32>>,

    /// Time of each measurement [default: 0.5; quick: 0.2]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,

    /// Number of rounds [default: 5; quick: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// Plot latency by size, and requests per second by queue depth, to this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum UblkPart {
    /// The cost of NEED_GET_DATA
    GetData,
    /// The copies that NEED_GET_DATA saves
    Copies,
    /// A null device in one process, over NBD, and as a block device
    Paths,
}

impl UblkPart {
    const ALL: [Self; 3] = [Self::GetData, Self::Copies, Self::Paths];
}

impl BenchUblkArgs {
    fn or<T>(&self, given: Option<T>, usual: T, quick: T) -> T {
        given.unwrap_or(if self.quick { quick } else { usual })
    }

    pub(super) fn has(&self, part: UblkPart) -> bool {
        self.parts.contains(&part)
    }

    /// Sizes of copies, KiB.
    pub(super) fn sizes(&self) -> Vec<u32> {
        deduplicated(&self.or(self.sizes.clone(), vec![4, 64, 128, 256, 512, 1024], vec![4, 64, 1024]))
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.or(self.seconds, 0.5, 0.2))
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
        args: BenchUblkArgs,
    }

    pub(in crate::bench::ublk) fn parse(args: &[&str]) -> Result<BenchUblkArgs, String> {
        let argv = std::iter::once("bench").chain(args.iter().copied());
        Command::try_parse_from(argv).map(|command| command.args).map_err(|error| error.to_string())
    }

    #[test]
    fn explicit_options_override_quick() {
        let args = parse(&["--quick", "--rounds=2", "--parts=copies,paths"]).unwrap();
        assert_eq!((args.sizes(), args.time(), args.rounds()), (vec![4, 64, 1024], Duration::from_millis(200), 2));
        assert!(!args.has(UblkPart::GetData) && args.has(UblkPart::Copies) && args.has(UblkPart::Paths));
        assert_eq!((parse(&[]).unwrap().sizes().len(), parse(&[]).unwrap().parts.len()), (6, 3));
    }

    #[test]
    fn invalid_values_are_refused() {
        for (args, word) in [("--parts=all", "[possible values: get-data, copies, paths]"), ("--sizes=2000", "1..=1024")] {
            assert!(parse(&[args]).unwrap_err().contains(word), "{args}");
        }
    }
}
