//! `uringlet ublk store`: the store of `--type rpc`.

use super::interrupt;
use super::options::size;
use anyhow::{Context, bail, ensure};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;
use uringlet_ublk_rpc::listen::StoreListener;
use uringlet_ublk_rpc::store::BlockStore;
use uringlet_ublk_server::backing::BackingStore;
use uringlet_ublk_server::backing_file;
use uringlet_ublk_server::volume::{BackingVolume, Volume};

/// Run a block store for devices of --type rpc, until interrupted
///
/// A store serves one device at a time. There is neither encryption nor authentication: every
/// program that can connect can read and write the blocks.
#[derive(Debug, clap::Args)]
pub(super) struct StoreArgs {
    /// Address to listen on: HOST:PORT (port 0: any), or unix:PATH, for this user alone
    #[arg(long, value_name = "PLACE", default_value = "127.0.0.1:7411")]
    listen: String,

    /// Size, such as 512M or 10G [default: the file's]
    #[arg(long, value_parser = size, required_unless_present = "file")]
    size: Option<u64>,

    /// Keep the blocks in a file or block device; --size creates a missing file [default: memory]
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// Refuse writes
    #[arg(long)]
    read_only: bool,

    /// Serving threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The tokio runtime of a server's requests.
pub(super) fn runtime(threads: u16) -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads.into()).thread_name("ublk-io").enable_all().build().context("starting threads")
}

fn file_volume(path: &Path, args: &StoreArgs) -> anyhow::Result<(File, u64)> {
    if let Some(size) = args.size.filter(|_| !path.exists()) {
        let file = File::create_new(path).with_context(|| format!("creating {}", path.display()))?;
        file.set_len(size).with_context(|| format!("{} with {size} bytes", path.display()))?;
    }
    let (file, found) = backing_file::open(path, args.read_only)?;
    // Devices without a size (such as /dev/full) get --size.
    let size = found.or(args.size).unwrap_or(0);
    ensure!(size >= 4096, "{} has {size} bytes: give it a --size", path.display());
    match args.size {
        Some(asked) if asked != size => bail!("{} has {size} bytes already, not {asked}", path.display()),
        _ => Ok((file, size)),
    }
}

fn volume(args: &StoreArgs) -> anyhow::Result<BackingVolume> {
    let (target, size) = match (&args.file, args.size) {
        (Some(path), _) => file_volume(path, args).map(|(file, size)| (BackingStore::File(file), size))?,
        (None, Some(size)) => (BackingStore::Ram(Box::default()), size),
        (None, None) => bail!("a store needs a --size or a --file"),
    };
    Ok(BackingVolume::new(target, size, args.read_only)?)
}

pub(super) fn run(args: &StoreArgs) -> anyhow::Result<()> {
    let stop = interrupt::flag()?;
    let volume = volume(args)?;
    let info = volume.info();
    let runtime = runtime(args.threads)?;
    let listener = runtime.block_on(async { StoreListener::bind(&args.listen) })?;
    if !listener.is_local() {
        eprintln!("uringlet ublk: every program that can connect to {} can read and write the blocks", listener.address());
    }
    if args.json {
        println!("{}", json!({ "listen": listener.address(), "size": info.size, "volume": info.name, "read_only": info.is_read_only }));
    } else {
        println!("{} bytes at {}: uringlet ublk add --type rpc --server {}", info.size, listener.address(), listener.address());
    }
    let store = BlockStore::new(volume);
    let serving = runtime.spawn({
        let store = store.clone();
        async move { listener.serve(&store).await }
    });
    interrupt::wait(&stop, || serving.is_finished());
    if serving.is_finished() {
        return runtime.block_on(serving)?.context("serving");
    }
    let flushed = runtime.block_on(store.close());
    // Ends the connections and removes the socket's file.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    flushed.map_err(|errno| std::io::Error::from_raw_os_error(errno.into_raw())).context("flushing the blocks")
}
