//! `uringlet ublk add --type rpc` and `uringlet ublk store`: acknowledged writes survive, whichever
//! process is killed.

mod nbd;

use nbd::Nbd;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Longer than any step takes, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);
const SIZE: usize = 8 << 20;
const BLOCK: usize = 16 << 10;
const EIO: u32 = 5;
const ENOSPC: u32 = 28;

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A private folder with a broker, a store and a device, and the processes started.
struct RpcDevice {
    dir: PathBuf,
    /// The device's number. No user of the machine has it: the block device's name is global.
    number: String,
    place: String,
}

impl Drop for RpcDevice {
    fn drop(&mut self) {
        let _ = self.run(&["del", "--all"]);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A process that is killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }
}

impl RpcDevice {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("uringlet-rpc-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let number = 200_000 + 8 * (u64::from(std::process::id()) % 100_000) + NUMBERS.fetch_add(1, SeqCst);
        let place = format!("unix:{}", dir.join("store.sock").display());
        Self { dir, number: number.to_string(), place }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
        command.env("URINGLET_UBLK_DIR", self.dir.join("broker")).arg("ublk").args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts a command and waits for its first line, which contains `word`.
    fn start(&self, args: &[&str], word: &str) -> Process {
        let mut child = self.command(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(word), "{line}");
        Process(child)
    }

    fn file(&self) -> PathBuf {
        self.dir.join("blocks")
    }

    fn store(&self) -> Process {
        let file = self.file();
        let file = file.to_str().unwrap();
        self.start(&["store", "--listen", &self.place, "--file", file, "--size", &SIZE.to_string(), "--json"], "\"listen\":\"unix:")
    }

    fn add(&self, more: &[&str]) -> Process {
        let args = ["add", "-n", &self.number, "--type", "rpc", "--server", &self.place, "--json"];
        self.start(&[&args, more].concat(), "\"state\":\"LIVE\"")
    }

    fn nbd(&self) -> Nbd {
        let nbd = Nbd::connect(&self.dir.join("broker/nbd.sock"), &format!("ublkb{}", self.number));
        assert_eq!(nbd.size, SIZE as u64);
        nbd
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn block(seed: u64) -> Vec<u8> {
    (0..BLOCK as u64).map(|i| (i / 7 + i / 512 + seed * 31) as u8).collect()
}

/// Writes blocks and reads them back on several connections while `accident` runs. Afterwards every
/// acknowledged write must be on the device and in the store's file.
fn survive(world: &RpcDevice, accident: impl FnOnce(&dyn Fn())) {
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let written = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|number| {
                let (is_over, count) = (&is_over, &count);
                let mut nbd = world.nbd();
                scope.spawn(move || {
                    let mut last = vec![None; SIZE / BLOCK / 4];
                    for round in 0.. {
                        if is_over.load(SeqCst) {
                            break;
                        }
                        let index = (round * 7 + 3) as usize % last.len();
                        let at = (number as usize * last.len() + index) * BLOCK;
                        let seed = number << 32 | round;
                        nbd.write(at as u64, &block(seed)).expect("a write fails");
                        last[index] = Some(seed);
                        assert!(nbd.read(at as u64, BLOCK).expect("a read fails") == block(seed), "writer {number}, round {round}");
                        count.fetch_add(1, SeqCst);
                    }
                    last
                })
            })
            .collect();
        accident(&|| {
            let before = count.load(SeqCst);
            until("they go on", || count.load(SeqCst) > before + 20);
        });
        is_over.store(true, SeqCst);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    let (mut nbd, file) = (world.nbd(), std::fs::read(world.file()).unwrap());
    for (index, seed) in written.iter().enumerate().filter_map(|(index, seed)| Some((index, (*seed)?))) {
        let at = index * BLOCK;
        assert!(nbd.read(at as u64, BLOCK).unwrap() == block(seed), "block {index} is lost");
        assert!(file[at..at + BLOCK] == block(seed), "block {index} is not in the store");
    }
}

fn server_killed(buffers: &str) {
    let world = RpcDevice::new(&format!("server-{buffers}"));
    let _store = world.store();
    let mut server = world.add(&["--recovery", "reissue", "--buffers", buffers, "--queues", "2", "--depth", "4"]);
    survive(&world, |go_on| {
        for _ in 0..3 {
            go_on();
            server.kill();
            let args = ["recover", &world.number, "--type", "rpc", "--server", &world.place, "--json"];
            until("the loss is known", || String::from_utf8_lossy(&world.run(&["list"]).stdout).contains("QUIESCED"));
            server = world.start(&args, "\"state\":\"LIVE\"");
        }
        go_on();
    });
}

#[test]
fn acknowledged_writes_survive_a_killed_server() {
    server_killed("on-demand");
}

#[test]
fn acknowledged_writes_survive_a_killed_server_with_preallocated_buffers() {
    server_killed("preallocated");
}

#[test]
fn requests_wait_for_a_killed_store() {
    let world = RpcDevice::new("store");
    let mut store = world.store();
    let _server = world.add(&["--timeout", "120"]);
    survive(&world, |go_on| {
        for _ in 0..3 {
            go_on();
            store.kill();
            store = world.store();
        }
        go_on();
    });
}

#[test]
fn a_device_without_its_store_fails_requests_and_can_be_deleted() {
    let world = RpcDevice::new("away");
    let mut store = world.store();
    let mut server = world.add(&["--timeout", "1"]);
    let mut nbd = world.nbd();
    nbd.write(0, &block(1)).unwrap();
    store.kill();
    assert_eq!(nbd.write(0, &block(2)), Err(EIO));
    assert_eq!(nbd.read(0, BLOCK), Err(EIO));
    server.interrupt();
    assert!(server.0.wait().unwrap().success());
    assert_eq!(world.run(&["list", "--json"]).stdout, b"[]\n");
    // A request that would wait for long does not delay the end.
    let mut store = world.store();
    let mut server = world.add(&["--timeout", "3600"]);
    let mut nbd = world.nbd();
    store.kill();
    let waiting = std::thread::spawn(move || nbd.write(0, &block(2)));
    server.interrupt();
    assert!(server.0.wait().unwrap().success());
    assert_eq!(waiting.join().unwrap(), Err(EIO));
}

/// The first line of a process' standard error.
fn complaint(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    line
}

#[test]
fn del_reports_which_requests_it_waits_for() {
    let world = RpcDevice::new("patient");
    let mut store = world.store();
    let args = ["add", "-n", &world.number, "--type", "rpc", "--server", &world.place, "--timeout", "3600"];
    let child = world.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut server = Process(child);
    until("it is live", || String::from_utf8_lossy(&world.run(&["list"]).stdout).contains("LIVE"));
    let mut nbd = world.nbd();
    store.kill();
    let waiting = std::thread::spawn(move || nbd.write(0, &block(1)));
    assert!(complaint(&mut server.0).contains("is away"));
    let mut deleting = Process(world.command(&["del", &world.number]).stderr(Stdio::piped()).spawn().unwrap());
    let line = complaint(&mut deleting.0);
    assert!(line.contains("waiting for the requests") && line.contains(&server.0.id().to_string()), "{line}");
    server.interrupt();
    assert!(deleting.0.wait().unwrap().success());
    assert_eq!(waiting.join().unwrap(), Err(EIO));
    server.0.wait().unwrap();
}

#[test]
fn errors_of_a_store_reach_the_client() {
    let world = RpcDevice::new("full");
    let args = ["store", "--listen", &world.place, "--file", "/dev/full", "--size", &SIZE.to_string(), "--json"];
    let mut store = world.start(&args, "listen");
    let _server = world.add(&[]);
    let mut nbd = world.nbd();
    assert_eq!(nbd.write(0, &block(1)), Err(ENOSPC));
    assert_eq!(nbd.read(0, BLOCK).unwrap(), vec![0; BLOCK]);
    store.interrupt();
    assert!(store.0.wait().unwrap().success());
    assert!(!Path::new(world.place.strip_prefix("unix:").unwrap()).exists(), "the socket's name stays");
}

#[test]
fn wrong_options_are_reported() {
    let world = RpcDevice::new("wrong");
    let _store = world.store();
    let fails = |args: &[&str], what: &str| {
        let out = world.run(args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(what), "{args:?}: {said}");
    };
    let place = &world.place;
    fails(&["add", "--type", "rpc", "--server", "unix:/nonexistent"], "uringlet ublk store");
    fails(&["add", "--type", "rpc", "--server", "somewhere"], "HOST:PORT");
    fails(&["add", "--type", "rpc", "--server", place, "--size", "1G"], "the store has 8388608 bytes");
    fails(&["add", "--type", "ram", "--server", place], "--type rpc");
    fails(&["add", "--type", "null", "--timeout", "3"], "--type rpc");
    fails(&["add", "--type", "rpc", "--server", place, "--file", "x"], "cannot be used with");
    fails(&["add", "--type", "ram", "--buffers", "on-demand", "--user-copy"], "cannot be used with");
    fails(&["store", "--listen", place, "--size", "1M"], "another store listens");
    fails(&["store", "--listen", "unix:/nonexistent/x", "--size", "1M"], "listening on");
    fails(&["store"], "--size");
    let other = world.dir.join("other");
    std::fs::write(&other, [0; 8192]).unwrap();
    for (file, what) in [(world.file(), "in use by process"), (other, "8192 bytes already")] {
        fails(&["store", "--listen", "127.0.0.1:0", "--file", file.to_str().unwrap(), "--size", "1M"], what);
    }
}

#[test]
fn each_type_supports_each_kind_of_buffers() {
    let world = RpcDevice::new("types");
    let (number, size) = (&world.number[..], &SIZE.to_string()[..]);
    for kind in ["null", "ram", "rpc"] {
        for (option, feature) in
            [("--need-get-data", Some("NEED_GET_DATA")), ("--user-copy", Some("USER_COPY")), ("--buffers=preallocated", None)]
        {
            let args = ["add", "-n", number, "--type", kind, "--size", size, "--block-size", "4096", option, "--json"];
            let mut server = world.start(&args, "LIVE");
            let listed = String::from_utf8(world.run(&["list", "--json"]).stdout).unwrap();
            for name in ["NEED_GET_DATA", "USER_COPY"] {
                assert_eq!(listed.contains(name), feature == Some(name), "{kind} {option}: {listed}");
            }
            let mut nbd = world.nbd();
            nbd.write(4096, &block(1)).unwrap();
            let expected = if kind == "null" { vec![0; BLOCK] } else { block(1) };
            assert!(nbd.read(4096, BLOCK).unwrap() == expected, "{kind} {option}");
            assert!(world.run(&["del", number]).status.success());
            assert!(server.0.wait().unwrap().success());
        }
    }
}

#[test]
fn a_store_prints_its_address() {
    let world = RpcDevice::new("where");
    let mut child = world.command(&["store", "--listen", "127.0.0.1:0", "--size", "1M"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("1048576 bytes at 127.0.0.1:"), "{line}");
    let store = Process(child);
    let place = line.rsplit(' ').next().unwrap().trim();
    let _server = world.start(&["add", "-n", &world.number, "--type", "rpc", "--server", place, "--json"], "\"size\":1048576");
    store.interrupt();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}
