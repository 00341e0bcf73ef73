//! `uringlet trace` on running programs.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn program(directory: &Path) -> PathBuf {
    common::compile("cc", directory, "trace_ops", &["trace_ops.c"], &["-luring"])
}

fn trace(directory: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
    command.env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", directory).env_remove("LD_PRELOAD");
    command.current_dir(directory).arg("trace").args(options);
    command
}

/// The events of a program, as JSON.
fn events(directory: &Path, options: &[&str], arguments: &[&str]) -> (Output, Vec<Value>) {
    let mut command = trace(directory, &["--json", "-o", "trace.json"]);
    let output = common::finish(command.args(options).arg("--").arg(program(directory)).args(arguments));
    let text = std::fs::read_to_string(directory.join("trace.json")).expect("a trace");
    (output, text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

fn requests(events: &[Value]) -> Vec<u64> {
    events.iter().filter(|event| event["event"] == "request").filter_map(|event| event["user_data"].as_u64()).collect()
}

/// A line without numbers that differ from run to run, and without its road.
fn normal(line: &str, directory: &Path) -> String {
    let line = line.replace(directory.to_str().expect("UTF-8"), "DIR");
    let line = line.rsplit_once(" [").map_or(line.clone(), |(before, road)| {
        assert!(road.ends_with(']'), "{line}");
        before.to_owned()
    });
    let mut text = String::new();
    let mut rest = line.as_str();
    while let Some(c) = rest.chars().next() {
        let is_address = rest.starts_with("0x") && rest[2..].chars().take_while(char::is_ascii_hexdigit).count() > 5;
        let replaced = [("[pid ", "[pid P"), ("pipe:[", "pipe:[N"), ("socket:[", "socket:[N"), ("127.0.0.1:", "127.0.0.1:N")]
            .into_iter()
            .find(|(from, _)| rest.starts_with(from));
        if let Some((from, to)) = replaced {
            text.push_str(to);
            rest = rest[from.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
        } else if is_address {
            text.push_str("ADDRESS");
            rest = rest[2..].trim_start_matches(|c: char| c.is_ascii_hexdigit());
        } else {
            text.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    text
}

const GOLDEN: &str = r#"[pid P] --- trace_ops ---
[pid P] io_uring_setup({sq_entries=8, cq_entries=16, flags=0}) = 3 (ring 0)
[pid P] ring 0: WRITE(4<DIR/file>, "hello\nworld", 11, 0) user_data=0x1 IOSQE_IO_LINK chain=1.1 = 11
[pid P] ring 0: READ(4<DIR/file>, "hello\nworld", 64, 0) user_data=0x2 chain=1.2 = 11
[pid P] ring 0: WRITEV(4<DIR/file>, [{iov_base="hello", iov_len=5}, {iov_base="\nworld", iov_len=6}], 2, 11) user_data=0x3 = 11
[pid P] ring 0: FSYNC(4<DIR/file>, flags=IORING_FSYNC_DATASYNC) user_data=0x4 = 0
[pid P] ring 0: OPENAT(AT_FDCWD, "no such", O_RDONLY|O_CLOEXEC) user_data=0x5 = -2 ENOENT (No such file or directory)
[pid P] ring 0: MKDIRAT(AT_FDCWD, "directory", 0750) user_data=0x6 = 0
[pid P] ring 0: RENAMEAT(AT_FDCWD, "directory", AT_FDCWD, "renamed", RENAME_NOREPLACE) user_data=0x7 = 0
[pid P] ring 0: UNLINKAT(AT_FDCWD, "renamed", AT_REMOVEDIR) user_data=0x8 = 0
[pid P] ring 0: CLOSE(4<DIR/file>) user_data=0x9 = 0
[pid P] ring 0: READ(4<DIR/file>, "world", 5, 6) user_data=0xa = 5
[pid P] ring 0: READ(#0<DIR/file>, "hello", 5, 0) user_data=0xb IOSQE_FIXED_FILE = 5
[pid P] ring 0: READ(4<DIR/file>, 0x8, 5, 0) user_data=0xc = -14 EFAULT (Bad address)
[pid P] ring 0: READV(4<DIR/file>, [{iov_base="hell", iov_len=4}, {iov_base="o\nworldh", iov_len=8}], 2, 0) user_data=0xd = 12
[pid P] ring 0: READV(4<DIR/file>, [{iov_base="ello", iov_len=4}, {iov_base="\nworldhe", iov_len=8}], 2, 1) user_data=0xe IOSQE_ASYNC = 12
[pid P] ring 0: TIMEOUT(0.001000000 s, count=0) user_data=0x14 = -62 ETIME (Timer expired)
[pid P] ring 0: READ(5<pipe:[N]>, "x", 8, -1) user_data=0x15 = 1
[pid P] ring 0: ASYNC_CANCEL(user_data=0x16) user_data=0x17 = 0
[pid P] ring 0: READ(5<pipe:[N]>, ADDRESS, 8, -1) user_data=0x16 = -125 ECANCELED (Operation canceled)
[pid P] ring 0: POLL_ADD(5<pipe:[N]>, POLLIN, flags=IORING_POLL_ADD_MULTI) user_data=0x18 = 1 IORING_CQE_F_MORE
[pid P] ring 0: ASYNC_CANCEL(user_data=0x18) user_data=0x19 = 0
[pid P] ring 0: POLL_ADD(5<pipe:[N]>, ...) user_data=0x18 = -125 ECANCELED (Operation canceled)
[pid P] ring 0: SEND(7<socket:[N]>, "message", 7, MSG_NOSIGNAL) user_data=0x1a = 7
[pid P] ring 0: RECV(8<socket:[N]>, "message", 8, 0) user_data=0x1b = 7
[pid P] ring 0: SENDMSG(10<socket:[N]>, {msg_name={AF_UNIX, "bound"}, msg_namelen=110, msg_iov=[{iov_base="ab", iov_len=2}, {iov_base="cdef", iov_len=4}], msg_iovlen=2, msg_controllen=0}, 0) user_data=0x32 = 6
[pid P] ring 0: RECVMSG(9<UNIX-DGRAM:[bound]>, {msg_name=NULL, msg_namelen=0, msg_iov=[{iov_base="ab", iov_len=2}, {iov_base="cdef", iov_len=8}], msg_iovlen=2, msg_controllen=0}, 0) user_data=0x33 = 6
[pid P] ring 0: RECVMSG(9<UNIX-DGRAM:[bound]>, {msg_name=NULL, msg_namelen=0, msg_iov=[{iov_base="gh", iov_len=2}, {iov_base="i", iov_len=8}], msg_iovlen=2, msg_controllen=0}, 0) user_data=0x34 = 3
[pid P] ring 0: CONNECT(12<socket:[N]>, {AF_INET, 127.0.0.1:N}, 16) user_data=0x35 = 0
[pid P] ring 0: SEND(12<TCP:[127.0.0.1:N->127.0.0.1:N]>, "x", 1, 0) user_data=0x36 = 1
[pid P] ring 0: RECV(13<TCP:[127.0.0.1:N->127.0.0.1:N]>, "x", 4, 0) user_data=0x37 = 1
[pid P] io_uring_setup({sq_entries=4, cq_entries=8, flags=0}) = 15 (ring 1)
[pid P] ring 1: CQE user_data=0x3d = 5 (of no request of this ring)
[pid P] ring 0: MSG_RING(15<anon_inode:[io_uring]>, IORING_MSG_DATA, data=0x3d, res=5) user_data=0x3c = 0
[pid P] ring 1: CQE user_data=0x77 = 0 (of no request of this ring)
[pid P] ring 0: NOP() user_data=0x1e IOSQE_CQE_SKIP_SUCCESS = 0 (no CQE)
[pid P] ring 0: NOP() user_data=0x1f = 0
[pid P] ring 0: opcode 200(opcode=200, fd=0, off=NULL, addr=NULL, len=0) user_data=0x20 = -22 EINVAL (Invalid argument)
[pid P] ring 0: READ(15<pipe:[N]>, ADDRESS, 1, -1) user_data=0x63 <unfinished: its process has ended>
"#;

#[test]
fn each_request_is_a_line_with_its_arguments_by_name() {
    let directory = common::directory("trace-golden");
    let mut command = trace(&directory, &[]);
    let output = common::finish(command.arg("--").arg(program(&directory)));
    assert_eq!(output.status.code(), Some(7), "{}", common::stderr(&output));
    let shown: Vec<String> = common::stderr(&output).lines().map(|line| normal(line, &directory)).collect();
    let golden: Vec<&str> = GOLDEN.lines().collect();
    assert_eq!(shown, golden, "{}", common::stderr(&output));
}

#[test]
fn how_a_request_was_executed_is_told() {
    let directory = common::directory("trace-road");
    let (_, events) = events(&directory, &[], &[]);
    let road = |user_data: u64| {
        let event = events.iter().find(|event| event["user_data"] == user_data).expect("a request");
        event["road"].as_str().expect("its road").to_owned()
    };
    assert_eq!([31, 21, 22, 20].map(road), ["fast path", "poll", "poll", "timer"]);
    let latency = events.iter().find(|event| event["user_data"] == 20).and_then(|event| event["latency_ns"].as_u64());
    assert!(latency.is_some_and(|ns| (900_000..5_000_000_000).contains(&ns)), "{latency:?}");
}

#[test]
fn only_what_is_asked_for_is_shown() {
    let directory = common::directory("trace-filters");
    let shown = |options: &[&str]| requests(&events(&directory, options, &[]).1);
    assert_eq!(shown(&["-e", "op=FSYNC,%timeout"]), [4, 20]);
    assert_eq!(shown(&["-e", "failed", "-e", "op=!READ,%poll,%ring"]), [5, 20, 32]);
    assert_eq!(shown(&["-e", "path=*/directory,renamed,directory"]), [6, 7, 8]);
    assert_eq!(shown(&["-e", "fd=7,8"]), [26, 27]);
    let refused = common::finish(trace(&directory, &["-e", "op=REED", "--", "true"]).stdin(Stdio::null()));
    assert_eq!(refused.status.code(), Some(125));
    assert!(
        common::stderr(&refused).contains("\n  -e op=REED\n        ^^^^ is no opcode; did you mean READ?\n"),
        "{}",
        common::stderr(&refused)
    );
}

#[test]
fn the_summary_counts_by_opcode_and_by_file() {
    let directory = common::directory("trace-summary");
    let (_, events) = events(&directory, &["-c"], &[]);
    let row = |table: &str, key: &str, name: &str| {
        let rows = events[0][table].as_array().expect("rows").clone();
        rows.into_iter().find(|row| row[key] == name).unwrap_or_else(|| panic!("{name}: {events:?}"))
    };
    let read = row("by_opcode", "op", "READ");
    assert_eq!([&read["count"], &read["errors"], &read["bytes"]], [6, 2, 11 + 5 + 5 + 1]);
    assert!(read["p50_ns"].as_u64() <= read["max_ns"].as_u64() && read["max_ns"].as_u64() > Some(100), "{read}");
    let file = row("by_file", "file", directory.join("file").to_str().expect("UTF-8"));
    assert_eq!([&file["count"], &file["bytes"]], [10, 11 + 11 + 11 + 5 + 5 + 12 + 12]);
    assert_eq!(events[0]["unfinished"], 1);
}

#[test]
fn children_are_traced() {
    let directory = common::directory("trace-children");
    let (_, events) = events(&directory, &["-f"], &["children"]);
    assert_eq!(requests(&events), [40, 41]);
    let pids: std::collections::BTreeSet<u64> =
        events.iter().filter(|event| event["event"] == "request").filter_map(|event| event["pid"].as_u64()).collect();
    assert_eq!(pids.len(), 2, "{events:?}");
}

#[test]
fn calls_are_shown_if_they_are_asked_for() {
    let directory = common::directory("trace-calls");
    let (_, events) = events(&directory, &["--calls"], &["many", "3"]);
    let calls: Vec<&str> = events.iter().filter_map(|event| event["call"].as_str()).collect();
    assert_eq!(calls, ["io_uring_setup", "io_uring_enter", "io_uring_enter", "io_uring_enter"]);
    assert!(events.iter().filter(|event| event["call"] == "io_uring_enter").all(|event| event["result"] == 1 && event["to_submit"] == 1));
}

#[test]
fn a_small_buffer_loses_nothing_and_drops_are_counted() {
    const MANY: u64 = 20_000;
    let directory = common::directory("trace-small");
    let many = MANY.to_string();
    let (output, whole) = events(&directory, &["--buffer=64"], &["many", &many]);
    assert_eq!((common::stdout(&output), requests(&whole).len() as u64), ("done\n".to_owned(), MANY));
    assert_eq!(requests(&whole), (0..MANY).collect::<Vec<_>>());
    let (output, part) = events(&directory, &["--buffer=64", "--drop"], &["many", &many]);
    assert_eq!(common::stdout(&output), "done\n");
    let (said, shown) = (common::stderr(&output), requests(&part).len() as u64);
    assert!(said.contains(" records were dropped") == (shown < MANY), "{shown} {said}");
}

#[test]
fn perfetto_gets_a_slice_and_an_arrow_for_each_request() {
    let directory = common::directory("trace-perfetto");
    let output = common::finish(trace(&directory, &["--perfetto", "p.json", "--"]).arg(program(&directory)).args(["many", "5"]));
    assert!(output.status.success(), "{}", common::stderr(&output));
    let text = std::fs::read_to_string(directory.join("p.json")).expect("a file");
    let objects: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    for kind in ["b", "e", "s", "f"] {
        assert_eq!(objects.iter().filter(|object| object["ph"] == kind).count(), 5, "{kind}: {text}");
    }
}

#[test]
fn an_output_that_cannot_be_written_harms_no_program() {
    let directory = common::directory("trace-full");
    let output = common::finish(trace(&directory, &["-o", "/dev/full", "--"]).arg(program(&directory)).args(["many", "5000"]));
    assert_eq!(common::stdout(&output), "done\n", "{}", common::stderr(&output));
    assert!(common::stderr(&output).contains("cannot write to /dev/full"), "{}", common::stderr(&output));
    let refused = common::finish(&mut trace(&directory, &["-o", "no/such/file", "--", "true"]));
    assert_eq!((refused.status.code(), common::stderr(&refused).contains("cannot write to no/such/file")), (Some(125), true));
}

/// A program that makes a request for each line that it reads.
struct Server {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Server {
    fn start(directory: &Path) -> Self {
        let mut command = common::uringlet(directory);
        command.current_dir(directory).arg("--").arg(program(directory)).arg("serve");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        let mut server = Self { child, said };
        assert_eq!(server.line(), "ready\n");
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("text");
        line
    }

    fn request(&mut self, number: u64) {
        writeln!(self.child.stdin.as_mut().expect("its input"), "{number}").expect("it listens");
        assert_eq!(self.line(), "done\n");
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its end").success());
    }
}

/// A tracer of a running process, and the file that it writes.
struct Tracer {
    child: Child,
    file: PathBuf,
}

impl Tracer {
    fn start(directory: &Path, name: &str, server: &Server) -> Self {
        let file = directory.join(name);
        let pid = server.child.id().to_string();
        let mut command = trace(directory, &["--json", "-p", &pid, "-o"]);
        let child = command.arg(&file).stderr(Stdio::piped()).spawn().expect("the tracer starts");
        let tracer = Self { child, file };
        // It has asked when its file is there, and the engine has not begun.
        std::thread::sleep(Duration::from_millis(700));
        tracer
    }

    fn end(mut self, signal: &str) -> Vec<u64> {
        // A look takes some milliseconds.
        std::thread::sleep(Duration::from_millis(300));
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        self.child.wait().expect("its end");
        let text = std::fs::read_to_string(&self.file).expect("a trace");
        requests(&text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<_>>())
    }
}

#[test]
fn a_running_process_is_traced_and_left_again_and_again() {
    let directory = common::directory("trace-attach");
    let mut server = Server::start(&directory);
    server.request(1);
    for (name, numbers, signal) in [("a", [2, 3], "-INT"), ("b", [5, 6], "-KILL"), ("c", [8, 9], "-TERM")] {
        let tracer = Tracer::start(&directory, name, &server);
        numbers.iter().for_each(|&number| server.request(number));
        assert_eq!(tracer.end(signal), numbers, "{name}");
        server.request(numbers[1] + 1);
    }
    // A tracer that leaves before the first request.
    assert!(Tracer::start(&directory, "d", &server).end("-INT").is_empty());
    server.request(20);
    server.end();
}

#[test]
fn a_process_has_one_tracer() {
    let directory = common::directory("trace-twice");
    let mut server = Server::start(&directory);
    let first = Tracer::start(&directory, "first", &server);
    server.request(1);
    let second = common::finish(&mut trace(&directory, &["-p", &server.child.id().to_string()]));
    assert_eq!(second.status.code(), Some(125));
    assert!(common::stderr(&second).contains("is traced already"), "{}", common::stderr(&second));
    assert_eq!(first.end("-INT"), [1]);
    server.end();
}

#[test]
fn a_program_outlives_a_tracer_whose_buffer_is_full() {
    let directory = common::directory("trace-dead");
    let mut command = trace(&directory, &["--buffer=64", "-o", "trace", "--"]);
    let mut child =
        command.arg(program(&directory)).args(["many", "300000"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a tracer");
    std::thread::sleep(Duration::from_millis(1500));
    child.kill().expect("kill");
    let mut said = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut said).expect("text");
    child.wait().expect("its end");
    assert_eq!(said, "done\n");
}

#[test]
fn requests_of_a_killed_program_are_shown() {
    let directory = common::directory("trace-killed");
    let mut command = trace(&directory, &["--json", "-o", "trace.json", "--"]);
    let mut child = command.arg(program(&directory)).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a tracer");
    let mut said = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    writeln!(child.stdin.as_mut().expect("its input"), "5").expect("it listens");
    said.read_line(&mut line).expect("text");
    assert_eq!(line, "ready\ndone\n");
    // The program is the tracer's child.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).expect("/proc");
    assert!(Command::new("kill").args(["-9", children.trim()]).status().expect("kill").success());
    assert_eq!(child.wait().expect("its end").code(), Some(128 + 9));
    let text = std::fs::read_to_string(directory.join("trace.json")).expect("a trace");
    assert_eq!(requests(&text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<_>>()), [5]);
}

#[test]
fn fio_reads_what_it_says() {
    let directory = common::directory("trace-fio");
    let mut command = trace(&directory, &["-c", "--json", "-o", "trace.json", "--", "fio"]);
    command.args(["--name=x", "--ioengine=io_uring", "--filename=fio.file", "--size=4m", "--bs=4k", "--rw=randread", "--iodepth=8"]);
    common::success(&mut command);
    let text = std::fs::read_to_string(directory.join("trace.json")).expect("a trace");
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    let rows = summary["by_opcode"].as_array().expect("rows");
    let read = rows.iter().find(|row| row["op"] == "READ").unwrap_or_else(|| panic!("{text}"));
    assert_eq!([&read["count"], &read["bytes"], &read["errors"]], [1024, 4 << 20, 0]);
}
