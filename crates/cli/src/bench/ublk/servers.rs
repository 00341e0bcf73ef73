//! Null devices for the measurements: uringlet's with a broker of its own, and other NBD servers.
//! All of them end with this process.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::stop::StopFlag;
use crate::bench::tools::BenchTools;
use uringlet_ublkd::client::BrokerClient;
use uringlet_ublkd::runtime_dir;

/// Driver, NBD server and ublk server in one process, as in nbdkit.
pub(super) const NBD_EMBEDDED: &str = "NBD, one process";
/// As `uringlet ublk add` sets it up.
pub(super) const NBD_BROKER: &str = "NBD, broker";
pub(super) const NBDKIT: &str = "nbdkit null";
pub(super) const QEMU: &str = "qemu null-co";
pub(super) const BLOCK: &str = "block device";
/// The device size that the worker expects, bytes.
const SIZE: &str = "1073741824";
/// Time for a server to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a server to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A way to reach a device.
#[derive(Debug)]
pub(super) struct DeviceEndpoint {
    pub(super) column: &'static str,
    path: PathBuf,
}

impl DeviceEndpoint {
    /// A block device is measured through the kernel's ring.
    pub(super) fn needs_kernel(&self) -> bool {
        self.column == BLOCK
    }

    /// The worker's first arguments.
    pub(super) fn worker_args(&self) -> [OsString; 3] {
        let [command, option] = if self.column == BLOCK { ["block", "--device"] } else { ["nbd", "--socket"] };
        [command.into(), option.into(), self.path.clone().into()]
    }
}

/// The running servers. They are stopped in reverse order.
#[derive(Debug)]
pub(super) struct NullServers {
    directory: Option<PathBuf>,
    children: Vec<Child>,
    endpoints: Vec<DeviceEndpoint>,
}

impl NullServers {
    pub(super) fn none() -> Self {
        Self { directory: None, children: Vec::new(), endpoints: Vec::new() }
    }

    pub(super) fn endpoints(&self) -> impl Iterator<Item = &DeviceEndpoint> {
        self.endpoints.iter()
    }

    /// Starts all servers; missing ones are noted.
    pub(super) fn start(tools: &BenchTools, stop: &StopFlag, notes: &mut Vec<String>) -> Result<Self, String> {
        let directory = std::env::temp_dir().join(format!("uringlet-bench-ublk-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
        made.map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        let mut servers = Self::none();
        servers.directory = Some(directory.clone());
        servers.start_embedded(tools, &directory.join("alone.sock"), stop)?;
        servers.start_broker(tools, &directory, stop, notes)?;
        let socket = directory.join("nbdkit.sock");
        servers.start_external(NBDKIT, "nbdkit", &nbdkit(&socket), &socket, stop, notes);
        let socket = directory.join("qemu.sock");
        servers.start_external(QEMU, "qemu-system-common", &qemu(&socket), &socket, stop, notes);
        Ok(servers)
    }

    /// A null device and its NBD server in one process.
    fn start_embedded(&mut self, tools: &BenchTools, socket: &Path, stop: &StopFlag) -> Result<(), String> {
        self.spawn(Command::new(&tools.worker).args(["nbd-server", "--socket"]).arg(socket))?;
        self.wait("the NBD server", stop, || socket.exists())?;
        self.endpoints.push(DeviceEndpoint { column: NBD_EMBEDDED, path: socket.to_path_buf() });
        Ok(())
    }

    /// A broker, and a server of one null device.
    fn start_broker(&mut self, tools: &BenchTools, directory: &Path, stop: &StopFlag, notes: &mut Vec<String>) -> Result<(), String> {
        let dir = directory.join("ublk");
        let mut broker = Command::new(&tools.uringlet);
        self.spawn(broker.args(["ublkd", "--dir"]).arg(&dir))?;
        let client = BrokerClient::new(&dir);
        self.wait("the broker", stop, || client.is_running().unwrap_or(false))?;
        let mut server = Command::new(&tools.uringlet);
        self.spawn(server.args(["ublk", "--dir"]).arg(&dir).args(["add", "--type", "null", "--size", "1G"]))?;
        let is_live = || client.list().is_ok_and(|ids| ids.first().is_some_and(|&id| is_live(&client, id)));
        self.wait("the device", stop, is_live)?;
        self.endpoints.push(DeviceEndpoint { column: NBD_BROKER, path: runtime_dir::nbd_socket(&dir) });
        let id = client.list().unwrap_or_default().first().copied().unwrap_or_default();
        let node = PathBuf::from(format!("/dev/ublkb{id}"));
        if std::fs::metadata(&node).is_ok_and(|meta| meta.file_type().is_block_device()) {
            self.endpoints.push(DeviceEndpoint { column: BLOCK, path: node });
        } else {
            notes.push("block device: not measured, it does not exist (it needs root, /dev/fuse and loop devices)".to_owned());
        }
        Ok(())
    }

    /// Another NBD server, if it is installed.
    fn start_external(
        &mut self,
        column: &'static str,
        package: &str,
        argv: &[OsString],
        socket: &Path,
        stop: &StopFlag,
        notes: &mut Vec<String>,
    ) {
        let started = self.spawn(Command::new(&argv[0]).args(&argv[1..])).and_then(|()| self.wait(column, stop, || socket.exists()));
        match started {
            Ok(()) => self.endpoints.push(DeviceEndpoint { column, path: socket.to_path_buf() }),
            Err(why) => notes.push(format!("{column}: not measured ({why}; package {package})")),
        }
    }

    fn spawn(&mut self, command: &mut Command) -> Result<(), String> {
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = spawned.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
        self.children.push(child);
        Ok(())
    }

    /// Waits until the server started last is ready.
    fn wait(&mut self, what: &str, stop: &StopFlag, is_ready: impl Fn() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_ready() {
            let ended = self.children.last_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(format!("{what} ended immediately, {status}"));
            }
            if stop.is_requested() {
                return Err("stopped".to_owned());
            }
            if Instant::now() > deadline {
                return Err(format!("{what} did not start in time"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

fn is_live(client: &BrokerClient, id: u32) -> bool {
    client.info(id).is_ok_and(|info| info.state == uringlet_abi::ublk::state::LIVE)
}

fn nbdkit(socket: &Path) -> Vec<OsString> {
    vec![
        "nbdkit".into(),
        "--exit-with-parent".into(),
        "--foreground".into(),
        "--unix".into(),
        socket.into(),
        "null".into(),
        format!("size={SIZE}").into(),
    ]
}

fn qemu(socket: &Path) -> Vec<OsString> {
    let mut address = OsString::from("addr.type=unix,addr.path=");
    // qemu's option syntax wants commas doubled.
    address.push(socket.to_string_lossy().replace(',', ",,"));
    let device = format!("driver=null-co,node-name=null,size={SIZE},read-zeroes=on");
    let export = "type=nbd,id=null,node-name=null,name=,writable=on";
    ["qemu-storage-daemon".into(), "--blockdev".into(), device.into(), "--nbd-server".into(), address, "--export".into(), export.into()]
        .into()
}

impl Drop for NullServers {
    fn drop(&mut self) {
        while let Some(mut child) = self.children.pop() {
            terminate(&mut child);
        }
        if let Some(directory) = self.directory.take() {
            // Leftovers in the temporary directory do no harm.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// Sends SIGTERM, and SIGKILL after the timeout.
fn terminate(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    if matches!(child.try_wait(), Ok(None)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = child.kill();
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Endpoints without processes.
    pub(in crate::bench::ublk) fn servers() -> NullServers {
        let endpoint = |column| DeviceEndpoint { column, path: "/s".into() };
        let mut servers = NullServers::none();
        servers.endpoints = vec![endpoint(NBD_EMBEDDED), endpoint(NBD_BROKER), endpoint(BLOCK), endpoint(NBDKIT)];
        servers
    }

    #[test]
    fn endpoints_have_their_worker_arguments() {
        let words = |column| DeviceEndpoint { column, path: "/x".into() }.worker_args().map(|word| word.into_string().unwrap()).join(" ");
        assert_eq!(words(QEMU), "nbd --socket /x");
        assert_eq!(words(BLOCK), "block --device /x");
    }

    #[test]
    fn missing_servers_are_noted_and_running_ones_stopped() {
        let (mut servers, mut notes) = (NullServers::none(), Vec::new());
        let stop = StopFlag::default();
        servers.start_external(NBDKIT, "nbdkit", &["/nowhere/nbdkit".into()], Path::new("/nowhere"), &stop, &mut notes);
        servers.start_external(QEMU, "qemu", &["true".into()], Path::new("/nowhere"), &stop, &mut notes);
        assert!(notes[0].contains("cannot start /nowhere/nbdkit") && notes[0].contains("package nbdkit"), "{notes:?}");
        assert!(notes[1].contains("ended immediately"), "{notes:?}");
        servers.start_external(NBDKIT, "x", &["sleep".into(), "1000".into()], Path::new("/"), &stop, &mut notes);
        assert_eq!((servers.endpoints().count(), notes.len()), (1, 2));
        let begun = Instant::now();
        drop(servers);
        assert!(begun.elapsed() < Duration::from_secs(900));
    }
}
