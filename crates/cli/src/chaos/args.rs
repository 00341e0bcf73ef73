//! The command line of `uringlet chaos`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::time::Duration;

use uringlet_sys::fault_plan::{DecisionRange, FaultPlan};

use crate::run::FaultArgs;

/// Try a program under many seeds of a kernel that does the worst that the ABI allows
///
/// Runs PROGRAM once for each seed as `uringlet run --legal SEED` does. A seed fails if the program
/// does not exit with status 0, is killed by a signal, or takes too long. Of each failure the
/// smallest set of decisions that still fails is looked for, and printed with the requests that
/// they were about and a command that repeats it. The exit status is 0 if no seed fails, 1 if one
/// does, 130 after Ctrl-C, and 125 if nothing could be tried.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ChaosArgs {
    /// The seeds: FIRST..LAST, both of them too, or one number
    #[arg(long, value_name = "SEEDS", default_value = "1..100", value_parser = seeds)]
    seeds: Seeds,

    /// So many programs at a time. They share the directory that they run in
    #[arg(short = 'j', long, value_name = "N", default_value = "1")]
    jobs: NonZeroUsize,

    /// A program that takes longer hangs: seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = timeout)]
    timeout: f64,

    /// Also do this in each run, as `uringlet run --inject`; chance is drawn from the seed
    #[arg(long, value_name = "EXPRESSION")]
    inject: Vec<String>,

    /// Look for the smallest set of decisions of so many failing seeds
    #[arg(long, value_name = "SEEDS", default_value_t = 3)]
    shrink: usize,

    /// Runs that the search for a smaller set may take, of each seed
    #[arg(long, value_name = "N", default_value_t = 300)]
    shrink_runs: u32,

    /// The program, looked up in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  uringlet chaos --seeds 1..1000 -j 4 -- ./test-my-storage
  uringlet chaos --timeout 5 -- sh -c 'rm -rf data && ./server --selftest data'
  uringlet chaos --inject '%net:error=ECONNRESET:when=0.1%' -- ./client

docs/chaos.md says what may happen to a request, and why.";

/// From the first to the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeds {
    pub(super) first: u64,
    pub(super) last: u64,
}

fn seeds(text: &str) -> Result<Seeds, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let seeds = first.parse().ok().zip(last.strip_prefix('=').unwrap_or(last).parse().ok());
    let seeds = seeds.filter(|(first, last)| first <= last).map(|(first, last)| Seeds { first, last });
    seeds.ok_or_else(|| "a number, or two with .. between and the smaller one first".to_owned())
}

fn timeout(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|seconds| (0.01..=86400.0).contains(seconds)).ok_or_else(|| "seconds, from 0.01 to 86400".to_owned())
}

impl ChaosArgs {
    pub(super) const fn seeds(&self) -> Seeds {
        self.seeds
    }

    pub(super) const fn jobs(&self) -> usize {
        self.jobs.get()
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }

    /// How many failures are looked at.
    pub(super) const fn shrunk(&self) -> usize {
        self.shrink
    }

    pub(super) const fn shrink_runs(&self) -> u32 {
        self.shrink_runs
    }

    pub(super) fn command(&self) -> &[OsString] {
        &self.command
    }

    /// The options of `uringlet run` that do the same.
    pub(super) fn run_options(&self, seed: u64) -> Vec<String> {
        let mut options = vec!["--legal".to_owned(), seed.to_string()];
        options.extend(self.inject.iter().flat_map(|expression| ["--inject".to_owned(), expression.clone()]));
        options
    }

    /// What is done under this seed: all of it, or some decisions only.
    pub(super) fn plan(&self, seed: u64, only: Option<Vec<DecisionRange>>) -> Result<FaultPlan, String> {
        let plan = FaultArgs::of(seed, &self.inject).plan().map_err(|error| error.message)?;
        Ok(FaultPlan { only, ..plan.unwrap_or_default() })
    }
}
