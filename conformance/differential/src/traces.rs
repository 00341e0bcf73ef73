//! `uringlet trace --kernel` on random programs: it changes nothing of what they do, and it shows
//! the requests that the trace of the engine shows.

use crate::case::Case;
use crate::compare::{Comparison, QUIETS_MS, RunnerPair, ScenarioRunner};
use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeSet;

/// The command lines that are compared.
#[derive(Debug)]
pub(crate) struct TracedRunners {
    /// Without a trace.
    pub(crate) plain: ScenarioRunner,
    /// The kernel's ring and the engine, both traced.
    pub(crate) traced: RunnerPair,
}

/// What a trace says of requests, without what differs from run to run: each CQE once.
type TracedCqes = BTreeSet<String>;

/// Arguments that are not compared: bytes that the program reads, and reuses before a CQE of the
/// kernel's is seen. Those of vectors and messages are inside of others.
const UNSTEADY: [&str; 2] = ["buf", "iov_base"];

impl TracedRunners {
    /// Plays until everything agrees, or all attempts are used. Returns what differs.
    pub(crate) fn compare(&self, case: &Case) -> anyhow::Result<(Comparison, Vec<String>)> {
        let (mut lines, mut plays) = (Vec::new(), Vec::new());
        for quiet_ms in QUIETS_MS {
            let plain = self.plain.play(case, quiet_ms)?;
            let (kernel, ours) = (self.traced.kernel.play_traced(case, quiet_ms)?, self.traced.ours.play_traced(case, quiet_ms)?);
            lines = differences(&plain, &kernel, &ours)?;
            if lines.is_empty() {
                return Ok((Comparison::Same, lines));
            }
            plays.push((plain, kernel.0, ours.0));
        }
        // What the kernel and the engine answer differently is no matter of the trace.
        let is_steady = plays.iter().skip(1).all(|(plain, kernel, ours)| plain == kernel && plain == ours);
        let is_harmed =
            plays.iter().skip(1).all(|(plain, kernel, _)| plain != kernel) && plays[1..].windows(2).all(|two| two[0].0 == two[1].0);
        Ok((if is_steady || is_harmed { Comparison::Differs } else { Comparison::Unsteady }, lines))
    }
}

/// How the runs differ: transcript and trace of the kernel's ring and of the engine.
fn differences(plain: &str, kernel: &(String, String), ours: &(String, String)) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    if plain != kernel.0 {
        lines.push("the program did something else while it was traced:".to_owned());
        lines.extend(crate::compare::difference(plain, &kernel.0));
    }
    if plain != ours.0 {
        lines.push("the engine differs".to_owned());
    }
    let (kernel, ours) = (cqes(&kernel.1)?, cqes(&ours.1)?);
    lines.extend(kernel.difference(&ours).map(|line| format!("- {line}")));
    lines.extend(ours.difference(&kernel).map(|line| format!("+ {line}")));
    Ok(lines)
}

fn cqes(trace: &str) -> anyhow::Result<TracedCqes> {
    let events = trace.lines().map(|line| serde_json::from_str::<Value>(line).context("a line of a trace"));
    let mut cqes = TracedCqes::new();
    for event in events {
        let event = event?;
        if event["event"] == "lost" {
            cqes.insert(event.to_string());
        }
        // Number 0: of a request that has had its last CQE.
        if event["event"] == "request" && event["has_cqe"] == true && event["request"] != 0 {
            let mut copy = 0;
            // The same line may come several times, of a multishot request.
            while !cqes.insert(format!("{} ({copy})", line(&event))) {
                copy += 1;
            }
        }
    }
    Ok(cqes)
}

fn line(event: &Value) -> String {
    let mut args = event["args"].clone();
    if let Some(args) = args.as_object_mut() {
        args.values_mut().for_each(steady);
    }
    forget_bytes(&mut args);
    let fields = ["op", "sqe_flags", "personality", "user_data", "res", "cqe_flags", "buffer", "more", "is_first"];
    // The size of a CQE is no matter of the request.
    let without_size = |text: &str| text.replace("|IORING_CQE_F_BIG", "").replace("IORING_CQE_F_BIG|", "").replace("IORING_CQE_F_BIG", "0");
    let fields = fields.map(|name| format!("{name}={}", without_size(&event[name].to_string())));
    format!("ring {} {} args={args}", event["ring"], fields.join(" "))
}

/// Without the bytes of buffers.
fn forget_bytes(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            UNSTEADY.iter().for_each(|name| drop(fields.remove(*name)));
            fields.values_mut().for_each(forget_bytes);
        }
        Value::Array(values) => values.iter_mut().for_each(forget_bytes),
        _ => {}
    }
}

/// Without the folder that a run has for itself, and without numbers of inodes.
fn steady(argument: &mut Value) {
    let Some(path) = argument.get("path").and_then(Value::as_str) else { return };
    // When a socket gets its address is a matter of time.
    let is_socket = ["TCP", "UDP", "UNIX"].iter().any(|family| path.starts_with(family) && path.contains(":["));
    let name = if is_socket { "socket:[]" } else { path.rsplit_once('/').map_or(path, |(_, name)| name) };
    argument["path"] = name.chars().filter(|c| !c.is_ascii_digit()).collect::<String>().into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_run_are_not_compared() {
        let event = |pid: u32, folder: &str, res: i32| {
            format!(
                r#"{{"event":"request","pid":{pid},"ring":0,"op":"READ","args":{{"fd":{{"fd":3,"path":"{folder}/n1"}},"buf":{pid}}},"user_data":1,"res":{res},"has_cqe":true,"request":1}}"#
            )
        };
        let same = cqes(&event(1, "/a", 5)).unwrap();
        assert_eq!((cqes(&event(2, "/b/c", 5)).unwrap(), same.len()), (same.clone(), 1));
        assert_ne!(cqes(&event(1, "/a", 6)).unwrap(), same);
        let twice = format!("{}\n{}", event(1, "/a", 5), event(1, "/a", 5));
        assert_eq!(cqes(&twice).unwrap().len(), 2);
    }
}
