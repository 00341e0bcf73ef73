//! `uringlet ublk list`, `del` and `features`.

use super::options::device_number;
use anyhow::Context;
use serde_json::{Value, json};
use std::sync::mpsc::channel;
use std::time::Duration;
use uringlet_abi::ublk::{feature, state};
use uringlet_ublk_front::nbd::NbdAddress;
use uringlet_ublkd::client::BrokerClient;
use uringlet_ublkd::runtime_dir;

/// Waits longer than this are explained to the user.
const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// List devices
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Only this device
    #[arg(value_parser = device_number())]
    number: Option<u32>,
}

/// Delete devices; their servers end
#[derive(Debug, clap::Args)]
pub(super) struct DelArgs {
    /// All devices
    #[arg(long, conflicts_with = "numbers")]
    all: bool,

    #[arg(required_unless_present = "all", value_name = "NUMBER", value_parser = device_number())]
    numbers: Vec<u32>,
}

/// Show the driver's features
#[derive(Debug, clap::Args)]
pub(super) struct FeaturesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const NAMES: &[(u64, &str)] = &[
    (feature::URING_CMD_COMP_IN_TASK, "URING_CMD_COMP_IN_TASK"),
    (feature::NEED_GET_DATA, "NEED_GET_DATA"),
    (feature::USER_RECOVERY, "USER_RECOVERY"),
    (feature::USER_RECOVERY_REISSUE, "USER_RECOVERY_REISSUE"),
    (feature::UNPRIVILEGED_DEV, "UNPRIVILEGED_DEV"),
    (feature::CMD_IOCTL_ENCODE, "CMD_IOCTL_ENCODE"),
    (feature::USER_COPY, "USER_COPY"),
    (feature::USER_RECOVERY_FAIL_IO, "USER_RECOVERY_FAIL_IO"),
    (feature::UPDATE_SIZE, "UPDATE_SIZE"),
    (feature::QUIESCE, "QUIESCE"),
    (feature::PER_IO_DAEMON, "PER_IO_DAEMON"),
];

fn names(flags: u64) -> Vec<&'static str> {
    NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect()
}

fn describe(client: &BrokerClient, id: u32) -> anyhow::Result<Value> {
    let info = client.info(id).with_context(|| format!("device {id}"))?;
    let params = client.params(id)?;
    let word = match info.state {
        state::DEAD => "DEAD",
        state::LIVE => "LIVE",
        state::QUIESCED => "QUIESCED",
        state::FAIL_IO => "FAIL_IO",
        _ => "unknown",
    };
    // The name alone says nothing: the node may be another broker's.
    let block = client.block_node(id)?;
    let nbd = (info.state != state::DEAD).then(|| NbdAddress::Unix(runtime_dir::nbd_socket(client.dir())).uri(id));
    Ok(json!({
        "id": id,
        "state": word,
        "server": info.ublksrv_pid,
        "size": params.basic.dev_sectors * 512,
        "queues": info.nr_hw_queues,
        "depth": info.queue_depth,
        "features": names(info.flags),
        "nbd": nbd,
        "block": block,
    }))
}

fn print(device: &Value) {
    let word = |key: &str| device[key].as_str().unwrap_or("-").to_owned();
    // A JSON value ignores a width.
    let number = |key: &str| device[key].to_string();
    println!("{:<6} {:<9} {:>8} {:>14}  {}  {}", number("id"), word("state"), number("server"), number("size"), word("block"), word("nbd"));
}

/// Prints one device.
pub(super) fn show(client: &BrokerClient, id: u32, is_json: bool) -> anyhow::Result<()> {
    let device = describe(client, id)?;
    if is_json {
        println!("{device}");
    } else {
        print(&device);
    }
    Ok(())
}

pub(super) fn list(client: &BrokerClient, args: &ListArgs) -> anyhow::Result<()> {
    let ids = match args.number {
        Some(number) => vec![number],
        // Without a broker there are no devices.
        None if !client.is_running()? => Vec::new(),
        None => client.list()?,
    };
    // A device deleted meanwhile is left out, unless it was asked for.
    let found = ids.iter().map(|id| describe(client, *id)).filter(|found| found.is_ok() || args.number.is_some());
    let devices = found.collect::<anyhow::Result<Vec<_>>>()?;
    if args.json {
        println!("{}", Value::from(devices));
    } else {
        println!("{:<6} {:<9} {:>8} {:>14}  BLOCK  NBD", "ID", "STATE", "SERVER", "SIZE");
        devices.iter().for_each(print);
    }
    Ok(())
}

pub(super) fn del(client: &BrokerClient, args: &DelArgs) -> anyhow::Result<()> {
    let numbers = if args.all { client.list()? } else { args.numbers.clone() };
    numbers.iter().try_for_each(|id| delete(client, *id).with_context(|| format!("deleting device {id}")))
}

/// Deletes a device; says what it waits for if that takes long.
fn delete(client: &BrokerClient, id: u32) -> anyhow::Result<()> {
    let (done, is_done) = channel();
    let (at_work, server) = (client.clone(), client.info(id)?.ublksrv_pid);
    std::thread::spawn(move || done.send(at_work.delete(id)));
    if let Ok(result) = is_done.recv_timeout(QUIET_PERIOD) {
        return result;
    }
    eprintln!("uringlet ublk: waiting for the requests of device {id} that its server (process {server}) executes");
    is_done.recv()?
}

pub(super) fn features(client: &BrokerClient, args: &FeaturesArgs) -> anyhow::Result<()> {
    super::daemon::ensure(client)?;
    let flags = client.features()?;
    if args.json {
        println!("{}", json!({ "flags": flags, "names": names(flags) }));
    } else {
        println!("{flags:#x}");
        names(flags).iter().for_each(|name| println!("{name}"));
    }
    Ok(())
}
