//! `uringlet top` on a terminal: what it shows, and that it leaves the terminal as it was.

mod common;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Ends the alternate screen.
const RESTORED: &str = "\u{1b}[?1049l";

/// `script` gives it a terminal.
struct Screen {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    fn start() -> Self {
        let line = format!("stty rows 30 cols 100; {} top --delay 0.2; stty -a", env!("CARGO_BIN_EXE_uringlet"));
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("TERM", "xterm").env_remove("LD_PRELOAD");
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script starts");
        let keys = child.stdin.take().expect("its input");
        let mut output = child.stdout.take().expect("its output");
        let shown = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                all.lock().expect("no panic").push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Self { child, keys, shown }
    }

    fn text(&self) -> String {
        self.shown.lock().expect("no panic").clone()
    }

    fn wait_for(&self, part: &str) {
        let end = Instant::now() + Duration::from_secs(120);
        while !self.text().contains(part) {
            assert!(Instant::now() < end, "{part} does not come:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it listens");
        self.keys.flush().expect("it listens");
    }

    /// The terminal is as it was: lines are edited, and Ctrl-C is a signal.
    fn ends(mut self, restored: usize) {
        self.wait_for("isig icanon ");
        let text = self.text();
        assert_eq!(text.matches(RESTORED).count(), restored, "{text}");
        self.child.wait().expect("its end");
    }
}

#[test]
fn processes_are_shown_and_the_terminal_is_restored() {
    let directory = common::directory("top");
    let program = common::compile("cc", &directory, "trace_ops", &["trace_ops.c"], &["-luring"]);
    let mut server = common::uringlet(&directory);
    let mut server = server.arg("--").arg(program).arg("serve").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let mut lines = server.stdin.take().expect("its input");
    // A process is shown from its first request on.
    lines.write_all(b"7\n").expect("it listens");
    let mut screen = Screen::start();
    screen.wait_for("processes,");
    screen.wait_for("trace_ops");
    // The others go; requests of the one that is left are counted.
    screen.press("/trace_ops\rs");
    for _ in 0..40 {
        lines.write_all(b"7\n").expect("it listens");
        std::thread::sleep(Duration::from_millis(100));
    }
    screen.wait_for("slowest");
    screen.wait_for("NOP");
    screen.press("q");
    screen.ends(1);
    drop(lines);
    assert!(server.wait().expect("its end").success());
}

#[test]
fn ctrl_c_restores_the_terminal() {
    let mut screen = Screen::start();
    screen.wait_for("processes,");
    screen.press("\u{3}");
    screen.ends(1);
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let output = common::finish(Command::new(env!("CARGO_BIN_EXE_uringlet")).arg("top"));
    assert_eq!(output.status.code(), Some(1));
    assert!(common::stderr(&output).contains("this is no terminal"), "{}", common::stderr(&output));
}
