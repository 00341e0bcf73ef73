//! A server under test, as a process.

use crate::paths;
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Builds one of the front ends' examples, a device in memory.
pub(super) fn build(example: &str) -> anyhow::Result<PathBuf> {
    crate::stream::sh("cargo", &["build", "--release", "-p", "uringlet-ublk-front", "--example", example])?;
    Ok(paths::target().join("release/examples").join(example))
}

/// A running NBD server, killed when dropped.
#[derive(Debug)]
pub(super) struct NbdProcess {
    child: Child,
    /// One URI for each socket.
    pub(super) uris: Vec<String>,
}

impl NbdProcess {
    /// Starts it in `dir` on a unix socket and a TCP port; returns when it listens.
    pub(super) fn start(program: &Path, dir: &Path, threads: &str) -> anyhow::Result<Self> {
        let socket = dir.join(format!("nbd-{threads}.sock"));
        let child = Command::new(program).arg(&socket).args(["64", threads, "0"]).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("starting {}", program.display()))?;
        let output = child.stdout.take().context("a server without output")?;
        let uris: Vec<String> = BufReader::new(output.take(4096)).lines().take(2).collect::<Result<_, _>>()?;
        let server = Self { child, uris };
        ensure!(server.uris.len() == 2, "the server listens on {:?} only", server.uris);
        Ok(server)
    }

    /// Whether it runs.
    pub(super) fn is_alive(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for NbdProcess {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process with a block device, killed when dropped.
#[derive(Debug)]
pub(super) struct BlockProcess {
    child: std::cell::RefCell<Child>,
    pub(super) node: String,
}

impl BlockProcess {
    /// Starts it with 600 MiB (mkfs.xfs needs 300); returns when its node exists.
    pub(super) fn start(program: &Path, number: u32) -> anyhow::Result<Self> {
        let child = Command::new(program).args([&number.to_string(), "600"]).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("starting {}", program.display()))?;
        let output = child.stdout.take().context("a server without output")?;
        let mut node = String::new();
        BufReader::new(output.take(4096)).read_line(&mut node)?;
        let block_process = Self { child: child.into(), node: node.trim().to_owned() };
        ensure!(block_process.node.starts_with("/dev/ublkb"), "the server did not make its node");
        Ok(block_process)
    }

    /// Ends it by a signal; returns when its node is gone.
    pub(super) fn end(&self, signal: &str) -> anyhow::Result<()> {
        let mut child = self.child.borrow_mut();
        crate::stream::sh("kill", &[&format!("-{signal}"), &child.id().to_string()])?;
        child.wait()?;
        let start = Instant::now();
        while Path::new(&self.node).exists() {
            ensure!(start.elapsed() < Duration::from_secs(60), "{} is still there", self.node);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for BlockProcess {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        // An error means that it has ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
}
