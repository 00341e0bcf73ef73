//! The broker's process.

use crate::Status;
use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};
use uringlet_ublk_front::block::BlockFrontEnd;
use uringlet_ublk_front::nbd::NbdServer;
use uringlet_ublkd::broker::Broker;
use uringlet_ublkd::client::BrokerClient;
use uringlet_ublkd::runtime_dir;

/// How long a broker that nobody uses stays, when it was started on demand, seconds.
const IDLE_SECONDS: &str = "30";
/// How long a broker may take to begin.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The broker of ublk devices: run by hand only to see what it says
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its folder [default: $URINGLET_UBLK_DIR, or uringlet in $XDG_RUNTIME_DIR; /run/uringlet for root]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// End after so long without devices and connections
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,

    /// Also offer NBD on this TCP port of the loopback address: to everybody on this machine
    #[arg(long, value_name = "PORT")]
    tcp: Option<u16>,

    /// No /dev/ublkbN, even if it could be made
    #[arg(long)]
    no_block: bool,
}

/// Runs the broker until it is interrupted.
pub(crate) fn ublkd(args: &Args) -> Status {
    match run(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("uringlet ublkd: {error:#}");
            1
        }
    }
}

/// A block device is a favour: without it the device is there by NBD.
#[derive(Debug)]
struct BestEffort(BlockFrontEnd);

impl FrontEnd for BestEffort {
    fn start(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno> {
        let id = device.id();
        if let Err(errno) = self.0.start(device) {
            let error = std::io::Error::from_raw_os_error(errno.into_raw());
            eprintln!("uringlet ublkd: no {}: {error}; device {id} is there by NBD", self.0.node(id).display());
        }
        Ok(())
    }

    fn resized(&self, device: &Arc<dyn BlockDevice>) {
        self.0.resized(device);
    }

    fn before_stop(&self, id: u32) {
        self.0.before_stop(id);
    }

    fn stop(&self, id: u32) {
        self.0.stop(id);
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let dir = args.dir.clone().unwrap_or_else(runtime_dir::default_dir);
    let nbd = Arc::new(NbdServer::new()?);
    let mut front_ends: Vec<Arc<dyn FrontEnd>> = vec![Arc::clone(&nbd) as Arc<dyn FrontEnd>];
    let block = BlockFrontEnd::new(Path::new("/dev"));
    let missing = block.missing();
    if missing.is_empty() {
        // Also without block devices of our own: an earlier one may have had some.
        block.clean().iter().for_each(|what| eprintln!("uringlet ublkd: {what}"));
    }
    if !args.no_block && missing.is_empty() {
        front_ends.push(Arc::new(BestEffort(block)));
    } else if !args.no_block {
        missing.iter().for_each(|why| eprintln!("uringlet ublkd: no /dev/ublkbN: {why}"));
    }
    super::interrupt::survive_broken_pipes()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
    }
    let broker = Broker::new(&dir, front_ends)?;
    nbd.listen_unix(&runtime_dir::nbd_socket(&dir)).context("offering NBD")?;
    if let Some(port) = args.tcp {
        let address = nbd.listen_tcp(([127, 0, 0, 1], port).into()).context("offering NBD over TCP")?;
        println!("{}", address.uri(0));
    }
    let handle = broker.handle();
    std::thread::Builder::new().name("ublkd-signals".into()).spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
        handle.stop();
    })?;
    broker.run(args.idle.map(Duration::from_secs))
}

/// Sees that a broker is there: starts one if need be, in a process group of its own, its words going to a log in its folder.
pub(super) fn ensure(client: &BrokerClient) -> anyhow::Result<()> {
    if client.is_running() {
        return Ok(());
    }
    runtime_dir::prepare(client.dir())?;
    let path = client.dir().join("ublkd.log");
    let log = std::fs::File::create(&path).with_context(|| format!("making {}", path.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uringlet").args(["ublkd", "--idle", IDLE_SECONDS, "--dir"]).arg(client.dir());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir("/").process_group(0);
    let mut child = command.spawn().context("starting the broker")?;
    let started = Instant::now();
    while !client.is_running() {
        let log_text = || std::fs::read_to_string(&path).unwrap_or_default();
        // One that ends because another was quicker is no harm.
        if let Some(status) = child.try_wait()?
            && !client.is_running()
        {
            anyhow::bail!("the broker ended with {status}: {}", log_text().trim());
        }
        anyhow::ensure!(started.elapsed() < START_TIMEOUT, "the broker does not answer: {}", log_text().trim());
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
