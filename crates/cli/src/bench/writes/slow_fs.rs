//! The server of the slow file (`slow` on its mount): a child process during a measurement.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::mount::{UnmountFlags, unmount};

use crate::bench::json;

/// The filesystem is mounted until this is dropped.
#[derive(Debug)]
pub(super) struct SlowFs {
    server: Child,
    point: PathBuf,
}

impl SlowFs {
    pub(super) fn mount(worker: &Path, point: &Path, delay_ms: u64) -> Result<Self, String> {
        let mut command = Command::new(worker);
        command.args(["slow-fs", "--delay-ms", &delay_ms.to_string(), "--directory"]).arg(point);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut server = spawned.map_err(|error| format!("cannot start {}: {error}", worker.display()))?;
        let stdout = server.stdout.take();
        let slow = Self { server, point: point.to_path_buf() };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line).map_err(|error| format!("the slow filesystem: {error}"))?;
        }
        if line.trim() == "ready" { Ok(slow) } else { Err(json::sample(&line).err().unwrap_or_default()) }
    }
}

impl Drop for SlowFs {
    fn drop(&mut self) {
        // Killing the server fails all writes in flight, so that no process hangs on the mount.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = unmount(&self.point, UnmountFlags::DETACH);
    }
}
