//! The server's process, from outside: it lives as long as this, and what it costs can be read.

use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(super) struct ServerProcess {
    child: Child,
    pub(super) port: u16,
    clock: libc::clockid_t,
}

/// Lets this process, and whatever it starts, have so many files open.
pub(super) fn allow_files(count: u64) -> anyhow::Result<()> {
    // SAFETY: all zeroes is a `struct rlimit`, which the kernel then writes.
    let mut limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit
    };
    if limit.rlim_cur >= count {
        return Ok(());
    }
    let most = limit.rlim_max;
    (limit.rlim_cur, limit.rlim_max) = (count, most.max(count));
    // SAFETY: a limit of our own.
    let answer = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    ensure!(
        answer == 0,
        "{count} open files are needed, and {most} is the limit: raise it (`ulimit -Hn {count}` as root), or use fewer connections"
    );
    Ok(())
}

impl ServerProcess {
    /// When it listens.
    pub(super) fn start(argv: &[OsString]) -> anyhow::Result<Self> {
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped());
        // Killed with its parent, however that ends. Stays so when it executes something else.
        let parent = std::process::id();
        // SAFETY: prctl() and getppid() are async-signal-safe.
        unsafe {
            command.pre_exec(move || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                // Else it ended before that.
                0 if libc::getppid() == parent as i32 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let child = command.spawn().with_context(|| format!("starting {}", argv[0].display()))?;
        let mut server = Self { child, port: 0, clock: 0 };
        let mut line = String::new();
        if let Some(stdout) = server.child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        server.port = line.trim().parse().map_err(|_| anyhow::anyhow!("the server: {}", complaint(&line)))?;
        // SAFETY: an id of our own to write to.
        let answer = unsafe { libc::clock_getcpuclockid(server.child.id() as i32, &raw mut server.clock) };
        ensure!(answer == 0, "the server's CPU clock: {}", io::Error::from_raw_os_error(answer));
        Ok(server)
    }

    /// CPU time of all its threads, those that ended too.
    pub(super) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a time of our own to write to.
        let answer = unsafe { libc::clock_gettime(self.clock, &raw mut time) };
        ensure!(answer == 0, "the server ended");
        Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// How many threads it has now; none, if it ended.
    pub(super) fn threads(&self) -> u32 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        threads(&status)
    }
}

fn threads(status: &str) -> u32 {
    status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok()).unwrap_or(0)
}

/// What a line that is no port says.
fn complaint(line: &str) -> &str {
    let inner = line.trim().strip_prefix("{\"error\": \"").and_then(|rest| rest.strip_suffix("\"}"));
    inner.or(Some(line.trim())).filter(|text| !text.is_empty()).unwrap_or("it ended without a word")
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
    fn a_process_is_looked_at() {
        assert_eq!(threads("Name:\tx\nThreads:\t21\nSigQ:\t0"), 21);
        assert_eq!(threads(""), 0);
    }

    #[test]
    fn a_server_that_does_not_start_says_why() {
        let start = |script: &str| ServerProcess::start(&["sh".into(), "-c".into(), script.into()]).map(drop).unwrap_err().to_string();
        assert_eq!(start("echo '{\"error\": \"no ring\"}'"), "the server: no ring");
        assert_eq!(start("true"), "the server: it ended without a word");
        assert!(ServerProcess::start(&["/nowhere/x".into()]).is_err());
    }

    #[test]
    fn files_are_allowed_up_to_the_limit() {
        assert!(allow_files(16).is_ok());
        assert!(allow_files(1 << 50).unwrap_err().to_string().contains("fewer connections"));
    }
}
