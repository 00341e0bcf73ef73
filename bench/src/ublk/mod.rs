//! A null ublk device and its clients: requests per second and their latency.
//!
//! `ublk`: server and client are two threads of one process, each with a ring, under `uringlet
//! run`. `nbd`: client of an NBD server. `block`: client of a block device.

mod block;
mod client;
mod control;
mod geometry;
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
use geometry::{DataPath, MAX_BYTES, SIZE, UblkOp};
use load::UblkLoad;

#[derive(Debug)]
struct UblkWorkerArgs {
    load: UblkLoad,
    data_path: DataPath,
    /// Path of a socket or a device.
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
    ensure!((1..=1024).contains(&depth) && (1..=depth).contains(&batch), "the depth is 1 to 1024, the batch at most the depth");
    ensure!(block.is_multiple_of(512) && (512..=MAX_BYTES).contains(&block), "a request is 512 bytes to 1 MiB, in whole sectors");
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
        _ => bail!("there is no data path `{name}`"),
    })
}

/// Server and client in this process.
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

/// Client of an NBD server.
pub(crate) fn run_nbd_client() -> anyhow::Result<Metrics> {
    let (load, path) = client_args()?;
    load.run(&mut nbd::NbdBenchClient::connect(&path, &load)?)
}

/// Client of a block device.
pub(crate) fn run_block_client() -> anyhow::Result<Metrics> {
    let (load, path) = client_args()?;
    load.run(&mut block::BlockDeviceClient::open(&path, &load)?)
}

fn client_args() -> anyhow::Result<(UblkLoad, PathBuf)> {
    let UblkWorkerArgs { load, path, .. } = parse()?;
    ensure!(load.op != UblkOp::Flush, "only reads and writes are supported");
    Ok((load, path))
}

/// An NBD server of a null device, with the driver and its server in this process, until killed.
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
