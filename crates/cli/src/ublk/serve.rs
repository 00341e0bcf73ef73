//! `uringlet ublk add` and `recover`: run a server.

use super::options::{DataPathArgs, Recovery, SECTOR, TargetArgs, TargetKind, block_shift, device_number, size};
use super::rejoin::AddedDevice;
use super::{daemon, interrupt, show, store};
use anyhow::{Context, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Runtime;
use uringlet_abi::ublk::{param, state};
use uringlet_ublk_rpc::remote::RemoteBackend;
use uringlet_ublk_rpc::store::BlockStore;
use uringlet_ublk_rpc::{StoreClaim, StoreEndpoint};
use uringlet_ublk_server::async_server::{self, AbortSignal};
use uringlet_ublk_server::backend::VolumeBackend;
use uringlet_ublk_server::backing::BackingStore;
use uringlet_ublk_server::buffers::BufferMode;
use uringlet_ublk_server::device::{self, DeviceSpec};
use uringlet_ublk_server::sync_server;
use uringlet_ublk_server::volume::{BackingVolume, name_hash};
use uringlet_ublkd::client::{BrokerClient, BrokerGone, CharDevice};

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
    #[arg(short = 'n', long, value_name = "N", value_parser = device_number())]
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
    #[arg(value_parser = device_number())]
    number: u32,
}

/// A server that only lacks a device.
enum PreparedServer {
    /// USER_COPY, with this many threads.
    Plain(BackingStore, u16),
    /// tokio tasks, with any buffer mode.
    Local(Runtime, Arc<VolumeBackend>, BufferMode),
    Remote(Runtime, Arc<RemoteBackend>, BufferMode),
}

/// A server, and the device properties that follow from it.
struct ServerSetup {
    server: PreparedServer,
    /// What is served: the device keeps it for `recover`.
    identity: u64,
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
    let kind = target_args.kind;
    let own_identity = || anyhow::Ok(name_hash(&format!("{kind:?} {}", target.identity()?)));
    let has_cache = matches!(target, BackingStore::File(_));
    if kind != TargetKind::Rpc {
        let identity = own_identity()?;
        let server = match buffers {
            BufferMode::UserCopy => PreparedServer::Plain(target, target_args.threads),
            BufferMode::OnDemand | BufferMode::Preallocated => {
                let volume = BackingVolume::new(target, size.unwrap_or(wanted), is_read_only)?;
                let runtime = store::runtime(target_args.threads)?;
                PreparedServer::Local(runtime, Arc::new(VolumeBackend::new(volume)), buffers)
            }
        };
        return Ok(ServerSetup { server, identity, size, is_read_only, has_cache });
    }
    let runtime = store::runtime(target_args.threads)?;
    let embedded_identity = if target_args.server.is_none() { Some(own_identity()?) } else { None };
    let claim = if embedded_identity.is_some() { StoreClaim::IfUnused } else { claim };
    let opening = async {
        let endpoint = match &target_args.server {
            Some(text) => StoreEndpoint::parse(text)?,
            None => StoreEndpoint::embedded(BlockStore::new(BackingVolume::new(target, size.unwrap_or(wanted), is_read_only)?)),
        };
        RemoteBackend::open(endpoint, claim, target_args.request_timeout()).await
    };
    let remote = runtime.block_on(opening)?;
    let info = remote.info().clone();
    ensure!(is_read_only || !info.is_read_only || claim != StoreClaim::IfUnused, "the store is read-only: add --read-only");
    let identity = embedded_identity.unwrap_or_else(|| name_hash(&info.name));
    let server = PreparedServer::Remote(runtime, Arc::new(remote), buffers);
    Ok(ServerSetup { server, identity, size: Some(info.size), is_read_only: is_read_only || info.is_read_only, has_cache: info.has_cache })
}

pub(super) fn add(client: &BrokerClient, args: &AddArgs) -> anyhow::Result<()> {
    let buffers = args.data.buffers(args.target_args.kind);
    let prepared = prepare(&args.target_args, buffers, args.size.unwrap_or(SIZE), args.read_only, StoreClaim::IfUnused)?;
    let size = args.size.or(prepared.size).unwrap_or(SIZE) >> args.block_size << args.block_size;
    ensure!(size >= 4096, "the device would have {size} bytes: give it a --size");
    let found = prepared.size.unwrap_or(u64::MAX);
    ensure!(found >= size, "{} has {found} bytes, less than --size {size}", args.target_args.place());
    let spec = DeviceSpec {
        id: args.number.unwrap_or(u32::MAX),
        size,
        queues: args.queues,
        depth: args.depth,
        flags: args.recovery.flags(),
        identity: prepared.identity,
        is_read_only: prepared.is_read_only,
        block_shift: args.block_size,
    };
    daemon::ensure(client)?;
    let (id, device) = match &prepared.server {
        PreparedServer::Plain(target, _) => device::add(client, &spec, target)?,
        PreparedServer::Local(..) | PreparedServer::Remote(..) => async_server::add(client, &spec, buffers, prepared.has_cache)?,
    };
    serve(client, id, device, prepared.server, First { is_json: args.target_args.json, command: BrokerClient::start })
}

pub(super) fn recover(client: &BrokerClient, args: &RecoverArgs) -> anyhow::Result<()> {
    let id = args.number;
    let params = client.params(id).with_context(|| format!("device {id}"))?;
    let info = client.info(id)?;
    // Before a file is locked or a store taken over, which the device's server uses.
    ensure!(matches!(info.state, state::QUIESCED | state::FAIL_IO), "{}", not_recoverable(id));
    let buffers = BufferMode::from_flags(info.flags);
    let is_read_only = params.basic.attrs & param::ATTR_READ_ONLY != 0;
    let size = params.basic.dev_sectors * SECTOR;
    let prepared = prepare(&args.target_args, buffers, size, is_read_only, StoreClaim::TakeOver(info.ublksrv_flags))?;
    ensure!(prepared.identity == info.ublksrv_flags, "device {id} was added with something else than {}", args.target_args.describe());
    let what = if args.target_args.kind == TargetKind::Rpc { "store" } else { "file" };
    ensure!(prepared.size.is_none_or(|found| found >= size), "the {what} is smaller than the device, which has {size} bytes");
    client.start_recovery(id).with_context(|| not_recoverable(id))?;
    let device = client.open(id)?;
    serve(client, id, device, prepared.server, First { is_json: args.target_args.json, command: BrokerClient::end_recovery })
}

fn not_recoverable(id: u32) -> String {
    format!("device {id} cannot be recovered (its server runs, or it was added without --recovery)")
}

/// How a device goes live for the first time.
#[derive(Clone, Copy)]
struct First {
    is_json: bool,
    command: fn(&BrokerClient, u32) -> anyhow::Result<()>,
}

fn serve(client: &BrokerClient, id: u32, mut device: CharDevice, server: PreparedServer, first: First) -> anyhow::Result<()> {
    let abort_signal = AbortSignal::default();
    let aborting = abort_signal.clone();
    let stop = interrupt::delete_device(client, id, move || aborting.abort())?;
    let mut added = AddedDevice::new(client, id)?;
    let is_shown = Arc::new(AtomicBool::new(false));
    let mut command = first.command;
    loop {
        let (starting, is_shown) = (client.clone(), Arc::clone(&is_shown));
        let on_armed = move || report_start(&starting, id, first.is_json, &is_shown, command(&starting, id));
        match server.serve(device, abort_signal.clone(), on_armed) {
            Err(error) if error.is::<BrokerGone>() => match added.rejoin(&stop)? {
                Some(next) => (device, command) = (next, BrokerClient::start),
                None => return Ok(()),
            },
            ended => break ended?,
        }
    }
    if let PreparedServer::Remote(runtime, ..) = server {
        runtime.shutdown_background();
    }
    // An error means that it was deleted already.
    let _ = client.delete_async(id);
    Ok(())
}

impl PreparedServer {
    fn serve(&self, device: CharDevice, abort_signal: AbortSignal, on_armed: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
        match self {
            Self::Plain(target, threads) => sync_server::serve(&device, target, *threads, on_armed),
            Self::Local(runtime, volume, buffers) => {
                async_server::serve(device, Arc::clone(volume), *buffers, (runtime.handle(), abort_signal), on_armed)
            }
            Self::Remote(runtime, remote, buffers) => {
                async_server::serve(device, Arc::clone(remote), *buffers, (runtime.handle(), abort_signal), on_armed)
            }
        }
    }
}

/// Reports that the device is live, or deletes one that does not start.
fn report_start(client: &BrokerClient, id: u32, is_json: bool, is_shown: &AtomicBool, started: anyhow::Result<()>) {
    let reported = started.and_then(|()| {
        if is_shown.load(Ordering::Relaxed) {
            eprintln!("uringlet ublk: device {id} is back");
            return Ok(());
        }
        show::show(client, id, is_json)?;
        is_shown.store(true, Ordering::Relaxed);
        Ok(())
    });
    if let Err(error) = reported
        // Otherwise the broker has ended, and the device is added at the next one.
        && client.info(id).is_ok()
    {
        eprintln!("uringlet ublk: device {id} does not start: {error:#}");
        let _ = client.delete_async(id);
    }
}
