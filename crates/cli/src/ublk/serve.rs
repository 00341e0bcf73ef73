//! `uringlet ublk add` and `recover`: run a server.

use super::options::{DataPathArgs, Recovery, SECTOR, TargetArgs, TargetKind, block_shift, size};
use super::{daemon, interrupt, show, store};
use anyhow::{Context, ensure};
use tokio::runtime::Runtime;
use uringlet_abi::ublk::param;
use uringlet_ublk_rpc::remote::RemoteBackend;
use uringlet_ublk_rpc::store::BlockStore;
use uringlet_ublk_rpc::{StoreClaim, StoreEndpoint};
use uringlet_ublk_server::async_server::{self, AbortSignal};
use uringlet_ublk_server::backend::VolumeBackend;
use uringlet_ublk_server::backing::BackingStore;
use uringlet_ublk_server::buffers::BufferMode;
use uringlet_ublk_server::device::{self, DeviceSpec};
use uringlet_ublk_server::sync_server;
use uringlet_ublk_server::volume::BackingVolume;
use uringlet_ublkd::client::{BrokerClient, CharDevice};

/// Size of a device without one, bytes.
const SIZE: u64 = 1 << 30;

/// Add a device and serve it until it is deleted or this command is interrupted
#[derive(Debug, clap::Args)]
pub(super) struct AddArgs {
    #[command(flatten)]
    target_args: TargetArgs,

    #[command(flatten)]
    data: DataPathArgs,

    /// Device number [default: the lowest free one]
    #[arg(short = 'n', long, value_name = "N")]
    number: Option<u32>,

    /// Size, such as 512M or 10G [default: the file's or the store's; 1G otherwise]
    #[arg(long, value_parser = size)]
    size: Option<u64>,

    /// Logical block size, bytes: 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = block_shift)]
    block_size: u8,

    /// Number of queues
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,

    /// Requests in flight per queue
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    depth: u16,

    /// Refuse writes
    #[arg(long)]
    read_only: bool,

    /// What happens when the server dies
    #[arg(long, value_enum, default_value = "none")]
    recovery: Recovery,
}

/// Serve a device whose server has died
///
/// The options say anew what to serve; the buffer mode is the device's.
#[derive(Debug, clap::Args)]
pub(super) struct RecoverArgs {
    #[command(flatten)]
    target_args: TargetArgs,

    /// Device number
    number: u32,
}

/// A server that only lacks a device.
enum PreparedServer {
    /// USER_COPY, with this many threads.
    Plain(BackingStore, u16),
    /// tokio tasks, with any buffer mode.
    Local(Runtime, BackingVolume, BufferMode),
    Remote(Runtime, Box<RemoteBackend>, BufferMode),
}

/// A server, and the device properties that follow from it.
struct ServerSetup {
    server: PreparedServer,
    /// The size, if the backing store has one.
    size: Option<u64>,
    is_read_only: bool,
    has_cache: bool,
}

/// Prepares a server. `wanted`: the size of a backing store without one.
fn prepare(
    target_args: &TargetArgs,
    buffers: BufferMode,
    wanted: u64,
    is_read_only: bool,
    claim: StoreClaim,
) -> anyhow::Result<ServerSetup> {
    let (target, size) = target_args.target(is_read_only)?;
    let has_cache = matches!(target, BackingStore::File(_));
    if target_args.kind != TargetKind::Rpc {
        let server = match buffers {
            BufferMode::UserCopy => PreparedServer::Plain(target, target_args.threads),
            BufferMode::OnDemand | BufferMode::Preallocated => {
                let volume = BackingVolume::new(target, size.unwrap_or(wanted), is_read_only)?;
                PreparedServer::Local(store::runtime(target_args.threads)?, volume, buffers)
            }
        };
        return Ok(ServerSetup { server, size, is_read_only, has_cache });
    }
    let runtime = store::runtime(target_args.threads)?;
    let opening = async {
        let endpoint = match &target_args.server {
            Some(text) => StoreEndpoint::parse(text)?,
            None => StoreEndpoint::embedded(BlockStore::new(BackingVolume::new(target, size.unwrap_or(wanted), is_read_only)?)),
        };
        RemoteBackend::open(endpoint, claim, target_args.request_timeout()).await
    };
    let remote = runtime.block_on(opening)?;
    let info = remote.info().clone();
    ensure!(is_read_only || !info.is_read_only || claim == StoreClaim::TakeOver, "the store is read-only: add --read-only");
    let server = PreparedServer::Remote(runtime, Box::new(remote), buffers);
    Ok(ServerSetup { server, size: Some(info.size), is_read_only: is_read_only || info.is_read_only, has_cache: info.has_cache })
}

pub(super) fn add(client: &BrokerClient, args: &AddArgs) -> anyhow::Result<()> {
    let buffers = args.data.buffers(args.target_args.kind);
    let prepared = prepare(&args.target_args, buffers, args.size.unwrap_or(SIZE), args.read_only, StoreClaim::IfUnused)?;
    let size = args.size.or(prepared.size).unwrap_or(SIZE) >> args.block_size << args.block_size;
    ensure!(size >= 4096, "the device would have {size} bytes: give it a --size");
    let is_rpc = args.target_args.kind == TargetKind::Rpc;
    let fits = !is_rpc || prepared.size.is_none_or(|found| found >= size);
    ensure!(fits, "the store has {} bytes, less than --size {size}", prepared.size.unwrap_or(0));
    let spec = DeviceSpec {
        id: args.number.unwrap_or(u32::MAX),
        size,
        queues: args.queues,
        depth: args.depth,
        flags: args.recovery.flags(),
        is_read_only: prepared.is_read_only,
        block_shift: args.block_size,
    };
    daemon::ensure(client)?;
    let (id, device) = match &prepared.server {
        PreparedServer::Plain(target, _) => device::add(client, &spec, target)?,
        PreparedServer::Local(..) | PreparedServer::Remote(..) => async_server::add(client, &spec, buffers, prepared.has_cache)?,
    };
    let (starting, is_json) = (client.clone(), args.target_args.json);
    let on_armed = move || report_start(&starting, id, is_json, starting.start(id));
    serve(client, id, device, prepared.server, on_armed)
}

pub(super) fn recover(client: &BrokerClient, args: &RecoverArgs) -> anyhow::Result<()> {
    let id = args.number;
    let params = client.params(id).with_context(|| format!("device {id}"))?;
    let buffers = BufferMode::from_flags(client.info(id)?.flags);
    let is_read_only = params.basic.attrs & param::ATTR_READ_ONLY != 0;
    let size = params.basic.dev_sectors * SECTOR;
    let prepared = prepare(&args.target_args, buffers, size, is_read_only, StoreClaim::TakeOver)?;
    let what = if args.target_args.kind == TargetKind::Rpc { "store" } else { "file" };
    ensure!(prepared.size.is_none_or(|found| found >= size), "the {what} is smaller than the device, which has {size} bytes");
    client
        .start_recovery(id)
        .with_context(|| format!("device {id} cannot be recovered (its server runs, or it was added without --recovery)"))?;
    let device = client.open(id)?;
    let (ending, is_json) = (client.clone(), args.target_args.json);
    let on_armed = move || report_start(&ending, id, is_json, ending.end_recovery(id));
    serve(client, id, device, prepared.server, on_armed)
}

fn serve(
    client: &BrokerClient,
    id: u32,
    device: CharDevice,
    server: PreparedServer,
    on_armed: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    let abort_signal = AbortSignal::default();
    let aborting = abort_signal.clone();
    interrupt::delete_device(client, id, move || aborting.abort())?;
    match server {
        PreparedServer::Plain(target, threads) => sync_server::serve(device, target, threads, on_armed)?,
        PreparedServer::Local(runtime, volume, buffers) => {
            async_server::serve(device, VolumeBackend::new(volume), buffers, (runtime.handle(), abort_signal), on_armed)?;
        }
        PreparedServer::Remote(runtime, remote, buffers) => {
            async_server::serve(device, *remote, buffers, (runtime.handle(), abort_signal), on_armed)?;
            runtime.shutdown_background();
        }
    }
    // An error means that it was deleted already.
    let _ = client.delete_async(id);
    Ok(())
}

/// Reports that the device is live, or deletes one that does not start.
fn report_start(client: &BrokerClient, id: u32, is_json: bool, started: anyhow::Result<()>) {
    match started.and_then(|()| show::show(client, id, is_json)) {
        Ok(()) => {}
        Err(error) => {
            eprintln!("uringlet ublk: device {id} does not start: {error:#}");
            let _ = client.delete_async(id);
        }
    }
}
