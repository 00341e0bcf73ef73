//! `uringlet ublk add` and `recover`: our own servers.

use super::{daemon, show};
use anyhow::{Context, bail, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uringlet_abi::ublk::{feature, param};
use uringlet_ublkd::client::Client;
use uringlet_ublkd::serve::{self as server, Shape, Target};

const SECTOR: u64 = 512;

/// What our servers can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Reads zeroes, forgets writes
    Null,
    /// Memory, lost with the server
    Ram,
    /// A file or block device
    File,
}

/// What becomes of the device when its server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Recovery {
    /// It dies too
    None,
    /// It waits for the next server; requests in flight fail
    Wait,
    /// It waits for the next server, which gets the requests in flight again
    Reissue,
    /// Requests fail until the next server comes
    Fail,
}

impl Recovery {
    fn flags(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Wait => feature::USER_RECOVERY,
            Self::Reissue => feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE,
            Self::Fail => feature::USER_RECOVERY | feature::USER_RECOVERY_FAIL_IO,
        }
    }
}

/// What to serve
#[derive(Debug, clap::Args)]
struct Backing {
    /// What stands behind the device
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    kind: Kind,

    /// The file of --type file
    #[arg(long, value_name = "PATH", required_if_eq("kind", "file"))]
    file: Option<PathBuf>,

    /// Threads that serve
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Add a device and serve it until it is deleted or this is interrupted
#[derive(Debug, clap::Args)]
pub(super) struct AddArgs {
    #[command(flatten)]
    backing: Backing,

    /// Its number [default: the lowest that is free]
    #[arg(short = 'n', long, value_name = "N")]
    number: Option<u32>,

    /// Its size, such as 512M or 10G [default: the file's; 1G otherwise]
    #[arg(long, value_parser = size)]
    size: Option<u64>,

    /// Queues
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,

    /// Requests of a queue that may be under way
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    depth: u16,

    /// Nothing can be written
    #[arg(long)]
    read_only: bool,

    /// When the server dies
    #[arg(long, value_enum, default_value = "none")]
    recovery: Recovery,
}

/// Serve a device whose server has died
#[derive(Debug, clap::Args)]
pub(super) struct RecoverArgs {
    #[command(flatten)]
    backing: Backing,

    /// Its number
    number: u32,
}

/// A number of bytes: digits, and K, M, G or T.
fn size(text: &str) -> Result<u64, String> {
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

impl Backing {
    fn target(&self, is_read_only: bool) -> anyhow::Result<(Target, Option<u64>)> {
        match (self.kind, &self.file) {
            (Kind::File, Some(path)) => {
                let file = File::options().read(true).write(!is_read_only).open(path);
                let mut file = file.with_context(|| format!("opening {}", path.display()))?;
                // Of a block device, too.
                let size = file.seek(SeekFrom::End(0))? / SECTOR * SECTOR;
                Ok((Target::File(file), Some(size)))
            }
            (Kind::File, None) => bail!("--type file needs --file"),
            (_, Some(_)) => bail!("--file is for --type file"),
            (Kind::Null, None) => Ok((Target::Null, None)),
            (Kind::Ram, None) => Ok((Target::Ram(Box::default()), None)),
        }
    }
}

pub(super) fn add(client: &Client, args: &AddArgs) -> anyhow::Result<()> {
    let (target, found) = args.backing.target(args.read_only)?;
    let size = args.size.or(found).unwrap_or(1 << 30);
    ensure!(size >= 4096, "the device would have {size} bytes: give it a --size");
    let flags = args.recovery.flags();
    let id = args.number.unwrap_or(u32::MAX);
    let shape = Shape { id, size, queues: args.queues, depth: args.depth, flags, is_read_only: args.read_only, block_shift: 9 };
    daemon::ensure(client)?;
    let (id, device) = server::add(client, &shape, &target)?;
    delete_when_interrupted(client, id)?;
    let (starting, is_json) = (client.clone(), args.backing.json);
    server::serve(device, target, args.backing.threads, move || tell(&starting, id, is_json, starting.start(id)))?;
    // Its number is free, unless somebody else deletes it already.
    let _ = client.delete(id, false);
    Ok(())
}

pub(super) fn recover(client: &Client, args: &RecoverArgs) -> anyhow::Result<()> {
    let id = args.number;
    let params = client.params(id).with_context(|| format!("device {id}"))?;
    let is_read_only = params.basic.attrs & param::ATTR_READ_ONLY != 0;
    let (target, found) = args.backing.target(is_read_only)?;
    let size = params.basic.dev_sectors * SECTOR;
    ensure!(found.is_none_or(|found| found >= size), "the file is smaller than the device, which has {size} bytes");
    client.start_recovery(id).with_context(|| format!("device {id} is not to be recovered (it is, or it was added without --recovery)"))?;
    let device = client.open(id)?;
    delete_when_interrupted(client, id)?;
    let (ending, is_json) = (client.clone(), args.backing.json);
    server::serve(device, target, args.backing.threads, move || tell(&ending, id, is_json, ending.end_recovery(id)))?;
    let _ = client.delete(id, false);
    Ok(())
}

/// The device is live, or never will be.
fn tell(client: &Client, id: u32, is_json: bool, started: anyhow::Result<()>) {
    match started.and_then(|()| show::show(client, id, is_json)) {
        Ok(()) => {}
        Err(error) => {
            eprintln!("uringlet ublk: device {id} does not start: {error:#}");
            let _ = client.delete(id, false);
        }
    }
}

/// Ctrl-C: deleting the device ends its server.
fn delete_when_interrupted(client: &Client, id: u32) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
    }
    let client = client.clone();
    std::thread::Builder::new().name("ublk-signals".into()).spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        // Somebody else may have deleted it.
        let _ = client.delete(id, false);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units_and_whole_blocks() {
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("4096"), Ok(4096));
        for bad in ["", "M", "1", "-4K", "99999999999T", "4097", "0", "1é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
