//! `uringlet ublk add` and `recover`: our own servers.

use super::options::{Backing, DataPath, Kind, Recovery, SECTOR, block_shift, size};
use super::{daemon, interrupt, show, store};
use anyhow::{Context, ensure};
use tokio::runtime::Runtime;
use uringlet_abi::ublk::param;
use uringlet_ublk_rpc::Place;
use uringlet_ublk_rpc::backend::Local;
use uringlet_ublk_rpc::buffers::Buffers;
use uringlet_ublk_rpc::remote::Remote;
use uringlet_ublk_rpc::serve::{self as with_buffers, GiveUp};
use uringlet_ublk_rpc::store::Store;
use uringlet_ublk_rpc::volume::TargetVolume;
use uringlet_ublkd::client::{CharDevice, Client};
use uringlet_ublkd::serve::{self as server, Shape, Target};

/// Of a device whose size nobody says, bytes.
const SIZE: u64 = 1 << 30;

/// Add a device and serve it until it is deleted or this is interrupted
#[derive(Debug, clap::Args)]
pub(super) struct AddArgs {
    #[command(flatten)]
    backing: Backing,

    #[command(flatten)]
    data: DataPath,

    /// Its number [default: the lowest that is free]
    #[arg(short = 'n', long, value_name = "N")]
    number: Option<u32>,

    /// Its size, such as 512M or 10G [default: the file's or the store's; 1G otherwise]
    #[arg(long, value_parser = size)]
    size: Option<u64>,

    /// Its logical block, bytes: 512, 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = block_shift)]
    block_size: u8,

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
///
/// The new server is told anew what to serve; where its data lies is the device's own.
#[derive(Debug, clap::Args)]
pub(super) struct RecoverArgs {
    #[command(flatten)]
    backing: Backing,

    /// Its number
    number: u32,
}

/// A server that is ready, but for a device.
enum Server {
    /// With USER_COPY, on so many threads.
    Plain(Target, u16),
    /// Tasks, with buffers of any kind.
    Local(Runtime, TargetVolume, Buffers),
    Remote(Runtime, Box<Remote>, Buffers),
}

/// A server, and what the device must be like.
struct Prepared {
    server: Server,
    /// Its own, if it has one.
    size: Option<u64>,
    is_read_only: bool,
    has_cache: bool,
}

/// Makes what is to be served ready, `wanted` bytes of it if it has no size of its own. `takeover`: from a server that has died.
fn prepare(backing: &Backing, buffers: Buffers, wanted: u64, is_read_only: bool, takeover: bool) -> anyhow::Result<Prepared> {
    let (target, size) = backing.target(is_read_only)?;
    let has_cache = matches!(target, Target::File(_));
    if backing.kind != Kind::Rpc {
        let server = match buffers {
            Buffers::UserCopy => Server::Plain(target, backing.threads),
            Buffers::OnDemand | Buffers::Preallocated => {
                let volume = TargetVolume::new(target, size.unwrap_or(wanted), is_read_only)?;
                Server::Local(store::runtime(backing.threads)?, volume, buffers)
            }
        };
        return Ok(Prepared { server, size, is_read_only, has_cache });
    }
    let runtime = store::runtime(backing.threads)?;
    let opening = async {
        let place = match &backing.server {
            Some(place) => Place::parse(place)?,
            None => Place::embedded(Store::new(TargetVolume::new(target, size.unwrap_or(wanted), is_read_only)?)),
        };
        Remote::open(place, takeover, backing.patience()).await
    };
    let remote = runtime.block_on(opening)?;
    let facts = remote.facts().clone();
    ensure!(is_read_only || !facts.is_read_only || takeover, "the store is read-only: say --read-only");
    let server = Server::Remote(runtime, Box::new(remote), buffers);
    Ok(Prepared { server, size: Some(facts.size), is_read_only: is_read_only || facts.is_read_only, has_cache: facts.has_cache })
}

pub(super) fn add(client: &Client, args: &AddArgs) -> anyhow::Result<()> {
    let buffers = args.data.buffers(args.backing.kind);
    let prepared = prepare(&args.backing, buffers, args.size.unwrap_or(SIZE), args.read_only, false)?;
    let size = args.size.or(prepared.size).unwrap_or(SIZE) >> args.block_size << args.block_size;
    ensure!(size >= 4096, "the device would have {size} bytes: give it a --size");
    let is_rpc = args.backing.kind == Kind::Rpc;
    let fits = !is_rpc || prepared.size.is_none_or(|found| found >= size);
    ensure!(fits, "the store has {} bytes, less than --size {size}", prepared.size.unwrap_or(0));
    let shape = Shape {
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
        Server::Plain(target, _) => server::add(client, &shape, target)?,
        Server::Local(..) | Server::Remote(..) => with_buffers::add(client, &shape, buffers, prepared.has_cache)?,
    };
    let (starting, is_json) = (client.clone(), args.backing.json);
    let on_armed = move || tell(&starting, id, is_json, starting.start(id));
    serve(client, id, device, prepared.server, on_armed)
}

pub(super) fn recover(client: &Client, args: &RecoverArgs) -> anyhow::Result<()> {
    let id = args.number;
    let params = client.params(id).with_context(|| format!("device {id}"))?;
    let buffers = Buffers::of(client.info(id)?.flags);
    let is_read_only = params.basic.attrs & param::ATTR_READ_ONLY != 0;
    let size = params.basic.dev_sectors * SECTOR;
    let prepared = prepare(&args.backing, buffers, size, is_read_only, true)?;
    let what = if args.backing.kind == Kind::Rpc { "store" } else { "file" };
    ensure!(prepared.size.is_none_or(|found| found >= size), "the {what} is smaller than the device, which has {size} bytes");
    client.start_recovery(id).with_context(|| format!("device {id} is not to be recovered (it is, or it was added without --recovery)"))?;
    let device = client.open(id)?;
    let (ending, is_json) = (client.clone(), args.backing.json);
    let on_armed = move || tell(&ending, id, is_json, ending.end_recovery(id));
    serve(client, id, device, prepared.server, on_armed)
}

fn serve(client: &Client, id: u32, device: CharDevice, server: Server, on_armed: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let give_up = GiveUp::default();
    let giving_up = give_up.clone();
    interrupt::delete_device(client, id, move || giving_up.now())?;
    match server {
        Server::Plain(target, threads) => server::serve(device, target, threads, on_armed)?,
        Server::Local(runtime, volume, buffers) => {
            with_buffers::serve(device, Local::new(volume), buffers, (runtime.handle(), give_up), on_armed)?;
        }
        Server::Remote(runtime, remote, buffers) => {
            with_buffers::serve(device, *remote, buffers, (runtime.handle(), give_up), on_armed)?;
            runtime.shutdown_background();
        }
    }
    // Its number is free, unless somebody else deletes it already.
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
