//! The broker, its servers and filesystems on their devices, while processes are killed.

use super::{block, nbd};
use crate::programs::program_cases::ProgramCases;
use crate::{build, paths};
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A device number that nothing else uses; there are 1,048,576.
pub(super) const NUMBER: u32 = 1_047_000;
/// mkfs.xfs needs 300 MiB.
const SIZE: &str = "400M";
/// Longest step on a healthy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Kills of a server under one filesystem.
const KILLS: u32 = 3;
/// The `fsx` crate: random file operations.
const FSX: &str = "0.3.2";

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let uringlet = build::uringlet()?;
    let test_broker = TestBroker::start(&uringlet, &cases.dir().join("nbd"), &["--no-block"])?;
    let server = test_broker.serve(&["add", "-n", "0", "--type", "ram", "--size", "64M", "--json"])?;
    nbd::clients(cases, "broker, a server in memory", &format!("nbd+unix:///ublkb0?socket={}", test_broker.dir.join("nbd.sock").display()));
    cases.case("the server ends with its device", |_| test_broker.delete(0, server));
    let home = cases.dir().join("broker");
    let test_broker = TestBroker::start(&uringlet, &home, &[])?;
    cases.case("nbd: fio verifies while servers are killed", |cases| nbd_survives_server_kills(cases, &test_broker));
    cases.case("nbd: QEMU's client goes on while brokers are killed", |cases| nbd_survives_broker_kills(cases, &uringlet));
    if let Some(why) = block::missing() {
        cases.skip("filesystems", &why);
        return Ok(());
    }
    let fsx = fsx()?;
    for kind in ["ext4", "xfs"] {
        cases.case(&format!("{kind}: fsx while servers are killed, fsck"), |cases| filesystem(cases, &test_broker, kind, &fsx));
        cases.case(&format!("{kind}: deleted under a mount, nothing is lost"), |cases| deleted_under_mount(cases, &test_broker, kind));
    }
    cases.case("the broker is killed under a mount, the next one cleans up and has the device", |cases| {
        broker_killed(cases, test_broker, &uringlet)
    });
    let test_broker = TestBroker::start(&uringlet, &home, &[])?;
    cases.case("the broker is killed while a device is written back", |cases| broker_killed_during_write_back(cases, test_broker));
    if is_mounted(cases)? {
        // A failed case must not leave a mount behind.
        cases.run_outside(&["umount", "-l", "mnt"])?.ok()?;
    }
    Ok(())
}

/// A child process, killed when dropped.
#[derive(Debug)]
struct ChildGuard(Child);

impl ChildGuard {
    fn kill(&mut self) -> anyhow::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.kill();
    }
}

/// A broker and its runtime directory.
#[derive(Debug)]
pub(super) struct TestBroker {
    uringlet: PathBuf,
    dir: PathBuf,
    broker: ChildGuard,
}

impl TestBroker {
    pub(super) fn start(uringlet: &Path, dir: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let broker = Command::new(uringlet).args(["ublkd", "--dir"]).arg(dir).args(options).spawn().context("starting the broker")?;
        let test_broker = Self { uringlet: uringlet.to_owned(), dir: dir.to_owned(), broker: ChildGuard(broker) };
        // Not through `uringlet ublk`, which would start a broker.
        wait_until("the broker answers", || Ok(UnixStream::connect(test_broker.dir.join("nbd.sock")).is_ok()))?;
        Ok(test_broker)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.uringlet);
        command.arg("ublk").args(args).arg("--dir").arg(&self.dir);
        command
    }

    fn ublk(&self, args: &[&str]) -> anyhow::Result<std::process::Output> {
        self.command(args).output().context("starting uringlet ublk")
    }

    pub(super) fn state(&self, number: u32) -> anyhow::Result<String> {
        Ok(String::from_utf8(self.ublk(&["list", "--json", &number.to_string()])?.stdout)?)
    }

    /// Starts a server; returns when its device is live.
    fn serve(&self, args: &[&str]) -> anyhow::Result<ChildGuard> {
        let mut server = ChildGuard(self.command(args).stdout(Stdio::piped()).spawn().context("starting a server")?);
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().context("a server without output")?).read_line(&mut line)?;
        ensure!(line.contains("\"LIVE\""), "the device is not live: {line}");
        Ok(server)
    }

    fn add(&self, number: u32, file: &str) -> anyhow::Result<ChildGuard> {
        let number = number.to_string();
        self.serve(&["add", "-n", &number, "--type", "file", "--file", file, "--recovery", "reissue", "--json"])
    }

    /// Kills the server and starts the next one, until `is_done`.
    fn kill_repeatedly(&self, number: u32, file: &str, mut server: ChildGuard, is_done: impl Fn() -> bool) -> anyhow::Result<ChildGuard> {
        for _ in 0..KILLS {
            // Some way into the workload.
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(300) && !is_done() {
                std::thread::sleep(Duration::from_millis(5));
            }
            server.kill()?;
            wait_until("the device waits", || Ok(self.state(number)?.contains("QUIESCED")))?;
            server = self.serve(&["recover", &number.to_string(), "--type", "file", "--file", file, "--json"])?;
        }
        Ok(server)
    }

    fn delete(&self, number: u32, mut server: ChildGuard) -> anyhow::Result<()> {
        let deleted = self.ublk(&["del", &number.to_string()])?;
        ensure!(deleted.status.success(), "{}", String::from_utf8_lossy(&deleted.stderr));
        let end = server.0.wait()?;
        ensure!(end.success(), "the server of a deleted device ended with {end}");
        Ok(())
    }
}

pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let start = Instant::now();
    while !is_so()? {
        ensure!(start.elapsed() < TIMEOUT, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Runs `work` while servers are killed.
fn while_servers_are_killed(
    test_broker: &TestBroker,
    number: u32,
    file: &str,
    server: ChildGuard,
    work: impl FnOnce() -> anyhow::Result<()> + Send,
) -> anyhow::Result<ChildGuard> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        let server = test_broker.kill_repeatedly(number, file, server, || worker.is_finished());
        let done = worker.join().map_err(|_| anyhow::anyhow!("the client panicked"))?;
        done.and(server)
    })
}

fn image(cases: &ProgramCases, name: &str) -> anyhow::Result<String> {
    cases.run_outside(&["truncate", "-s", SIZE, name])?.ok()?;
    cases.dir().join(name).to_str().map(str::to_owned).context("the directory's path is not UTF-8")
}

fn nbd_survives_server_kills(cases: &ProgramCases, test_broker: &TestBroker) -> anyhow::Result<()> {
    let file = image(cases, "nbd.img")?;
    let server = test_broker.add(NUMBER, &file)?;
    let uri = format!("--uri=nbd+unix:///ublkb{NUMBER}?socket={}", test_broker.dir.join("nbd.sock").display());
    let job = ["fio", "--name=verify", "--ioengine=nbd", &uri, "--rw=randrw", "--bsrange=512-256k", "--iodepth=16", "--size=64M"];
    // Long enough for all kills on any machine: rewritten and verified repeatedly.
    let verify = ["--verify=crc32c", "--verify_fatal=1", "--end_fsync=1", "--loops=20"];
    let argv = [&job[..], &verify].concat();
    let server = while_servers_are_killed(test_broker, NUMBER, &file, server, || cases.run_outside(&argv)?.ok().map(drop))?;
    test_broker.delete(NUMBER, server)
}

/// The client connects again and repeats what was not answered.
fn nbd_survives_broker_kills(cases: &ProgramCases, uringlet: &Path) -> anyhow::Result<()> {
    let mut test_broker = TestBroker::start(uringlet, &cases.dir().join("killed"), &["--no-block"])?;
    let server = test_broker.serve(&["add", "-n", "0", "--type", "ram", "--size", "64M", "--json"])?;
    let socket = test_broker.dir.join("nbd.sock");
    let node = "driver=raw,file.driver=nbd,file.server.type=unix,file.export=ublkb0,file.reconnect-delay=60,file.server.path=";
    let mut argv = ["qemu-io", "--image-opts", &format!("{node}{}", socket.display())].map(str::to_owned).to_vec();
    for turn in 0..400 {
        let (pattern, offset) = (turn % 255 + 1, turn % 37 * 65536);
        let commands = [format!("write -P {pattern} {offset} 64k"), "sleep 10".to_owned(), format!("read -P {pattern} {offset} 64k")];
        argv.extend(commands.into_iter().flat_map(|command| ["-c".to_owned(), command]));
    }
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let output = std::thread::scope(|scope| {
        let client = scope.spawn(|| cases.run_outside(&argv)?.ok());
        for _ in 0..KILLS {
            std::thread::sleep(Duration::from_millis(700));
            ensure!(!client.is_finished(), "the client was not there for every kill");
            test_broker.broker.kill()?;
            test_broker = TestBroker::start(uringlet, &test_broker.dir, &["--no-block"])?;
        }
        client.join().map_err(|_| anyhow::anyhow!("the client panicked"))?
    })?;
    ensure!(!output.contains("failed") && !output.contains("rror"), "{output}");
    test_broker.delete(0, server)
}

/// Installs the crate's program, once.
fn fsx() -> anyhow::Result<String> {
    let root = paths::cache().join(format!("fsx-{FSX}"));
    let root_arg = root.to_str().context("the cache's path is not UTF-8")?;
    let program = root.join("bin/fsx");
    if !program.exists() {
        crate::stream::sh("cargo", &["install", "fsx", "--version", FSX, "--locked", "--quiet", "--root", root_arg])?;
    }
    Ok(program.display().to_string())
}

pub(super) const MAKE_FILESYSTEM: &str = r#"
mkfs.$3 $(test $3 = ext4 && echo -q || echo "-q -f") "$1"
mkdir -p "$2"
mount "$1" "$2"
"#;

pub(super) const FSCK: &str = r#"
case $2 in
ext4) e2fsck -fn "$1" ;;
xfs) xfs_repair -n "$1" ;;
esac
"#;

/// A live device with a filesystem, mounted on `mnt`.
fn mounted_device(cases: &ProgramCases, test_broker: &TestBroker, kind: &str, number: u32) -> anyhow::Result<(ChildGuard, String, String)> {
    let file = image(cases, &format!("{kind}.img"))?;
    let server = test_broker.add(number, &file)?;
    let node = format!("/dev/ublkb{number}");
    cases.run_outside(&["sh", "-euc", MAKE_FILESYSTEM, "sh", &node, "mnt", kind])?.ok()?;
    Ok((server, file, node))
}

fn filesystem(cases: &ProgramCases, test_broker: &TestBroker, kind: &str, fsx: &str) -> anyhow::Result<()> {
    let number = NUMBER + 1;
    let (server, file, node) = mounted_device(cases, test_broker, kind, number)?;
    let play =
        r#"for seed in 1 2 3 4; do "$1" -q -N 5000 -S $seed -P . mnt/file & done; for seed in 1 2 3 4; do wait -n; done; sync -f mnt"#;
    let play = play.replace("mnt/file", "mnt/file$seed");
    let played = while_servers_are_killed(test_broker, number, &file, server, || {
        cases.run_outside(&["bash", "-euc", &play, "bash", fsx])?.ok().map(drop)
    });
    // Unmounted even after a failure.
    let unmounted = cases.run_outside(&["umount", "mnt"])?.ok();
    let server = played?;
    unmounted?;
    cases.run_outside(&["sh", "-euc", FSCK, "sh", &node, kind])?.ok()?;
    test_broker.delete(number, server)
}

/// Data cached in the kernel reaches the server before its device is deleted.
fn deleted_under_mount(cases: &ProgramCases, test_broker: &TestBroker, kind: &str) -> anyhow::Result<()> {
    let number = NUMBER + 2;
    let (server, file, node) = mounted_device(cases, test_broker, kind, number)?;
    let write = "dd if=/dev/urandom of=data bs=1M count=16 status=none; cp data mnt/data; mkdir mnt/dir; echo words >mnt/dir/words";
    let written = cases.run_outside(&["sh", "-euc", write])?.ok();
    let deleted = test_broker.delete(number, server);
    let unmounted = cases.run_outside(&["umount", "mnt"])?.ok();
    written.and(unmounted)?;
    deleted?;
    ensure!(!Path::new(&node).exists(), "{node} is still there");
    let look = r#"mount -o loop "$1" mnt; trap 'umount mnt' EXIT; cmp data mnt/data; test "$(cat mnt/dir/words)" = words"#;
    cases.run_outside(&["sh", "-euc", look, "sh", &file])?.ok().map(drop)
}

fn broker_killed(cases: &ProgramCases, mut test_broker: TestBroker, uringlet: &Path) -> anyhow::Result<()> {
    let number = NUMBER + 3;
    let (server, _, node) = mounted_device(cases, &test_broker, "ext4", number)?;
    let durable = "echo durable >mnt/durable; sync -f mnt; echo lost >mnt/lost";
    cases.run_outside(&["sh", "-euc", durable])?.ok()?;
    test_broker.broker.kill()?;
    wait_until("the node is gone", || Ok(!Path::new(&node).exists()))?;
    ensure!(is_mounted(cases)?, "it is unmounted already");
    // Users of the mount get errors; others see the directory beneath.
    let test_broker = TestBroker::start(uringlet, &test_broker.dir, &[])?;
    ensure!(!is_mounted(cases)?, "the next broker has left it mounted");
    wait_until("its server has added it again", || Ok(test_broker.state(number)?.contains("\"LIVE\"")))?;
    let look = r#"mount "$1" mnt; trap 'umount mnt' EXIT; test "$(cat mnt/durable)" = durable"#;
    cases.run_outside(&["sh", "-euc", look, "sh", &node])?.ok()?;
    cases.run_outside(&["sh", "-euc", FSCK, "sh", &node, "ext4"])?.ok()?;
    test_broker.delete(number, server)
}

/// The deletion waits for a stopped server; when the broker dies, nothing waits any more.
fn broker_killed_during_write_back(cases: &ProgramCases, mut test_broker: TestBroker) -> anyhow::Result<()> {
    let number = NUMBER + 4;
    let (mut server, _, node) = mounted_device(cases, &test_broker, "ext4", number)?;
    cases.run_outside(&["dd", "if=/dev/zero", "of=mnt/file", "bs=1M", "count=8", "status=none"])?.ok()?;
    let id = server.0.id().to_string();
    crate::stream::sh("kill", &["-STOP", &id])?;
    let mut deletion = ChildGuard(test_broker.command(&["del", &number.to_string()]).stderr(Stdio::null()).spawn()?);
    let words = format!("ublk-write-back\0{node}\0");
    wait_until("it is written back", || Ok(command_lines()?.iter().any(|line| line.contains(&words))))?;
    let broker = test_broker.broker.kill();
    crate::stream::sh("kill", &["-CONT", &id])?;
    let end = deletion.0.wait()?.code();
    // It waits for the next broker.
    server.kill()?;
    let unmounted = cases.run_outside(&["umount", "mnt"])?.ok();
    broker?;
    ensure!(end == Some(1), "the deletion ended with {end:?}");
    unmounted?;
    wait_until("nobody waits any more", || Ok(!command_lines()?.iter().any(|line| line.contains(&words))))
}

fn command_lines() -> anyhow::Result<Vec<String>> {
    let processes = std::fs::read_dir("/proc")?.flatten();
    Ok(processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok()).collect())
}

fn is_mounted(cases: &ProgramCases) -> anyhow::Result<bool> {
    let place = cases.dir().join("mnt").canonicalize()?.display().to_string();
    Ok(std::fs::read_to_string("/proc/self/mountinfo")?.lines().any(|line| line.split(' ').nth(4) == Some(&place)))
}
