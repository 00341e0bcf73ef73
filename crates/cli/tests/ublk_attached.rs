//! An unmodified ublk server under `uringlet run`: its device is used over NBD and managed by other
//! processes.

mod common;
#[path = "ublk_rpc/nbd.rs"]
mod nbd;

use common::{compile, directory, uringlet};
use nbd::Nbd;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);
const NEED_GET_DATA: u32 = 1 << 2;
const RECOVERY_REISSUE: u32 = 1 << 3 | 1 << 4;
const USER_COPY: u32 = 1 << 7;
const EIO: u32 = 5;

/// A private broker, and the server's program.
struct TestBroker {
    place: PathBuf,
    program: PathBuf,
    broker: Child,
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        let _ = self.broker.wait();
    }
}

impl TestBroker {
    fn new(name: &str) -> Self {
        let place = directory(&format!("ublk-attached-{name}"));
        let program = compile("cc", &place, "ublk_server", &["ublk_server.c"], &[]);
        let broker = start_broker(&place);
        Self { place, program, broker }
    }

    /// Kills the broker.
    fn kill_broker(&mut self) {
        self.broker.kill().unwrap();
        self.broker.wait().unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.place.join("broker/nbd.sock")
    }

    /// Starts a server and waits until its device is live.
    fn serve(&self, flags: u32, mode: &[&str]) -> Child {
        let mut command = uringlet(&self.place.join("cache"));
        command.env("URINGLET_UBLK_DIR", self.place.join("broker")).env("BLOCK_IO_URING", "1");
        command.arg("--").arg(&self.program).arg(flags.to_string()).args(mode).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "live\n");
        child
    }

    fn nbd(&self) -> Nbd {
        Nbd::connect(&self.socket(), "ublkb0")
    }

    fn ublk(&self, words: &[&str]) -> String {
        let out = command(&self.place).arg("ublk").args(words).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }
}

/// Without a block device, whose name would be visible on the whole machine.
fn start_broker(place: &Path) -> Child {
    let broker = command(place).args(["ublkd", "--no-block"]).spawn().unwrap();
    until("the broker is there", || UnixStream::connect(place.join("broker/nbd.sock")).is_ok());
    broker
}

fn command(place: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
    command.env("URINGLET_UBLK_DIR", place.join("broker"));
    command
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed * 7).to_le_bytes()[0]).collect()
}

fn serves(name: &str, flags: u32) {
    let world = TestBroker::new(name);
    let mut server = world.serve(flags, &[]);
    assert!(world.ublk(&["list", "--json"]).contains("\"state\":\"LIVE\""));
    let mut nbd = world.nbd();
    assert_eq!(nbd.size, 8 << 20);
    // Transfers longer than a request may be, and transfers that begin in the middle of a page.
    for (turn, (at, len)) in [(0, 512), (4096, 65536), (1 << 20, 200_704), (3 << 20, 1 << 20), (512, 1024)].into_iter().enumerate() {
        let data = pattern(len, turn);
        nbd.write(at, &data).unwrap();
        assert!(nbd.read(at, len).unwrap() == data, "{len} bytes at {at}");
    }
    for turn in 0..500 {
        let data = pattern(4096, turn);
        let at = (turn as u64 * 7919 % 2048) * 4096;
        nbd.write(at, &data).unwrap();
        assert!(nbd.read(at, data.len()).unwrap() == data, "turn {turn}");
    }
    world.ublk(&["del", "0"]);
    assert!(server.wait().unwrap().success());
    assert_eq!(world.ublk(&["list", "--json"]), "[]\n");
}

#[test]
fn data_is_copied_to_and_from_the_servers_buffers() {
    serves("copy", 0);
}

#[test]
fn need_get_data_copies_to_the_address_that_the_server_gives() {
    serves("data", NEED_GET_DATA);
}

#[test]
fn a_user_copy_server_copies_its_data_itself() {
    serves("user", USER_COPY);
}

#[test]
fn unmapped_buffers_fail_their_requests_only() {
    let world = TestBroker::new("bad");
    let mut server = world.serve(0, &["bad"]);
    let mut nbd = world.nbd();
    for _ in 0..40 {
        assert_eq!(nbd.write(0, &[1; 4096]), Err(EIO));
        assert_eq!(nbd.read(0, 4096), Err(EIO));
    }
    world.ublk(&["del", "0"]);
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_second_server_recovers_the_device_of_a_killed_one() {
    let world = TestBroker::new("killed");
    let mut server = world.serve(RECOVERY_REISSUE, &[]);
    let mut nbd = world.nbd();
    nbd.write(0, &pattern(4096, 1)).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    until("it is quiesced", || world.ublk(&["list", "--json"]).contains("\"state\":\"QUIESCED\""));
    // Waits for the next server, which has other memory.
    let waiting = std::thread::spawn(move || (nbd.write(4096, &pattern(8192, 2)), nbd));
    let mut next = world.serve(RECOVERY_REISSUE, &["recover"]);
    let (written, mut nbd) = waiting.join().unwrap();
    written.unwrap();
    assert!(nbd.read(4096, 8192).unwrap() == pattern(8192, 2));
    assert!(world.ublk(&["list", "--json"]).contains("\"state\":\"LIVE\""));
    world.ublk(&["del", "0"]);
    assert!(next.wait().unwrap().success());
}

#[test]
fn a_killed_server_counts_as_dead_though_its_children_live() {
    let world = TestBroker::new("children");
    let mut server = world.serve(RECOVERY_REISSUE, &["fork"]);
    // The child reads from this pipe until the test ends.
    let pipe = server.stdin.take();
    server.kill().unwrap();
    server.wait().unwrap();
    until("it is quiesced", || world.ublk(&["list", "--json"]).contains("\"state\":\"QUIESCED\""));
    drop(pipe);
}

fn survives_its_broker(name: &str, flags: u32) {
    let mut world = TestBroker::new(name);
    let mut server = world.serve(flags, &[]);
    world.nbd().write(0, &pattern(65536, 1)).unwrap();
    for round in 2..6 {
        // A client that is in the middle of its requests when the broker dies, and connects again.
        let socket = world.socket();
        let busy = std::thread::spawn(move || {
            let mut nbd = Nbd::connect(&socket, "ublkb0");
            let mut sent = 0_usize;
            while nbd.try_write(1 << 20, &pattern(4096, sent)) {
                sent += 1;
            }
            sent
        });
        std::thread::sleep(Duration::from_millis(100));
        world.kill_broker();
        assert!(busy.join().unwrap() > 0);
        world.broker = start_broker(&world.place);
        until("the device is there again", || world.ublk(&["list", "--json"]).contains("\"state\":\"LIVE\""));
        let mut nbd = world.nbd();
        assert!(nbd.read(0, 65536).unwrap() == pattern(65536, round - 1), "round {round}");
        nbd.write(0, &pattern(65536, round)).unwrap();
    }
    world.ublk(&["del", "0"]);
    assert!(server.wait().unwrap().success());
    assert_eq!(world.ublk(&["list", "--json"]), "[]\n");
}

#[test]
fn a_device_goes_on_with_the_next_broker() {
    survives_its_broker("survives", 0);
}

#[test]
fn a_need_get_data_device_goes_on_with_the_next_broker() {
    survives_its_broker("survives-data", NEED_GET_DATA);
}

#[test]
fn a_user_copy_device_goes_on_with_the_next_broker() {
    survives_its_broker("survives-user", USER_COPY);
}

/// A machine where no broker has run: the list of devices is empty, however it is read.
#[test]
fn the_list_of_devices_is_read_in_every_way() {
    let place = directory("ublk-attached-lister");
    let lister = compile("c++", &place, "ublk_list", &["ublk_list.cc"], &["-std=c++17"]);
    let listed = |place: &Path| {
        let mut command = uringlet(&place.join("cache"));
        let out = command.env("URINGLET_UBLK_DIR", place.join("broker")).arg("--").arg(&lister).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let names = |text: &str| text.lines().map(|line| line.split_once(':').unwrap().1.to_owned()).collect::<Vec<_>>();
    let found = listed(&place);
    assert_eq!(names(&found), [""; 8], "{found}");
    assert!(!place.join("broker/ublkd.sock").exists(), "asking starts no broker");
    let world = TestBroker::new("list");
    let mut server = world.serve(0, &[]);
    let found = listed(&world.place);
    assert_eq!(names(&found), [" ublkc0"; 8], "{found}");
    world.ublk(&["del", "0"]);
    assert!(server.wait().unwrap().success());
}

/// The first command on a machine makes what it needs.
#[test]
fn the_first_device_of_a_machine_is_added() {
    let place = directory("ublk-attached-fresh");
    let program = compile("cc", &place, "ublk_server", &["ublk_server.c"], &[]);
    let mut command = uringlet(&place.join("cache"));
    command.env("URINGLET_UBLK_DIR", place.join("broker")).env("BLOCK_IO_URING", "1").arg("--").arg(&program).arg("0");
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "live\n");
    let deleted = self::command(&place).args(["ublk", "del", "--all"]).output().unwrap();
    assert!(deleted.status.success(), "{deleted:?}");
    assert!(server.wait().unwrap().success());
}
