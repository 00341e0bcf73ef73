//! Runs a command whose output is passed on line by line, and keeps the end of it for the report.

use crate::job::{self, MARK};
use crate::paths;
use crate::test_counts::{Failure, TestCounts};
use anyhow::Context;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, IsTerminal, PipeReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Lines kept: more than are shown, because blank lines are not shown.
const KEPT: usize = 60;
/// A command without output for this long hangs: a build or test prints sooner on a slow machine.
const SILENCE: Duration = Duration::from_secs(20 * 60);
/// How long output is awaited after a command's end. A process that it left may hold the pipe open.
const AFTER_END: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(200);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct FinishedCommand {
    /// `None`: it was silent for too long and was killed.
    status: Option<ExitStatus>,
    last: VecDeque<String>,
}

impl FinishedCommand {
    pub(crate) fn is_good(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// The exit status, if it ended by itself.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// As a failure of this name.
    pub(crate) fn failure(&self, item: &str) -> Failure {
        let verdict = match self.status {
            Some(status) => format!("ended with {status}"),
            None => format!("hung: silent for {} s", SILENCE.as_secs()),
        };
        Failure::new(item, verdict, &self.output())
    }

    /// The end of its output.
    pub(crate) fn output(&self) -> String {
        self.last.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Runs cargo in the checkout: one case.
pub(crate) fn cargo(args: &[&str], env: &[(&str, &str)]) -> anyhow::Result<TestCounts> {
    let mut command = Command::new("cargo");
    command.args(args).envs(env.iter().copied());
    let finished = run(command, |_| ())?;
    let item = format!("cargo {}", args.first().copied().unwrap_or_default());
    Ok(if finished.is_good() { TestCounts::PASSED } else { TestCounts::failure(finished.failure(&item)) })
}

/// Runs a command in the checkout with our output. An error unless it succeeds.
pub(crate) fn sh(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(args);
    let what = format!("`{program} {}`", args.join(" "));
    if std::io::stdout().is_terminal() {
        // On a terminal the program keeps its colours and progress.
        let status = command.current_dir(paths::root()).status().with_context(|| format!("starting {program}"))?;
        anyhow::ensure!(status.success(), "{what} ended with {status}");
        return Ok(());
    }
    let finished = run(command, |_| ())?;
    anyhow::ensure!(finished.is_good(), "{what} failed:\n{}", finished.output());
    Ok(())
}

/// Runs the command in the checkout, stdout and stderr as one stream; `each` gets every line.
pub(crate) fn run(command: Command, each: impl FnMut(&str)) -> anyhow::Result<FinishedCommand> {
    run_within(command, SILENCE, each)
}

fn run_within(mut command: Command, silence: Duration, mut each: impl FnMut(&str)) -> anyhow::Result<FinishedCommand> {
    let (reader, writer) = std::io::pipe()?;
    let mark = job::new_mark();
    command.current_dir(paths::root()).env(MARK, &mark).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("starting {}", command.get_program().display()))?;
    // Closes our write ends: the pipe ends with the command.
    drop(command);
    let lines = read_lines(reader);
    let mut last = VecDeque::new();
    let mut heard = Instant::now();
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                println!("{line}");
                each(&line);
                heard = Instant::now();
                if last.len() == KEPT {
                    last.pop_front();
                }
                last.push_back(line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(FinishedCommand { status: Some(child.wait()?), last }),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = ended(&mut child, heard)? {
                    return Ok(FinishedCommand { status: Some(status), last });
                }
                if heard.elapsed() >= silence {
                    job::kill_marked(&mark);
                    child.wait()?;
                    return Ok(FinishedCommand { status: None, last });
                }
            }
        }
    }
}

/// The status of a command that has ended though a child holds its output.
fn ended(child: &mut Child, heard: Instant) -> anyhow::Result<Option<ExitStatus>> {
    if heard.elapsed() < AFTER_END { Ok(None) } else { Ok(child.try_wait()?) }
}

fn read_lines(reader: PipeReader) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, silence: Duration) -> (FinishedCommand, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut seen = Vec::new();
        let finished = run_within(command, silence, |line| seen.push(line.to_owned())).unwrap();
        (finished, seen)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn both_outputs_are_read_in_their_order() {
        let (finished, seen) = shell("echo a; echo b >&2; echo c; exit 3", LONG);
        assert_eq!(seen, ["a", "b", "c"]);
        assert!(!finished.is_good());
        let failure = finished.failure("it");
        assert_eq!((failure.verdict.as_str(), failure.output.len()), ("ended with exit status: 3", 3));
    }

    #[test]
    fn a_silent_command_is_killed_and_reported() {
        let (finished, _) = shell("echo begun; sleep 600", Duration::from_millis(300));
        let failure = finished.failure("it");
        assert!(failure.verdict.starts_with("hung"), "{failure:?}");
        assert_eq!(failure.output, ["begun"]);
    }

    #[test]
    fn a_daemon_that_holds_the_output_delays_no_command() {
        let started = Instant::now();
        let (finished, _) = shell("sleep 100 & echo done", LONG);
        assert!(finished.is_good() && started.elapsed() < Duration::from_secs(50));
    }
}
