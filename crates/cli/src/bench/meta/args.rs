//! The options of `uringlet bench meta`.

use std::path::PathBuf;

use super::super::value_parsers::seconds;

/// Metadata operations, beside the same calls and the kernel's ring
#[derive(Debug, clap::Args)]
pub(in crate::bench) struct BenchMetaArgs {
    /// Number of rounds; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,

    /// Operations that are submitted together
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) batches: Vec<u32>,

    /// Time of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3, value_parser = seconds)]
    pub(super) seconds: f64,

    /// Directory for the files; its filesystem influences the results
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) directory: PathBuf,

    /// Write all numbers to this file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}
