//! `uringlet ublk`: a server that is killed, its device, and the next server, each in its own
//! process.

#[path = "ublk_rpc/nbd.rs"]
mod nbd;

use nbd::Nbd;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

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

/// Runs a command that has to fail; returns what it says.
fn refused(dir: &Path, args: &[&str]) -> String {
    let out = uringlet(dir).arg("ublk").args(args).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

fn folder(name: &str) -> Folder {
    Folder(std::env::temp_dir().join(format!("uringlet-{name}-{}", std::process::id())))
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
fn broker(dir: &Path, options: &[&str]) -> Child {
    let child = uringlet(dir).args(["ublkd", "--dir"]).arg(dir).args(options).stderr(Stdio::null()).spawn().unwrap();
    // `uringlet ublk` would start a broker itself.
    until("the broker answers", || UnixStream::connect(dir.join("nbd.sock")).is_ok());
    child
}

/// A server of 8 MiB in memory, and its device's number.
fn ram_server(dir: &Path, options: &[&str]) -> (Killed, String) {
    let args = [&["add", "--type", "ram", "--size", "8M", "--json"], options].concat();
    let mut server = Killed(uringlet(dir).arg("ublk").args(args).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("LIVE"), "{line}");
    (server, serde_json::from_str::<Value>(&line).unwrap()["id"].to_string())
}

fn nbd(dir: &Path, number: &str) -> Nbd {
    Nbd::connect(&dir.join("nbd.sock"), &format!("ublkb{number}"))
}

#[test]
fn a_killed_broker_loses_no_device() {
    let folder = folder("killed");
    let dir = &folder.0;
    let mut first = Killed(broker(dir, &[]));
    let modes = [&["--buffers", "user-copy", "--threads", "3"][..], &["--buffers", "on-demand"], &["--buffers", "preallocated"]];
    let mut servers = modes.map(|options| ram_server(dir, options));
    for (_, number) in &servers {
        nbd(dir, number).write(4096, &[7; 8192]).unwrap();
    }
    // A client in the middle of its requests.
    let mut busy = nbd(dir, &servers[0].1);
    let before = list(dir);
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    assert!(busy.try_read(0, 4096).is_none(), "the connection has ended");
    let nodes = || {
        serde_json::from_str::<Value>(&before)
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|device| device["block"].as_str().map(PathBuf::from))
            .collect::<Vec<_>>()
    };
    until("the nodes are gone", || nodes().iter().all(|node| !node.exists()));
    let _second = Killed(broker(dir, &[]));
    until("every device is as before", || list(dir) == before);
    assert!(nodes().iter().all(|node| node.exists()));
    for (server, number) in &mut servers {
        let mut nbd = nbd(dir, number);
        assert_eq!(nbd.size, 8 << 20);
        assert_eq!(nbd.read(4096, 8192).unwrap(), [7; 8192]);
        nbd.write(0, &[9; 4096]).unwrap();
        assert!(uringlet(dir).args(["ublk", "del", number]).status().unwrap().success());
        assert!(server.0.wait().unwrap().success(), "a deletion ends the server as ever");
    }
    assert_eq!(list(dir), "[]\n");
}

/// The broker that was started on demand in this folder.
fn broker_pid(dir: &Path) -> Option<String> {
    let words = format!("ublkd\0--idle\030\0--dir\0{}\0", dir.display());
    let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
    let found = processes.find(|entry| std::fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|line| line.contains(&words)))?;
    Some(found.file_name().into_string().unwrap())
}

#[test]
fn servers_start_the_next_broker_where_the_last_one_was_started_on_demand() {
    let folder = folder("demand");
    let dir = &folder.0;
    let (_server, number) = ram_server(dir, &[]);
    nbd(dir, &number).write(0, &[5; 4096]).unwrap();
    let first = broker_pid(dir).unwrap();
    let killed = Instant::now();
    assert!(Command::new("kill").args(["-9", &first]).status().unwrap().success());
    until("the device is there again", || broker_pid(dir).is_some_and(|pid| pid != first) && list(dir).contains("LIVE"));
    assert!(killed.elapsed() < LONG / 2);
    assert_eq!(nbd(dir, &number).read(0, 4096).unwrap(), [5; 4096]);
}

#[test]
fn a_server_without_a_broker_ends_by_a_signal() {
    let folder = folder("alone");
    let dir = &folder.0;
    let mut first = Killed(broker(dir, &[]));
    let (mut server, _) = ram_server(dir, &[]);
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    assert!(Command::new("kill").args(["-INT", &server.0.id().to_string()]).status().unwrap().success());
    assert!(server.0.wait().unwrap().success());
    assert_eq!(list(dir), "[]\n");
}

/// A process that is killed with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_brokers_number_their_block_devices_apart() {
    let (one, two, three) = (folder("one"), folder("two"), folder("three"));
    let _brokers = [(&one, &[][..]), (&two, &[]), (&three, &["--no-block"])].map(|(folder, options)| Killed(broker(&folder.0, options)));
    let mut servers = [&one, &two].map(|folder| Killed(serve(&folder.0, &["add", "--type", "null", "--json"])));
    let described = |folder: &Folder| serde_json::from_str::<Value>(&list(&folder.0)).unwrap()[0].clone();
    let (first, second) = (described(&one), described(&two));
    if first["block"].is_null() {
        println!("skipped: no block devices here");
        return;
    }
    assert_ne!(first["id"], second["id"]);
    for device in [&first, &second] {
        assert_eq!(device["block"], format!("/dev/ublkb{}", device["id"]));
    }
    // The number of another broker's block device is refused, by those that would make one.
    let number = first["id"].to_string();
    let said = refused(&two.0, &["add", "-n", &number, "--type", "null"]);
    assert!(said.contains(&format!("the number {number} is not free on this machine")), "{said}");
    assert!(list(&two.0).matches("\"id\"").count() == 1, "no half-made device remains");
    let _third = Killed(serve(&three.0, &["add", "-n", &number, "--type", "null", "--json"]));
    assert!(described(&three)["block"].is_null(), "somebody else's node is not named");
    // A number is free again with its device.
    assert!(uringlet(&one.0).args(["ublk", "del", &number]).status().unwrap().success());
    assert!(servers[0].0.wait().unwrap().success());
    let _next = Killed(serve(&two.0, &["add", "-n", &number, "--type", "null", "--json"]));
    assert!(list(&two.0).contains(&format!("\"/dev/ublkb{number}\"")));
    [&one, &two, &three].iter().for_each(|folder| assert!(uringlet(&folder.0).args(["ublk", "del", "--all"]).status().unwrap().success()));
}

#[test]
fn a_file_serves_one_device_and_only_its_own() {
    let folder = folder("files");
    let dir = &folder.0;
    std::fs::create_dir(dir).unwrap();
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let _broker = Killed(broker(dir, &["--no-block"]));
    let [disk, other] = ["disk", "other"].map(|name| dir.join(name).display().to_string());
    [&disk, &other].iter().for_each(|path| std::fs::write(path, [0; 1 << 20]).unwrap());
    let said = refused(dir, &["add", "--type", "file", "--file", &disk, "--size", "2M"]);
    assert!(said.contains("has 1048576 bytes, less than --size 2097152"), "{said}");
    assert_eq!(std::fs::metadata(&disk).unwrap().len(), 1 << 20);
    let add = ["add", "--type", "file", "--file", &disk];
    let mut server = Killed(serve(dir, &[&add[..], &["--recovery", "reissue", "--json"]].concat()));
    let user = format!("in use by process {} (", server.0.id());
    for args in [&add[..], &["store", "--file", &disk], &[&add[..], &["--read-only"]].concat()] {
        let said = refused(dir, args);
        assert!(said.contains(&user), "{said}");
    }
    let said = refused(dir, &["recover", "0", "--type", "file", "--file", &other]);
    assert!(said.contains("cannot be recovered (its server runs"), "{said}");
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    until("the device waits for a server", || list(dir).contains("QUIESCED"));
    for (args, named) in [
        (&["recover", "0", "--type", "file", "--file", &other][..], format!("--type file {other}")),
        (&["recover", "0", "--type", "ram"], "--type ram".to_owned()),
        (&["recover", "0", "--type", "rpc", "--file", &disk], format!("--type rpc {disk}")),
    ] {
        let said = refused(dir, args);
        assert!(said.contains(&format!("device 0 was added with something else than {named}")), "{said}");
        assert!(list(dir).contains("QUIESCED"));
    }
    let _next = Killed(serve(dir, &["recover", "0", "--type", "file", "--file", &disk, "--json"]));
    assert!(uringlet(dir).args(["ublk", "del", "--all"]).status().unwrap().success());
}

#[test]
fn an_impossible_request_is_refused_with_a_reason() {
    let folder = folder("said");
    let dir = &folder.0;
    for args in [&["add", "--type", "null", "-n", "1048576"][..], &["list", "1048576"], &["del", "4294967296"], &["recover", "1048576"]] {
        let out = uringlet(dir).arg("ublk").args(args).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(said.contains("is not in 0..1048576"), "{args:?}: {said}");
    }
    std::fs::write(dir, "a file").unwrap();
    let said = refused(dir, &["list"]);
    assert!(said.contains(&format!("connecting to {}", dir.join("ublkd.sock").display())), "{said}");
    std::fs::remove_file(dir).unwrap();
    // A device whose server has died has nothing to connect to.
    let mut server = serve(dir, &["add", "--type", "null", "--json"]);
    assert!(list(dir).contains("nbd+unix:"));
    server.kill().unwrap();
    server.wait().unwrap();
    until("the device is dead", || list(dir).contains("DEAD"));
    let listed = list(dir);
    assert!(listed.contains("\"nbd\":null") && listed.contains("\"block\":null"), "{listed}");
}
