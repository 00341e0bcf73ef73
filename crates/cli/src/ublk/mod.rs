//! `uringlet ublk` and `uringlet ublkd`: block devices in user space.

mod daemon;
mod interrupt;
mod options;
mod rejoin;
mod serve;
mod show;
mod store;

use crate::Status;
use std::path::PathBuf;
use uringlet_ublkd::client::BrokerClient;
use uringlet_ublkd::runtime_dir;

pub(crate) use daemon::{DaemonArgs, ublkd};

const EXAMPLES: &str = "\
Examples:
  uringlet ublk add --type ram --size 1G               a device in memory; Ctrl-C ends it
  uringlet ublk add --type file --file disk.img --recovery reissue -n 7
  uringlet ublk recover 7 --type file --file disk.img  go on after its server has died
  uringlet ublk store --size 10G --file blocks         a store, here or on another machine
  uringlet ublk add --type rpc --server HOST:7411      a device whose blocks are there
  uringlet ublk list --json
  uringlet ublk del --all";

/// Block devices served by programs: over NBD, and for root also as /dev/ublkbN
///
/// A broker (`uringlet ublkd`, started on demand) owns the devices; servers come and go. When its
/// server dies a device dies too, or, with --recovery, waits for the next server.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct UblkArgs {
    #[command(subcommand)]
    command: UblkCommand,

    /// The broker's runtime directory [default: $URINGLET_UBLK_DIR, or uringlet in
    /// $XDG_RUNTIME_DIR; /run/uringlet for root]
    #[arg(long, global = true, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum UblkCommand {
    Add(serve::AddArgs),
    Recover(serve::RecoverArgs),
    Store(store::StoreArgs),
    List(show::ListArgs),
    Del(show::DelArgs),
    Features(show::FeaturesArgs),
}

/// Runs a subcommand.
pub(crate) fn ublk(args: &UblkArgs) -> Status {
    let client = BrokerClient::new(&args.dir.clone().unwrap_or_else(runtime_dir::default_dir));
    let result = match &args.command {
        UblkCommand::Add(args) => serve::add(&client, args),
        UblkCommand::Recover(args) => serve::recover(&client, args),
        UblkCommand::Store(args) => store::run(args),
        UblkCommand::List(args) => show::list(&client, args),
        UblkCommand::Del(args) => show::del(&client, args),
        UblkCommand::Features(args) => show::features(&client, args),
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("uringlet ublk: {error:#}");
            1
        }
    }
}
