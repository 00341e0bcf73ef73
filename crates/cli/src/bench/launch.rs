//! Runs a program to its end, within a time limit, and stops it on Ctrl-C.

use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::stop::StopFlag;

/// Interval of checks for a stop request. The program's end is noticed immediately.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A command that can be run repeatedly.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) argv: Vec<OsString>,
    pub(super) library_path: Option<OsString>,
    /// The program is killed after this time, and counts as failed.
    pub(super) limit: Duration,
}

impl Launch {
    pub(super) fn new(argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), library_path: None, limit: Duration::from_secs(60) }
    }

    pub(super) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(Stdio::null());
        if let Some(path) = &self.library_path {
            command.env("LD_LIBRARY_PATH", path);
        }
        command
    }

    /// The program's output. Output counts even if the exit status reports a failure.
    pub(super) fn output(&self, stop: &StopFlag) -> Result<String, String> {
        let (status, stdout, stderr) = self.run(stop)?;
        if status.success() || !stdout.is_empty() { Ok(stdout) } else { Err(failure(status, &stderr)) }
    }

    /// Runs a program of which only the exit status matters.
    pub(super) fn check(&self, stop: &StopFlag) -> Result<(), String> {
        let (status, _, stderr) = self.run(stop)?;
        if status.success() { Ok(()) } else { Err(format!("{}: {}", self.argv[0].display(), failure(status, &stderr))) }
    }

    fn run(&self, stop: &StopFlag) -> Result<(ExitStatus, String, String), String> {
        let mut command = self.command();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.argv[0].display()))?;
        let pipes = collect_output(child.stdout.take(), child.stderr.take());
        let waited = wait(&mut child, &pipes, Instant::now() + self.limit, stop);
        let (stdout, stderr) = match waited {
            Ok(texts) => texts,
            Err(why) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(why);
            }
        };
        let status = child.wait().map_err(|error| format!("waiting for {}: {error}", self.argv[0].display()))?;
        Ok((status, stdout, stderr))
    }
}

type Outputs = (String, String);

/// Reads both pipes until they are closed.
fn collect_output(stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) -> Receiver<Outputs> {
    let (sender, receiver) = channel();
    let stderr_reader = std::thread::spawn(move || read_to_end(stderr));
    std::thread::spawn(move || {
        let stdout = read_to_end(stdout);
        let _ = sender.send((stdout, stderr_reader.join().unwrap_or_default()));
    });
    receiver
}

fn read_to_end(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What was read before an error is kept.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait(child: &mut Child, pipes: &Receiver<Outputs>, deadline: Instant, stop: &StopFlag) -> Result<Outputs, String> {
    loop {
        match pipes.recv_timeout(POLL_INTERVAL) {
            Ok(texts) => return Ok(texts),
            Err(RecvTimeoutError::Disconnected) => return Err("its output could not be read".to_owned()),
            Err(RecvTimeoutError::Timeout) if stop.is_requested() => return Err("stopped".to_owned()),
            Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                return Err(format!("it exceeded its time limit and was killed (process {})", child.id()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn failure(status: ExitStatus, stderr: &str) -> String {
    format!("{status}: {}", stderr.lines().next_back().unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Launch {
        Launch::new(["sh", "-c", script])
    }

    #[test]
    fn output_counts_even_after_a_failure() {
        let stop = StopFlag::default();
        assert_eq!(shell("echo 1").output(&stop), Ok("1\n".to_owned()));
        assert_eq!(shell("echo 1; exit 3").output(&stop), Ok("1\n".to_owned()));
        assert!(shell("echo why >&2; exit 3").output(&stop).unwrap_err().ends_with(": why"));
        assert_eq!(shell("echo 1").check(&stop), Ok(()));
        assert_eq!(shell("echo 1; echo why >&2; exit 3").check(&stop), Err("sh: exit status: 3: why".to_owned()));
        assert!(Launch::new(["/nowhere/x"]).output(&stop).unwrap_err().contains("/nowhere/x"));
    }

    #[test]
    fn a_program_beyond_its_time_limit_is_killed() {
        let late = shell("exec sleep 1000").within(Duration::ZERO).output(&StopFlag::default());
        assert!(late.unwrap_err().contains("exceeded its time limit"));
    }
}
