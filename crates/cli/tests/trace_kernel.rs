//! `uringlet trace --kernel`: what goes through the kernel's rings. Skipped where they are blocked.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use uringlet_sys::kernel_ring::{AskIn, works};

fn program(directory: &Path, name: &str) -> PathBuf {
    common::compile("cc", directory, name, &[&format!("{name}.c")], &["-luring"])
}

fn is_blocked() -> bool {
    let is_blocked = !works(AskIn::Copy);
    if is_blocked {
        eprintln!("skipped: the kernel's ring is blocked here");
    }
    is_blocked
}

fn trace(directory: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
    command.env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", directory).env_remove("LD_PRELOAD");
    command.current_dir(directory).arg("trace").args(options);
    command
}

/// The events of a program, and its output.
fn events(directory: &Path, options: &[&str], program: &[&str]) -> (Output, Vec<Value>) {
    let mut command = trace(directory, &["--json", "-o", "trace.json"]);
    let output = common::finish(command.args(options).arg("--").args(program));
    let text = std::fs::read_to_string(directory.join("trace.json")).unwrap_or_else(|_| panic!("{}", common::stderr(&output)));
    (output, text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

fn requests(events: &[Value]) -> impl Iterator<Item = &Value> {
    events.iter().filter(|event| event["event"] == "request")
}

/// Without addresses and numbers of inodes.
fn steady(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_u64().is_some_and(|number| number > 1 << 32) => "address".into(),
        Value::String(text) => text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>().into(),
        Value::Array(values) => values.iter().map(steady).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), steady(value))).collect(),
        other => other.clone(),
    }
}

#[test]
fn the_engine_and_the_kernel_are_traced_alike() {
    if is_blocked() {
        return;
    }
    let directory = common::directory("trace-kernel-alike");
    let program = program(&directory, "trace_ops");
    let shown = |options: &[&str]| {
        let (output, events) = events(&directory, options, &[program.to_str().expect("UTF-8")]);
        assert_eq!(output.status.code(), Some(7), "{}", common::stderr(&output));
        let fields = ["ring", "op", "args", "sqe_flags", "user_data", "chain", "res", "errno", "cqe_flags", "buffer", "more", "is_first"];
        let line = |event: &Value| fields.map(|name| steady(&event[name]).to_string()).join(" ");
        let mut lines: Vec<String> = requests(&events).filter(|event| event["has_cqe"] == true).map(line).collect();
        lines.sort();
        assert_eq!(lines.len(), 32, "{lines:#?}");
        let unfinished = events.iter().filter(|event| event["event"] == "unfinished").map(|event| event["user_data"].clone());
        (lines, unfinished.collect::<Vec<_>>())
    };
    let (kernel, unfinished) = shown(&["--kernel"]);
    assert_eq!(kernel, shown(&[]).0);
    // The one that asked for no CQE, and the one that waits.
    assert_eq!(unfinished, [30, 99]);
}

#[test]
fn rings_of_all_kinds_are_seen() {
    if is_blocked() {
        return;
    }
    let directory = common::directory("trace-kernel-kinds");
    let program = program(&directory, "trace_kernel");
    let (output, events) = events(&directory, &["--kernel"], &[program.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", common::stderr(&output));
    let mut results: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    for event in requests(&events) {
        assert_eq!(event["road"], "kernel", "{event}");
        results.entry(event["user_data"].as_u64().expect("a number")).or_default().push(event["res"].as_i64().expect("a number"));
    }
    let kinds = common::stdout(&output);
    for (kind, first) in kinds.lines().filter_map(|line| line.split_once(' ')) {
        let first: u64 = first.parse().expect("a number");
        let (count, res) = match kind {
            "forked" => (4, 0),
            "interrupted" => (2, 0),
            "memory" => (30, 1),
            _ => (30, 0),
        };
        let seen: Vec<u64> = results.range(first..first + 100).filter(|(_, seen)| **seen == [res]).map(|(&number, _)| number).collect();
        assert_eq!(seen, (first..first + count).collect::<Vec<_>>(), "{kind}: {results:?}");
    }
    assert!(["plain", "registered", "sqpoll", "duplicated", "memory"].iter().all(|kind| kinds.contains(kind)), "{kinds}");
    // A call that submits nothing; a request is what it was when it was submitted.
    assert_eq!((results.get(&1000), results.get(&1001)), (None, Some(&vec![0])));
    let of = |user_data: u64| requests(&events).filter(|event| event["user_data"] == user_data).collect::<Vec<_>>();
    assert_eq!(of(1500).iter().map(|event| event["is_certain"] == true).collect::<Vec<_>>(), [false, true]);
    assert_eq!((of(1600).len(), &of(1601)[0]["errno"]), (0, &Value::from("EINVAL")));
    // Those of the child are in the parent's memory, too.
    let is_message = |event: &&Value| event["event"] == "cqe" && event["user_data"].as_u64() > Some(1800);
    let messages: Vec<&Value> = events.iter().filter(is_message).collect();
    assert_eq!(messages.iter().map(|event| (&event["user_data"], &event["res"])).collect::<Vec<_>>(), [(&1901.into(), &55.into())]);
    assert!(!events.iter().any(|event| event["event"] == "lost"), "{events:#?}");
}

#[test]
fn calls_are_passed_on_and_shown() {
    if is_blocked() {
        return;
    }
    let directory = common::directory("trace-kernel-calls");
    let program = program(&directory, "trace_ops");
    let (output, events) = events(&directory, &["--kernel", "--calls"], &[program.to_str().expect("UTF-8"), "many", "3"]);
    assert_eq!(common::stdout(&output), "done\n");
    let calls: Vec<&str> = events.iter().filter_map(|event| event["call"].as_str()).collect();
    assert_eq!(calls, ["io_uring_setup", "io_uring_enter", "io_uring_enter", "io_uring_enter"]);
}

#[test]
fn children_are_traced() {
    if is_blocked() {
        return;
    }
    let directory = common::directory("trace-kernel-children");
    let program = program(&directory, "trace_ops");
    let (_, events) = events(&directory, &["--kernel"], &[program.to_str().expect("UTF-8"), "children"]);
    assert_eq!(
        requests(&events).map(|event| (event["user_data"].as_u64(), event["road"].as_str())).collect::<Vec<_>>(),
        [(Some(40), Some("kernel")), (Some(41), Some("kernel"))]
    );
}

#[test]
fn a_program_outlives_its_tracer() {
    if is_blocked() {
        return;
    }
    let directory = common::directory("trace-kernel-dead");
    let mut command = trace(&directory, &["--kernel", "--buffer=64", "-o", "trace", "--"]);
    command.arg(program(&directory, "trace_ops")).args(["many", "200000"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("a tracer");
    std::thread::sleep(Duration::from_millis(1000));
    child.kill().expect("kill");
    let mut said = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut said).expect("text");
    child.wait().expect("its end");
    assert_eq!(said, "done\n");
}

#[test]
fn where_the_ring_is_blocked_there_is_no_trace() {
    let directory = common::directory("trace-kernel-blocked");
    let filter = common::compile("cc", &directory, "filter", &["backend_filter.c"], &[]);
    let mut command = Command::new(filter);
    command.args(["eperm", env!("CARGO_BIN_EXE_uringlet"), "trace", "--kernel", "--", "true"]).env("URINGLET_LIB", common::object());
    let output = common::finish(&mut command);
    assert_eq!(output.status.code(), Some(125), "{}", common::stderr(&output));
    assert!(common::stderr(&output).contains("--kernel: the kernel's io_uring is blocked here"), "{}", common::stderr(&output));
}

fn fio(directory: &Path, options: &[&str]) -> Command {
    let mut command = trace(directory, &["--kernel", "-s", "0", "--json", "-o", "trace.json"]);
    command.args(options).args(["--", "fio", "--name=x", "--ioengine=io_uring", "--filename=fio.file", "--size=4m", "--iodepth=8"]);
    command.args(["--bs=4k", "--rw=randread"]);
    command
}

fn objects(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("trace.json")).expect("a trace");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn fio_reads_what_it_says() {
    if is_blocked() {
        return;
    }
    let directory = common::directory("trace-kernel-fio");
    for (option, name) in [("--fixedbufs=1", "READ_FIXED"), ("--registerfiles=1", "READ")] {
        common::success(fio(&directory, &["-c"]).arg(option));
        let summary = &objects(&directory)[0];
        let row = |table: &str, key: &str, name: &dyn Fn(&str) -> bool| {
            let rows = summary[table].as_array().expect("rows");
            rows.iter().find(|row| row[key].as_str().is_some_and(name)).unwrap_or_else(|| panic!("{option} {summary}")).clone()
        };
        for row in [row("by_opcode", "op", &|op| op == name), row("by_file", "file", &|file| file.ends_with("/fio.file"))] {
            assert_eq!([&row["count"], &row["bytes"], &row["errors"]], [1024, 4 << 20, 0], "{option}");
        }
        assert_eq!((&summary["lost"], &summary["unfinished"]), (&0.into(), &0.into()), "{option}");
    }
}

/// Where the program makes no calls, all that is not seen is counted.
#[test]
fn requests_of_a_polled_sq_are_seen_or_counted() {
    if is_blocked() {
        return;
    }
    let directory = common::directory("trace-kernel-sqpoll");
    common::success(fio(&directory, &[]).arg("--sqthread_poll=1"));
    let events = objects(&directory);
    let lost = |field: &str| events.iter().filter(|event| event["event"] == "lost").filter_map(|event| event[field].as_u64()).sum::<u64>();
    let posted = events.iter().filter(|event| event["event"] == "cqe").count() as u64;
    let seen = requests(&events).count() as u64;
    assert!(seen > 20 && seen + posted + lost("cqes") == 1024, "{seen} {posted} {} {}", lost("cqes"), lost("sqes"));
    assert!(posted <= lost("sqes"), "{posted} {}", lost("sqes"));
}
