//! `uringlet bench` as a command: it measures, reports and removes its files. No test checks a
//! speed.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use common::{directory, finish, object, stderr, stdout};
use serde_json::Value;

/// `uringlet bench`, with its worker program built beside it.
fn bench() -> Command {
    static WORKER: OnceLock<()> = OnceLock::new();
    let uringlet = Path::new(env!("CARGO_BIN_EXE_uringlet"));
    WORKER.get_or_init(|| {
        let target = uringlet.ancestors().nth(2).expect("cargo's target directory");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "uringlet-bench", "--manifest-path"]);
        build.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).arg("--target-dir").arg(target);
        assert!(build.status().expect("cargo starts").success(), "the worker does not build");
    });
    let mut command = Command::new(uringlet);
    command.env("URINGLET_LIB", object()).env("URINGLET_CACHE", "off").env_remove("LD_PRELOAD").arg("bench");
    command
}

/// The series of this column, in a table whose name contains `table`.
fn series<'a>(document: &'a Value, table: &str, column: &str) -> &'a Value {
    let all = document["series"].as_array().expect("series");
    let is_it = |one: &&Value| one["table"].as_str().is_some_and(|title| title.contains(table)) && one["column"] == column;
    all.iter().find(is_it).unwrap_or_else(|| panic!("no {column} in {table}: {document:#}"))
}

#[test]
fn writes_are_measured_and_reported() {
    let directory = directory("bench-writes");
    let (json, svg) = (directory.join("w.json"), directory.join("w.svg"));
    let mut command = bench();
    command.args(["writes", "--quick", "--fs=machine", "--parts=depths,blocks", "--depths=1,4", "--seconds=0.02", "--no-fio"]);
    command
        .args(["--engines=adaptive,psync,libaio,posixaio", "--directory"])
        .arg(&directory)
        .arg("--json")
        .arg(&json)
        .arg("--svg")
        .arg(&svg);
    let output = finish(&mut command);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));

    let document: Value = serde_json::from_str(&fs::read_to_string(&json).expect("the JSON")).expect("well-formed JSON");
    for (table, column) in [("1 KiB", "psync"), ("1 KiB", "adaptive (default)"), ("4 KiB", "libaio"), ("4 KiB", "posixaio")] {
        let series = series(&document, table, column);
        assert_eq!(series["failure"], Value::Null, "{series}");
        assert!(series["measured"]["value"]["median"].as_f64().expect("a median") > 0.0, "{series}");
    }
    let picture = fs::read_to_string(&svg).expect("the SVG");
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
    assert!(picture.contains("adaptive (default)") && picture.contains("queue depth"), "{picture}");

    let text = stdout(&output);
    assert!(text.contains("times psync") && text.contains("goal: adaptive, own generator") || !text.contains("files on ext4"), "{text}");
    let left: Vec<_> = fs::read_dir(&directory).expect("the directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn an_interrupted_run_reports_its_figures_and_removes_its_files() {
    let directory = directory("bench-stopped");
    let mut command = bench();
    // More rounds than can finish.
    command.args(["writes", "--fs=machine", "--parts=depths", "--depths=1", "--seconds=0.02", "--rounds=1000000", "--no-fio"]);
    command.args(["--engines=psync,libaio", "--directory"]).arg(&directory).arg("--json").arg(directory.join("w.json"));
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("it starts");
    let has_begun = || fs::read_dir(&directory).expect("the directory").flatten().any(|entry| entry.path().join("file").exists());
    while !has_begun() && child.try_wait().expect("the child").is_none() {
        std::thread::yield_now();
    }
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill starts");
    assert!(status.success());
    let output = common::finish_child(child, "the stopped benchmark");
    assert_eq!(output.status.code(), Some(130), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("interrupted: some numbers"), "{}", stdout(&output));
    let left: Vec<_> = fs::read_dir(&directory).expect("the directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["w.json"]);
}

#[test]
fn impossible_options_are_reported() {
    let output = finish(bench().args(["writes", "--directory", "/nowhere/at/all"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--directory"), "{}", stderr(&output));
    let output = finish(bench().args(["writes", "--engines=fast"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("posixaio"), "{}", stderr(&output));
}

#[test]
fn echo_is_measured_and_reported() {
    let directory = directory("bench-echo");
    let (json, svg) = (directory.join("e.json"), directory.join("e.svg"));
    let mut command = bench();
    command.args(["echo", "--connections=1,30", "--sizes=12,5000", "--seconds=0.02", "--rounds=1", "--json"]);
    let output = finish(command.arg(&json).arg("--svg").arg(&svg));
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));

    let document: Value = serde_json::from_str(&fs::read_to_string(&json).expect("the JSON")).expect("well-formed JSON");
    for scene in ["1 connection, 12 bytes", "30 connections, 5000 bytes"] {
        for column in ["epoll", "engine", "engine, hybrid step off"] {
            let series = series(&document, scene, column);
            for number in ["value", "p50_us", "p99_us", "cpu_us", "threads"] {
                assert!(series["measured"][number]["median"].as_f64().expect(number) > 0.0, "{series}");
            }
        }
    }
    assert!(series(&document, "30 connections, 12 bytes, pauses", "engine")["measured"]["value"]["median"].is_number());
    // An old kernel's ring has no DEFER_TASKRUN.
    let has_failed = |one: &&Value| one["column"] != "kernel's ring" && one["failure"] != Value::Null;
    let failed: Vec<_> = document["series"].as_array().expect("series").iter().filter(has_failed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(fs::read_to_string(&svg).expect("the SVG").contains("hybrid off, 4 workers"));
    let text = stdout(&output);
    assert!(text.contains("goal: default mode, requests, relative to epoll") && text.contains("p99 µs"), "{text}");
}

/// Processes whose command line contains this word.
fn processes_with(word: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let line = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    let lines = all.filter_map(line).map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains("echo-server") && line.contains(word)).collect()
}

#[test]
fn an_interrupted_echo_leaves_no_server() {
    // A size that no other run uses.
    let size = 30_000 + std::process::id() % 30_000;
    let word = format!("--size={size} ");
    let mut command = bench();
    command.args(["echo", "--connections=3", "--modes=default", "--seconds=100", &format!("--sizes={size}")]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("it starts");
    while processes_with(&word).is_empty() && child.try_wait().expect("the child").is_none() {
        std::thread::yield_now();
    }
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill starts");
    assert!(status.success());
    let output = common::finish_child(child, "the stopped benchmark");
    assert_eq!(output.status.code(), Some(130), "{}{}", stdout(&output), stderr(&output));
    let begun = std::time::Instant::now();
    while !processes_with(&word).is_empty() {
        assert!(begun.elapsed().as_secs() < 60, "{:?}", processes_with(&word));
        std::thread::yield_now();
    }
}

#[test]
fn ublk_is_measured_and_reported() {
    let directory = directory("bench-ublk");
    let (json, svg) = (directory.join("u.json"), directory.join("u.svg"));
    let mut command = bench();
    command
        .args(["ublk", "--quick", "--seconds=0.02", "--sizes=4,64", "--json"])
        .arg(&json)
        .arg("--svg")
        .arg(&svg)
        .env("TMPDIR", &directory);
    let output = finish(&mut command);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));

    let document: Value = serde_json::from_str(&fs::read_to_string(&json).expect("the JSON")).expect("well-formed JSON");
    for (table, column) in [
        ("4 KiB writes", "NEED_GET_DATA"),
        ("a buffer of a pool", "one more copy"),
        ("random", "in one process"),
        ("random", "NBD, one process"),
        ("random", "NBD, broker"),
    ] {
        let series = series(&document, table, column);
        assert_eq!(series["failure"], Value::Null, "{series}");
        assert!(series["measured"]["mean_us"]["median"].as_f64().expect("a median") > 0.0, "{series}");
    }
    assert!(fs::read_to_string(&svg).expect("the SVG").contains("one more copy"));
    assert!(stdout(&output).contains("goal: in one process, depth 32"), "{}", stdout(&output));
    let left: Vec<_> = fs::read_dir(&directory).expect("the directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn metadata_is_measured_and_reported() {
    let directory = directory("bench-meta");
    let json = directory.join("m.json");
    let mut command = bench();
    command.args(["meta", "--rounds=1", "--seconds=0.02", "--directory"]).arg(&directory).arg("--json").arg(&json);
    let output = finish(&mut command);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let document: Value = serde_json::from_str(&fs::read_to_string(&json).expect("the JSON")).expect("well-formed JSON");
    for (table, column) in [("batches of 1", "calls"), ("batches of 64", "uringlet run")] {
        let series = series(&document, table, column);
        assert_eq!(series["failure"], Value::Null, "{series}");
        assert!(series["measured"]["value"]["median"].as_f64().expect("a median") > 0.0, "{series}");
    }
    fs::remove_file(&json).expect("the JSON");
    assert_eq!(fs::read_dir(&directory).expect("the directory").count(), 0, "files were left");
}

#[test]
fn each_way_of_a_row_is_measured_and_drawn() {
    let directory = directory("bench-compare");
    for (name, table, columns) in [
        ("reads", "4 KiB random reads", ["calls", "uringlet run"]),
        ("timers", "time-outs", ["kernel's ring", "uringlet run"]),
        ("cancel", "ASYNC_CANCEL", ["kernel's ring", "uringlet run"]),
        ("rings", "1,000 rings", ["kernel's ring", "uringlet run"]),
        ("wakeups", "two threads", ["calls", "uringlet run"]),
    ] {
        let (json, svg) = (directory.join("c.json"), directory.join("c.svg"));
        let mut command = bench();
        command.args([name, "--rounds=1", "--seconds=0.02", "--directory"]).arg(&directory);
        let output = finish(command.arg("--json").arg(&json).arg("--svg").arg(&svg));
        assert!(output.status.success(), "{name}: {}{}", stdout(&output), stderr(&output));
        let document: Value = serde_json::from_str(&fs::read_to_string(&json).expect("the JSON")).expect("well-formed JSON");
        for column in columns {
            let series = series(&document, table, column);
            assert_eq!(series["failure"], Value::Null, "{name}: {series}");
            assert!(series["measured"]["value"]["median"].as_f64().expect("a median") > 0.0, "{name}: {series}");
        }
        assert!(stdout(&output).contains("goal: "), "{name}: {}", stdout(&output));
        assert!(fs::read_to_string(&svg).expect("the SVG").contains("uringlet run"), "{name}");
        fs::remove_file(&json).and_then(|()| fs::remove_file(&svg)).expect("the results");
    }
    assert_eq!(fs::read_dir(&directory).expect("the directory").count(), 0, "files were left");
}

#[test]
fn goals_are_collected_from_benchmarks() {
    let directory = directory("bench-goals");
    let mut command = bench();
    command.args(["goals", "cancel", "timers", "--rounds=1", "--all", "--directory"]).arg(&directory).arg("--keep").arg(&directory);
    let output = finish(&mut command);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    assert!(text.contains(" goals are missed") && text.contains("cancel: ASYNC_CANCEL") && text.contains("timers: time-outs"), "{text}");
    let mut kept: Vec<_> = fs::read_dir(&directory).expect("the directory").flatten().map(|entry| entry.file_name()).collect();
    kept.sort();
    assert_eq!(kept, ["cancel.json", "timers.json"]);
    let output = finish(bench().args(["goals", "smell"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("wakeups"), "{}", stderr(&output));
}
