//! `uringlet stat` on running programs.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use common::executable::copy_executable;
use serde_json::Value;

/// Writes of the program for each byte that it reads.
const WRITES: u64 = 200;

/// A program that writes through its ring for each byte that it reads.
struct Writer {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Writer {
    fn start(test: &str, options: &[&str]) -> Self {
        Self::start_with(test, options, &[])
    }

    fn start_with(test: &str, options: &[&str], arguments: &[&Path]) -> Self {
        let directory = common::directory(test);
        let program = common::compile("cc", &directory, "stat_writes", &["stat_writes.c"], &[]);
        let mut command = common::uringlet(&directory);
        command.args(options).arg("--").arg(program).arg(directory.join("file")).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        let mut writer = Self { child, said };
        assert_eq!(writer.line(), "ready\n");
        writer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("text");
        line
    }

    fn poke(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"write\n").expect("it listens");
        assert_eq!(self.line(), "done\n");
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its end").success());
    }
}

fn stat(args: &[&str]) -> Output {
    common::finish(Command::new(env!("CARGO_BIN_EXE_uringlet")).arg("stat").args(args))
}

fn json(args: &[&str]) -> Value {
    let output = stat(args);
    assert!(output.status.success(), "{}", common::stderr(&output));
    serde_json::from_str(&common::stdout(&output)).expect("JSON")
}

/// The sum of the counters whose names have one of these prefixes.
fn sum(counters: &Value, beginnings: &[&str]) -> f64 {
    let counters = counters.as_object().expect("an object").iter();
    counters.filter(|(name, _)| beginnings.iter().any(|b| name.starts_with(b))).filter_map(|(_, value)| value.as_f64()).sum()
}

/// The message when there is nothing to show.
fn refusal(output: &Output) -> String {
    assert_eq!((output.status.code(), common::stdout(output)), (Some(1), String::new()));
    common::stderr(output)
}

#[test]
fn writes_are_counted() {
    let mut writer = Writer::start("stat-writes", &[]);
    let before = json(&["--json", &writer.pid()]);
    assert_eq!(sum(&before["total"], &["writes_"]), 0.0, "{before}");
    assert_eq!(before["program"], "stat_writes");
    assert!(before["object"].as_str().is_some_and(|path| path.contains("liburinglet")), "{before}");
    for round in 1..=3 {
        writer.poke();
        let seen = json(&["--json", "--events", &writer.pid()]);
        assert!(sum(&seen["total"], &["writes_"]) >= (round * WRITES) as f64, "{seen}");
        assert_eq!(seen["total"]["submitted"], round * WRITES, "{seen}");
        assert_eq!(seen["rings"].as_array().map(Vec::len), Some(1), "{seen}");
        assert_eq!(seen["events_ever"].as_u64(), seen["events"].as_array().map(|events| events.len() as u64));
    }
    writer.end();
}

#[test]
fn requests_of_uringlet_workers_are_counted() {
    let mut writer = Writer::start("stat-uringlet", &["--mode=uringlet"]);
    writer.poke();
    let seen = json(&["--json", &writer.pid()]);
    assert!(sum(&seen["total"], &["uringlet_runs_"]) > 0.0, "{seen}");
    writer.end();
}

/// A backtrace or a profiler maps the file again; that mapping has no counters.
#[test]
fn a_second_mapping_of_the_object_is_not_taken_for_it() {
    let mut writer = Writer::start_with("stat-mapped", &[], &[common::object()]);
    writer.poke();
    let seen = json(&["--json", &writer.pid()]);
    assert_eq!(seen["total"]["submitted"], WRITES, "{seen}");
    writer.end();
}

#[test]
fn the_table_names_the_process_and_the_counters() {
    let mut writer = Writer::start("stat-table", &[]);
    writer.poke();
    let output = stat(&["--events", &writer.pid()]);
    let text = common::stdout(&output);
    assert!(text.starts_with(&format!("process {} (stat_writes), engine ", writer.pid())), "{text}");
    for name in ["writes_inline", "throttled_time", "uringlet_runs_empty", "events, the last"] {
        assert!(text.contains(name), "{name} is missing in\n{text}");
    }
    writer.end();
}

#[test]
fn watch_prints_rates_until_the_process_ends() {
    let mut writer = Writer::start("stat-watch", &[]);
    let mut watch = Command::new(env!("CARGO_BIN_EXE_uringlet"));
    let mut watch = watch
        .args(["stat", "--watch=0.05", "--json"])
        .arg(writer.pid())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    assert_eq!(sum(&next()["per_second"], &["writes_"]), 0.0);
    writer.poke();
    // 90 seconds.
    let seen = std::iter::repeat_with(next).take(1800).find(|line| sum(&line["per_second"], &["writes_"]) > 0.0).expect("the writes");
    assert!(seen["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{seen}");
    writer.end();
    let output = common::finish_child(watch, "stat --watch");
    assert!(output.status.success());
    assert!(common::stderr(&output).contains("has ended"));
}

#[test]
fn a_process_without_an_engine_is_reported() {
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep");
    let output = stat(&[&sleeper.id().to_string()]);
    sleeper.kill().expect("it runs");
    sleeper.wait().expect("its end");
    assert!(refusal(&output).contains("has no uringlet engine in it"), "{}", common::stderr(&output));
    assert!(refusal(&stat(&[&sleeper.id().to_string()])).contains("no process"));
}

/// As root it runs as another user; as an ordinary user it asks for process 1.
#[test]
fn a_process_of_another_user_is_reported() {
    let is_root = rustix::process::geteuid().is_root();
    let home = std::env::temp_dir().join(format!("uringlet-stat-{}", std::process::id()));
    std::fs::create_dir_all(&home).expect("a folder for everybody");
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o755)).expect("its rights");
    let program = home.join("uringlet");
    copy_executable(Path::new(env!("CARGO_BIN_EXE_uringlet")), &program, 0o755);
    let output = look_as_stranger(&program, is_root);
    std::fs::remove_dir_all(&home).expect("it goes");
    let said = refusal(&output);
    assert!(said.contains("no permission") && said.contains("ptrace_scope"), "{said}");
}

fn look_as_stranger(program: &Path, is_root: bool) -> Output {
    const NOBODY: u32 = 65534;
    let mut command = Command::new(program);
    command.current_dir("/").arg("stat");
    if !is_root {
        return common::finish(command.arg("1"));
    }
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep");
    let output = common::finish(command.arg(sleeper.id().to_string()).uid(NOBODY).gid(NOBODY));
    sleeper.kill().expect("it runs");
    sleeper.wait().expect("its end");
    output
}

#[test]
fn requests_are_counted_for_a_while() {
    let mut writer = Writer::start("stat-requests", &[]);
    let pid = writer.pid();
    let counting = std::thread::spawn(move || json(&["--json", "--requests=2", &pid]));
    std::thread::sleep(std::time::Duration::from_millis(800));
    writer.poke();
    let seen = counting.join().expect("the counts");
    let rows = |table: &str| seen["requests"][table].as_array().expect("rows").clone();
    let (opcodes, roads) = (rows("by_opcode"), rows("by_road"));
    assert_eq!((opcodes.len(), &opcodes[0]["op"], &opcodes[0]["count"]), (1, &"WRITE".into(), &WRITES.into()), "{seen}");
    assert!(opcodes[0]["p50_ns"].as_u64() > Some(0) && opcodes[0]["bytes"].as_u64() > Some(0), "{seen}");
    assert_eq!(roads.iter().filter_map(|row| row["count"].as_u64()).sum::<u64>(), WRITES, "{seen}");
    // It goes on without the trace.
    writer.poke();
    assert_eq!(json(&["--json", &writer.pid()])["total"]["submitted"], 2 * WRITES);
    writer.end();
}

#[test]
fn a_tree_is_its_processes_together() {
    let mut writers = [Writer::start("stat-tree-a", &[]), Writer::start("stat-tree-b", &[])];
    for writer in &mut writers {
        writer.poke();
    }
    // They are children of this process, which has no engine itself.
    let own = std::process::id().to_string();
    let seen = json(&["--json", "--tree", &own]);
    let of = |writer: &Writer| {
        let pid: u64 = writer.pid().parse().expect("a number");
        seen["processes"].as_array().expect("processes").iter().find(|one| one["pid"] == pid).cloned()
    };
    for writer in &writers {
        assert_eq!(of(writer).expect("the writer")["total"]["submitted"], WRITES, "{seen}");
    }
    let all = seen["processes"].as_array().expect("processes").iter().filter_map(|one| one["total"]["submitted"].as_u64());
    assert_eq!(seen["total"]["submitted"], all.sum::<u64>(), "{seen}");
    let text = common::stdout(&stat(&["--tree", &own]));
    assert!(text.contains(" processes\n") && writers.iter().all(|writer| text.contains(&format!("process {} ", writer.pid()))), "{text}");
    writers.into_iter().for_each(Writer::end);
}

/// `cargo xtask programs openmetrics` reads it with Prometheus' own parser.
#[test]
fn openmetrics_has_a_family_for_each_counter() {
    let mut writer = Writer::start("stat-openmetrics", &[]);
    writer.poke();
    let text = common::stdout(&stat(&["--openmetrics", "--requests=0.1", &writer.pid()]));
    let sample = format!("uringlet_submitted_total{{pid=\"{}\",program=\"stat_writes\",ring=\"0\"}} {WRITES}\n", writer.pid());
    assert!(text.contains(&sample) && text.ends_with("\n# EOF\n"), "{text}");
    assert_eq!(text.matches("# TYPE ").count(), text.matches("# HELP ").count());
    assert!(text.contains("\nuringlet_sampled_seconds 0.1\n"), "{text}");
    writer.end();
}
