//! The server process as its parent sees it.

use anyhow::{Context, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::sys::process::{CpuClock, kill_with_parent};

pub(super) struct ServerProcess {
    child: Child,
    pub(super) port: u16,
    clock: CpuClock,
}

/// Raises RLIMIT_NOFILE of this process and its future children to at least `count`.
pub(super) fn raise_file_limit(count: u64) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let (current, maximum) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    if current >= count {
        return Ok(());
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum: Some(maximum.max(count)) });
    ensure!(
        raised.is_ok(),
        "{count} open files are needed, and {maximum} is the limit: raise it (`ulimit -Hn {count}` as root), or use fewer connections"
    );
    Ok(())
}

impl ServerProcess {
    /// Starts the server and waits until it listens.
    pub(super) fn start(argv: &[OsString]) -> anyhow::Result<Self> {
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped());
        kill_with_parent(&mut command);
        let child = command.spawn().with_context(|| format!("starting {}", argv[0].display()))?;
        let clock = CpuClock::of(&child)?;
        let mut server = Self { child, port: 0, clock };
        let mut line = String::new();
        if let Some(stdout) = server.child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        server.port = line.trim().parse().map_err(|_| anyhow::anyhow!("the server: {}", error_text(&line)))?;
        Ok(server)
    }

    /// CPU time of all its threads, those that ended too.
    pub(super) fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.clock.read().context("the server ended")
    }

    /// Its current number of threads; 0 after its end.
    pub(super) fn threads(&self) -> u32 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        threads(&status)
    }
}

fn threads(status: &str) -> u32 {
    status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok()).unwrap_or(0)
}

/// The error in an output line that holds no port.
fn error_text(line: &str) -> String {
    let document: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let error = document.as_ref().and_then(|document| document["error"].as_str());
    let text = error.unwrap_or(line.trim());
    if text.is_empty() { "it ended without output".to_owned() } else { text.to_owned() }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_is_read() {
        assert_eq!(threads("Name:\tx\nThreads:\t21\nSigQ:\t0"), 21);
        assert_eq!(threads(""), 0);
    }

    #[test]
    fn a_server_that_fails_to_start_reports_its_error() {
        let start = |script: &str| ServerProcess::start(&["sh".into(), "-c".into(), script.into()]).map(drop).unwrap_err().to_string();
        assert_eq!(start("echo '{\"error\": \"no ring\"}'"), "the server: no ring");
        assert_eq!(start("true"), "the server: it ended without output");
        assert!(ServerProcess::start(&["/nowhere/x".into()]).is_err());
    }

    #[test]
    fn the_file_limit_is_raised_up_to_its_maximum() {
        assert!(raise_file_limit(16).is_ok());
        assert!(raise_file_limit(1 << 50).unwrap_err().to_string().contains("fewer connections"));
    }
}
