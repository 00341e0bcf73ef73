//! The command line of `uringlet powercut`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk::FsyncCover;

/// Kill a program as a power cut does, and lose what it had not made durable
///
/// Runs PROGRAM as `uringlet run` does and kills it, and all that it has started, before the N-th
/// event in DIR: a write, through a ring or not, a new name or length of a file, or an fsync. Then
/// each change that no fsync had covered is kept, lost, or torn at 512 bytes, by seed, and the
/// check is run. The exit status is 0 if the check succeeds, 1 if it fails, 125 if nothing could
/// be tried, and 130 after Ctrl-C, with DIR as it was at first.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct PowercutArgs {
    /// When: before the N-th event, or `random`: before each of them with the same chance. For that
    /// the program is run once as a whole
    #[arg(long, value_name = "N|random", default_value = "random", value_parser = place)]
    at: CutPlace,

    /// What chance is drawn from
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=u64::MAX / 2))]
    seed: u64,

    /// So many cuts, each from the beginning, with the next seed. Ends with the first one that the
    /// check finds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    cuts: u64,

    /// The directory whose files are on the disk that fails. Its files are kept in memory
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// What fsync(2) of a file covers
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    fsync: FsyncCover,

    /// A program that takes longer is killed, and nothing is tried: seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,

    /// A command of the shell that succeeds if all is well with DIR
    #[arg(long, value_name = "COMMAND")]
    check: Option<OsString>,

    /// The program, looked up in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  uringlet powercut --dir data --check './verify data' --cuts 1000 -- ./store data
  uringlet powercut --dir data --at 37 --seed 12 --check './verify data' -- ./store data

Everything that DIR holds is written again after a cut, and before each further one.
docs/powercut.md says what a disk may lose, and what is not seen.";

/// When the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutPlace {
    At(u64),
    Random,
}

fn place(text: &str) -> Result<CutPlace, String> {
    match text {
        "random" => Ok(CutPlace::Random),
        number => {
            let number = number.parse().ok().filter(|&number| number > 0);
            number.map(CutPlace::At).ok_or_else(|| "a number from 1, or `random`".to_owned())
        }
    }
}

impl PowercutArgs {
    pub(super) const fn at(&self) -> CutPlace {
        self.at
    }

    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) const fn cuts(&self) -> u64 {
        self.cuts
    }

    pub(super) const fn fsync(&self) -> FsyncCover {
        self.fsync
    }

    pub(super) const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn check(&self) -> Option<&OsStr> {
        self.check.as_deref()
    }

    pub(super) fn command(&self) -> &[OsString] {
        &self.command
    }

    /// The command that makes this cut.
    pub(super) fn repeat(&self, at: u64, seed: u64) -> String {
        let quoted = |word: &OsStr| crate::shell::quoted(&word.to_string_lossy());
        let mut text = format!("uringlet powercut --at {at} --seed {seed} --dir {}", quoted(self.dir.as_os_str()));
        if self.fsync == FsyncCover::Names {
            text += " --fsync names";
        }
        if let Some(check) = &self.check {
            text += &format!(" --check {}", quoted(check));
        }
        text += " --";
        for word in &self.command {
            text = text + " " + &quoted(word);
        }
        text
    }
}
