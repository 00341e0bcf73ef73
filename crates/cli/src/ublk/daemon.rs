//! `uringlet ublkd`: the broker's process; starting one on demand.

use crate::Status;
use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};
use uringlet_ublk::wire::SUPERVISOR_TIMEOUT_NS;
use uringlet_ublk_front::block::BlockFrontEnd;
use uringlet_ublk_front::nbd::NbdServer;
use uringlet_ublkd::broker::Broker;
use uringlet_ublkd::client::BrokerClient;
use uringlet_ublkd::runtime_dir;

/// How long a broker that was started on demand stays without devices, seconds.
const IDLE_SECONDS: &str = "30";
/// Longest start of a broker.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a supervisor may take to start a broker again, before servers do.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_nanos(SUPERVISOR_TIMEOUT_NS);
/// Environment variable with the log filter.
const LOG_VARIABLE: &str = "URINGLET_LOG";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Run the broker of ublk devices in the foreground; `uringlet ublk` starts it on demand
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    /// Its runtime directory [default: $URINGLET_UBLK_DIR, or uringlet in $XDG_RUNTIME_DIR;
    /// /run/uringlet for root]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Exit after this time without devices and connections
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,

    /// Also serve NBD on this TCP port of the loopback address, to every user of this machine
    #[arg(long, value_name = "PORT")]
    tcp: Option<u16>,

    /// Create no /dev/ublkbN
    #[arg(long)]
    no_block: bool,

    /// What to log to stderr: off, error, warn, info, debug, trace, or directives such as
    /// uringlet_ublkd=debug
    ///
    /// A broker that was started on demand logs to ublkd.log in its runtime directory.
    #[arg(long, value_name = "FILTER", env = LOG_VARIABLE, default_value = "info")]
    log: String,
}

/// Runs the broker until a signal ends it.
pub(crate) fn ublkd(args: &DaemonArgs) -> Status {
    match run(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("uringlet ublkd: {error:#}");
            1
        }
    }
}

/// A front end whose failure does not stop a device: it is still reachable over NBD.
#[derive(Debug)]
struct BestEffort(BlockFrontEnd);

impl FrontEnd for BestEffort {
    fn reserve(&self, id: u32) -> Result<(), Errno> {
        self.0.reserve(id)
    }

    fn release(&self, id: u32) {
        self.0.release(id);
    }

    fn block_node(&self, id: u32) -> Option<String> {
        self.0.block_node(id)
    }

    fn start(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno> {
        let id = device.id();
        if let Err(errno) = self.0.start(device) {
            let error = std::io::Error::from_raw_os_error(errno.into_raw());
            let node = self.0.node(id);
            warn!(device = id, "cannot create {}: {error}; the device is available over NBD only", node.display());
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

/// Logs to stderr.
fn init_log(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).context("--log")?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    log.try_init().map_err(|error| anyhow::anyhow!("{error}")).context("starting the log")
}

fn run(args: &DaemonArgs) -> anyhow::Result<()> {
    init_log(&args.log)?;
    let dir = args.dir.clone().unwrap_or_else(runtime_dir::default_dir);
    let nbd = Arc::new(NbdServer::new()?);
    let mut front_ends: Vec<Arc<dyn FrontEnd>> = vec![Arc::clone(&nbd) as Arc<dyn FrontEnd>];
    let block = BlockFrontEnd::new(Path::new("/dev"));
    let missing = block.missing();
    if missing.is_empty() {
        // With --no-block too: an earlier broker may have had block devices.
        block.clean().iter().for_each(|what| info!("{what}"));
    }
    if !args.no_block && missing.is_empty() {
        front_ends.push(Arc::new(BestEffort(block)));
    } else if !args.no_block {
        missing.iter().for_each(|why| info!("no /dev/ublkbN: {why}"));
    }
    super::interrupt::survive_broken_pipes()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("registering signal handlers")?;
    }
    let broker = Broker::new(&dir, front_ends)?;
    let mark = runtime_dir::on_demand_mark(&dir);
    // An error means that servers wait longer than they have to, or shorter.
    let _ = if args.idle.is_some() { std::fs::write(&mark, "") } else { std::fs::remove_file(&mark) };
    nbd.listen_unix(&runtime_dir::nbd_socket(&dir)).context("listening for NBD")?;
    if let Some(port) = args.tcp {
        let address = nbd.listen_tcp(([127, 0, 0, 1], port).into()).context("listening for NBD over TCP")?;
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

/// Starts a broker if none answers: in a process group of its own, with its log in the runtime
/// directory.
pub(super) fn ensure(client: &BrokerClient) -> anyhow::Result<()> {
    if client.is_running()? {
        return Ok(());
    }
    runtime_dir::prepare(client.dir())?;
    let path = client.dir().join("ublkd.log");
    let log = std::fs::File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("uringlet").args(["ublkd", "--idle", IDLE_SECONDS, "--dir"]).arg(client.dir());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).current_dir("/").process_group(0);
    let mut child = command.spawn().context("starting the broker")?;
    let started = Instant::now();
    while !client.is_running()? {
        let log_text = || std::fs::read_to_string(&path).unwrap_or_default();
        // Harmless if it ended because another broker was faster.
        if let Some(status) = child.try_wait()?
            && !client.is_running()?
        {
            anyhow::bail!("the broker ended with {status}: {}", log_text().trim());
        }
        anyhow::ensure!(started.elapsed() < START_TIMEOUT, "the broker does not answer: {}", log_text().trim());
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Waits for the next broker after one was killed, and starts it unless whoever started the last
/// one does. False: `stop` was set meanwhile.
pub(super) fn wait_for_next(client: &BrokerClient, stop: &AtomicBool) -> anyhow::Result<bool> {
    let is_on_demand = runtime_dir::on_demand_mark(client.dir()).exists();
    let timeout = if is_on_demand { Duration::ZERO } else { SUPERVISOR_TIMEOUT };
    let lost = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        // A dying broker's socket takes connections until the kernel has closed it.
        if client.is_running()? && client.list().is_ok() {
            return Ok(true);
        }
        if lost.elapsed() >= timeout {
            return ensure(client).map(|()| true);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(false)
}
