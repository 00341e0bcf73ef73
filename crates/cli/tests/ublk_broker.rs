//! `uringlet ublk`: a server that is killed, its device, and the next server, each in its own
//! process.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes, on any machine.
const LONG: Duration = Duration::from_secs(120);

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = uringlet(&self.0).args(["ublk", "del", "--all"]).output();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn uringlet(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
    command.env("URINGLET_UBLK_DIR", dir);
    command
}

fn list(dir: &Path) -> String {
    let out = uringlet(dir).args(["ublk", "list", "--json"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Starts a server and waits until it reports its device as live.
fn serve(dir: &Path, args: &[&str]) -> Child {
    let mut child = uringlet(dir).arg("ublk").args(args).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"state\":\"LIVE\""), "{line}");
    child
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_device_outlives_its_server() {
    let folder = Folder(std::env::temp_dir().join(format!("uringlet-cli-ublk-{}", std::process::id())));
    let dir = &folder.0;
    assert_eq!(list(dir), "[]\n", "without a broker there are no devices");
    // A number that no user of the machine has: the block device's name is global.
    let number = (5_000 + std::process::id() % 100_000).to_string();
    let common = ["--type", "ram", "--json"];
    let mut first = serve(dir, &[&["add", "-n", &number, "--size", "8M", "--recovery", "reissue"][..], &common].concat());
    let again = uringlet(dir).args(["ublk", "add", "-n", &number, "--type", "null"]).output().unwrap();
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("File exists"), "{again:?}");
    first.kill().unwrap();
    first.wait().unwrap();
    until("the device waits for a server", || list(dir).contains("QUIESCED"));
    let mut second = serve(dir, &[&["recover", &number][..], &common].concat());
    assert!(list(dir).contains("LIVE"));
    assert!(uringlet(dir).args(["ublk", "del", &number]).status().unwrap().success());
    assert!(second.wait().unwrap().success(), "deleting ends the server");
    assert_eq!(list(dir), "[]\n");
    assert!(!uringlet(dir).args(["ublk", "del", &number]).status().unwrap().success());
}

/// Starts a private broker.
fn broker(dir: &Path) -> Child {
    let child = uringlet(dir).args(["ublkd", "--dir"]).arg(dir).stderr(Stdio::null()).spawn().unwrap();
    // `uringlet ublk` would start a broker itself.
    until("the broker answers", || UnixStream::connect(dir.join("nbd.sock")).is_ok());
    child
}

#[test]
fn a_broker_that_is_killed_leaves_nothing() {
    let folder = Folder(std::env::temp_dir().join(format!("uringlet-cli-ublkd-{}", std::process::id())));
    let dir = &folder.0;
    let number = (200_000 + std::process::id() % 100_000).to_string();
    let node = PathBuf::from(format!("/dev/ublkb{number}"));
    let args = ["add", "-n", &number, "--type", "ram", "--size", "8M", "--json", "--recovery", "wait"];
    let mut first = broker(dir);
    let mut server = uringlet(dir).arg("ublk").args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("LIVE"), "{line}");
    let has_node = node.exists();
    assert_eq!(has_node, !line.contains("\"block\":null"), "{line}");
    first.kill().unwrap();
    first.wait().unwrap();
    let end = server.wait_with_output().unwrap();
    assert_eq!(end.status.code(), Some(1));
    let said = String::from_utf8_lossy(&end.stderr);
    assert!(said.contains("the broker has ended"), "{said}");
    until("the node is gone", || !node.exists());
    assert_eq!(list(dir), "[]\n");
    // The next broker is started on demand in the same folder, and the number is free.
    let mut server = serve(dir, &args);
    assert_eq!(node.exists(), has_node);
    assert!(uringlet(dir).args(["ublk", "del", &number]).status().unwrap().success());
    assert!(server.wait().unwrap().success());
    assert!(!node.exists());
}
