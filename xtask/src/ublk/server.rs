//! A server to be tested, as a process.

use crate::place;
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Builds the device in memory behind NBD.
pub(super) fn build() -> anyhow::Result<PathBuf> {
    place::sh("cargo", &["build", "--release", "-p", "uringlet-ublk-front", "--example", "nbd_ram"])?;
    Ok(place::target().join("release/examples/nbd_ram"))
}

/// A running server; it is killed when this goes.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// Where it is reached: one URI a socket.
    pub(super) uris: Vec<String>,
}

impl Server {
    /// Starts it in `dir`, on a unix socket and a TCP port, and waits until it listens.
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

    /// Whether it is still there.
    pub(super) fn is_alive(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
