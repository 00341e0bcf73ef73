//! Options of `uringlet ublk add` and `recover`.

use anyhow::{bail, ensure};
use clap::ValueEnum;
use clap::builder::RangedI64ValueParser;
use std::path::PathBuf;
use std::time::Duration;
use uringlet_abi::ublk::feature;
use uringlet_ublk::control::MAX_DEVICES;
use uringlet_ublk_server::backing::BackingStore;
use uringlet_ublk_server::backing_file;
use uringlet_ublk_server::buffers::BufferMode;

pub(super) const SECTOR: u64 = 512;
/// Longer than a restart, s; not much longer, since a program waits.
const DEFAULT_TIMEOUT_S: u64 = 30;

/// What a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TargetKind {
    /// Reads return zeroes, writes are dropped
    Null,
    /// Memory, lost with the server
    Ram,
    /// A file or block device
    File,
    /// A remote store, over gRPC
    Rpc,
}

/// The fate of a device whose server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Recovery {
    /// The device dies
    None,
    /// The device waits for the next server; requests in flight fail
    Wait,
    /// The device waits for the next server, which gets the requests in flight again
    Reissue,
    /// Requests fail until the next server comes
    Fail,
}

impl Recovery {
    pub(super) fn flags(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Wait => feature::USER_RECOVERY,
            Self::Reissue => feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE,
            Self::Fail => feature::USER_RECOVERY | feature::USER_RECOVERY_FAIL_IO,
        }
    }
}

/// Where a request's data is in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BufferModeArg {
    /// Memory for each WRITE, allocated when it arrives (UBLK_F_NEED_GET_DATA)
    OnDemand,
    /// A buffer for each tag, and one more copy of each WRITE
    Preallocated,
    /// The server copies from and to the device itself (UBLK_F_USER_COPY)
    UserCopy,
}

/// How data reaches the server
#[derive(Debug, clap::Args)]
pub(super) struct DataPathArgs {
    /// Where a request's data is in the server [default: on-demand for --type rpc, user-copy
    /// otherwise]
    #[arg(long, value_enum, value_name = "MODE")]
    buffers: Option<BufferModeArg>,

    /// The same as --buffers on-demand
    #[arg(long, conflicts_with_all = ["buffers", "user_copy"])]
    need_get_data: bool,

    /// The same as --buffers user-copy
    #[arg(long, conflicts_with = "buffers")]
    user_copy: bool,
}

impl DataPathArgs {
    pub(super) fn buffers(&self, kind: TargetKind) -> BufferMode {
        match self.buffers {
            Some(BufferModeArg::OnDemand) => BufferMode::OnDemand,
            Some(BufferModeArg::Preallocated) => BufferMode::Preallocated,
            Some(BufferModeArg::UserCopy) => BufferMode::UserCopy,
            None if self.need_get_data => BufferMode::OnDemand,
            None if self.user_copy || kind != TargetKind::Rpc => BufferMode::UserCopy,
            None => BufferMode::OnDemand,
        }
    }
}

/// What to serve
#[derive(Debug, clap::Args)]
pub(super) struct TargetArgs {
    /// What backs the device
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(super) kind: TargetKind,

    /// The file of --type file; for --type rpc without --server: the file of its store [default:
    /// memory]
    #[arg(long, value_name = "PATH", required_if_eq("kind", "file"))]
    file: Option<PathBuf>,

    /// --type rpc: the store's address, HOST:PORT or unix:PATH [default: a store in this process]
    #[arg(long, value_name = "PLACE", conflicts_with = "file")]
    pub(super) server: Option<String>,

    /// --type rpc: how long a request waits for an absent store before it fails with EIO [default:
    /// 30]
    ///
    /// After a restart of the store unanswered requests are sent again. While a store has been away
    /// longer than this, requests fail at once.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: Option<u64>,

    /// Serving threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) threads: u16,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl TargetArgs {
    /// Where its bytes are, for messages.
    pub(super) fn place(&self) -> String {
        self.file.as_ref().map_or_else(|| "the store".to_owned(), |path| path.display().to_string())
    }

    /// What is served, for messages.
    pub(super) fn describe(&self) -> String {
        let kind = self.kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let place = self.server.clone().or_else(|| self.file.as_ref().map(|path| path.display().to_string()));
        format!("--type {kind}{}", place.map(|place| format!(" {place}")).unwrap_or_default())
    }

    pub(super) fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.unwrap_or(DEFAULT_TIMEOUT_S))
    }

    /// The backing store, and its size if it has one of its own.
    pub(super) fn target(&self, is_read_only: bool) -> anyhow::Result<(BackingStore, Option<u64>)> {
        ensure!(
            self.kind == TargetKind::Rpc || self.server.is_none() && self.timeout.is_none(),
            "--server and --timeout are for --type rpc"
        );
        match (self.kind, &self.file) {
            (TargetKind::File | TargetKind::Rpc, Some(path)) => {
                backing_file::open(path, is_read_only).map(|(file, size)| (BackingStore::File(file), size))
            }
            (TargetKind::File, None) => bail!("--type file needs --file"),
            (TargetKind::Null | TargetKind::Ram, Some(_)) => bail!("--file is for --type file and rpc"),
            (TargetKind::Null, None) => Ok((BackingStore::Null, None)),
            (TargetKind::Ram | TargetKind::Rpc, None) => Ok((BackingStore::Ram(Box::default()), None)),
        }
    }
}

/// A device's number.
pub(super) fn device_number() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(..i64::from(MAX_DEVICES))
}

/// A number of bytes: digits with an optional suffix K, M, G or T.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no size: say 512M or 10G"))?;
    let bytes = number.checked_mul(1 << shift).ok_or("too much")?;
    if bytes >= 4096 && bytes.is_multiple_of(4096) { Ok(bytes) } else { Err("a multiple of 4096 bytes, please".to_owned()) }
}

/// A block size as its power of two.
pub(super) fn block_shift(text: &str) -> Result<u8, String> {
    match text {
        "512" => Ok(9),
        "1024" | "1K" | "1k" => Ok(10),
        "2048" | "2K" | "2k" => Ok(11),
        "4096" | "4K" | "4k" => Ok(12),
        _ => Err("512, 1024, 2048 or 4096, please".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_accept_units_and_require_whole_blocks() {
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("4096"), Ok(4096));
        for bad in ["", "M", "1", "-4K", "99999999999T", "4097", "0", "1é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn block_sizes_range_from_sector_to_page() {
        assert_eq!((block_shift("512"), block_shift("4k")), (Ok(9), Ok(12)));
        for bad in ["", "256", "8192", "1000"] {
            assert!(block_shift(bad).is_err(), "{bad}");
        }
    }
}
