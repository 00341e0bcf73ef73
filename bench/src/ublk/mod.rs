//! A null ublk device, and who uses it: requests a second, and how long each takes.
//!
//! `ublk`: server and user are two threads of one process, each with a ring, under `uringlet run`. `nbd`: the user of any NBD server. `block`: of any block
//! device.

mod block;
mod client;
mod control;
mod load;
mod nbd;
mod server;

use anyhow::{bail, ensure};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use uringlet_ublk_front::nbd as nbd_server;
use uringlet_ublk_server::embedded;

use crate::timing::Metrics;
use load::UblkLoad;
use server::DataPath;

/// As in the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UblkOp {
    Read = 0,
    Write = 1,
    Flush = 2,
}

/// The device's size, bytes.
const SIZE: u64 = 1 << 30;
/// Requests may be as long, bytes.
const MAX_BYTES: u32 = 1 << 20;

#[derive(Debug)]
struct UblkWorkerArgs {
    load: UblkLoad,
    data_path: DataPath,
    /// A socket or a device.
    path: PathBuf,
}

fn parse() -> anyhow::Result<UblkWorkerArgs> {
    use lexopt::prelude::*;
    let load = UblkLoad { op: UblkOp::Write, is_sequential: false, depth: 1, batch: 1, block: 4096, time: crate::timing::DEFAULT_TIME };
    let mut args = UblkWorkerArgs { load, data_path: DataPath::Plain, path: PathBuf::new() };
    let mut parser = lexopt::Parser::from_args(std::env::args_os().skip(2));
    while let Some(arg) = parser.next()? {
        match arg {
            Long("op") => args.load.op = operation(&parser.value()?.string()?)?,
            Long("sequential") => args.load.is_sequential = true,
            Long("depth") => args.load.depth = parser.value()?.parse()?,
            Long("batch") => args.load.batch = parser.value()?.parse()?,
            Long("block") => args.load.block = parser.value()?.parse()?,
            Long("seconds") => args.load.time = Duration::try_from_secs_f64(parser.value()?.parse()?)?,
            Long("via") => args.data_path = data_path(&parser.value()?.string()?)?,
            Long("socket" | "device") => args.path = parser.value()?.into(),
            other => return Err(other.unexpected().into()),
        }
    }
    let UblkLoad { depth, batch, block, .. } = args.load;
    ensure!((1..=1024).contains(&depth) && (1..=depth).contains(&batch), "there are 1 to 1024 requests at a time, and no more in a batch");
    ensure!(block.is_multiple_of(512) && (512..=MAX_BYTES).contains(&block), "requests have 512 bytes to 1 MiB, in sectors");
    Ok(args)
}

fn operation(name: &str) -> anyhow::Result<UblkOp> {
    Ok(match name {
        "read" => UblkOp::Read,
        "write" => UblkOp::Write,
        "flush" => UblkOp::Flush,
        _ => bail!("there is no operation `{name}`"),
    })
}

fn data_path(name: &str) -> anyhow::Result<DataPath> {
    Ok(match name {
        "plain" => DataPath::Plain,
        "get-data" => DataPath::GetData,
        "copy" => DataPath::Copy,
        _ => bail!("there is no server `{name}`"),
    })
}

/// Server and user in this process.
pub(crate) fn run_in_process() -> anyhow::Result<Metrics> {
    let UblkWorkerArgs { load, data_path, .. } = parse()?;
    let mut control = control::Control::open()?;
    let device = control.add(data_path, load.depth)?;
    let server = server::NullServer::start(device, data_path, load.depth, load.block)?;
    control.start()?;
    let metrics = client::InProcessClient::open(device, &load).and_then(|mut client| load.run(&mut client));
    control.stop()?;
    server.join()?;
    control.delete()?;
    metrics
}

/// The user of an NBD server, or of a block device.
pub(crate) fn run_client(is_nbd: bool) -> anyhow::Result<Metrics> {
    let UblkWorkerArgs { load, path, .. } = parse()?;
    ensure!(load.op != UblkOp::Flush, "reads or writes");
    if is_nbd {
        load.run(&mut nbd::NbdBenchClient::connect(&path, &load)?)
    } else {
        load.run(&mut block::BlockDeviceClient::open(&path, &load)?)
    }
}

/// An NBD server of a null device, the driver and its server in this process, until it is killed.
pub(crate) fn serve_nbd() -> anyhow::Result<Metrics> {
    let UblkWorkerArgs { path, .. } = parse()?;
    let server = Arc::new(nbd_server::NbdServer::new()?);
    let started = embedded::EmbeddedDevice::start(SIZE, Arc::new(embedded::NullTarget), vec![Arc::clone(&server) as _]);
    let _device = started.map_err(|errno| std::io::Error::from_raw_os_error(errno.into_raw()))?;
    server.listen_unix(&path)?;
    loop {
        std::thread::park();
    }
}
