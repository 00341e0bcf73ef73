//! fork(2) and execve(2) of a program, until it has ended.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use crate::sys::process::kill_with_parent;
use crate::timing::{DEFAULT_TIME, Metrics};

/// The median over as many runs as the time allows, and the fastest run; µs.
pub(crate) fn measure() -> anyhow::Result<Metrics> {
    let (variables, argv) = parse()?;
    let mut times = Vec::new();
    let started = Instant::now();
    while times.is_empty() || started.elapsed() < DEFAULT_TIME {
        times.push(run(variables, &argv)?);
    }
    times.sort_by(f64::total_cmp);
    let mut metrics = Metrics::value(times[times.len() / 2]);
    metrics.add("min", times[0]);
    Ok(metrics)
}

fn parse() -> anyhow::Result<(u32, Vec<OsString>)> {
    use lexopt::prelude::*;
    let (mut variables, mut argv) = (0, Vec::new());
    let mut parser = lexopt::Parser::from_args(std::env::args_os().skip(2));
    while let Some(arg) = parser.next()? {
        match arg {
            Long("variables") => variables = parser.value()?.parse()?,
            Value(word) => {
                argv.push(word);
                argv.extend(parser.raw_args()?);
            }
            other => bail!(other.unexpected()),
        }
    }
    ensure!(!argv.is_empty(), "no program is given");
    Ok((variables, argv))
}

/// Runs the program with so many more variables in its environment.
fn run(variables: u32, argv: &[OsString]) -> anyhow::Result<f64> {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    command.envs((0..variables).map(|i| (format!("VARIABLE_{i}"), "value")));
    // With something to do in the child std calls fork(2).
    kill_with_parent(&mut command);
    let started = Instant::now();
    let status = command.status().with_context(|| format!("{} does not start", argv[0].display()))?;
    let time = started.elapsed();
    ensure!(status.success(), "{}: {status}", argv[0].display());
    Ok(time.as_secs_f64() * 1e6)
}
