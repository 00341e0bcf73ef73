//! `uringlet run` as a command: its refusals, and that everything else is left to the program.

mod common;

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::executable::{copy_executable, write_executable};
use common::{directory, finish, finish_child, stderr, stdout, success, uringlet};

/// The message of `uringlet run` about a program that it refuses.
fn refusal(command: &mut Command, status: i32) -> String {
    let output = finish(command);
    assert_eq!(output.status.code(), Some(status), "{command:?}: {}{}", stdout(&output), stderr(&output));
    let message = stderr(&output);
    assert!(message.starts_with("uringlet run: ") && message.lines().count() == 1, "{message}");
    message
}

fn run(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = uringlet(Path::new("off"));
    command.arg(program);
    command
}

#[test]
fn a_missing_program_is_127() {
    assert!(refusal(&mut run("no-such-program"), 127).contains("not found in PATH"));
    assert!(refusal(&mut run("/nowhere/program"), 127).contains("no such file"));
    assert!(refusal(&mut run(""), 127).contains("empty"));
    let directory = directory("interpreter");
    let script = directory.join("script");
    write_executable(&script, "#!/nowhere/interpreter\n", 0o755);
    assert!(refusal(&mut run(&script), 127).contains("/nowhere/interpreter"));
}

#[test]
fn a_program_that_cannot_run_is_126() {
    let directory = directory("unfit");
    assert!(refusal(&mut run(&directory), 126).contains("is a directory"));
    let file = directory.join("file");
    write_executable(&file, "no program", 0o644);
    assert!(refusal(&mut run(&file), 126).contains("chmod +x"));
    assert!(refusal(run("file").env("PATH", &directory), 126).contains("chmod +x"));
    fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("chmod");
    assert!(refusal(&mut run(&file), 126).contains("#!/bin/sh"));
}

#[test]
fn a_program_for_another_processor_is_126() {
    let directory = directory("foreign");
    let foreign = directory.join("foreign");
    let mut content = fs::read("/proc/self/exe").expect("this program");
    content[18] = 183;
    write_executable(&foreign, content, 0o755);
    assert!(refusal(&mut run(&foreign), 126).contains("another architecture"));
}

#[test]
fn a_missing_object_is_126_and_the_message_names_the_searched_paths() {
    let directory = directory("object");
    assert!(refusal(run("true").env("URINGLET_LIB", directory.join("none.so")), 126).contains("URINGLET_LIB"));
    let copy = directory.join("uringlet");
    copy_executable(Path::new(env!("CARGO_BIN_EXE_uringlet")), &copy, 0o755);
    assert!(refusal(Command::new(&copy).args(["run", "true"]), 126).contains("../lib/uringlet"));
    symlink(common::object(), directory.join("liburinglet.so")).expect("a link");
    success(Command::new(&copy).args(["run", "true"]));
    let spaced = directory.join("a b.so");
    fs::copy(common::object(), &spaced).expect("a copy");
    assert!(refusal(run("true").env("URINGLET_LIB", spaced), 126).contains("a space"));
}

#[test]
fn exit_status_and_signals_are_the_programs() {
    assert_eq!(finish(run("sh").args(["-c", "exit 42"])).status.code(), Some(42));
    assert_eq!(finish(run("sh").args(["-c", "kill -9 $$"])).status.signal(), Some(9));
    assert_eq!(finish(run("sh").args(["-c", "kill -TERM $$"])).status.signal(), Some(15));
}

#[test]
fn the_program_keeps_the_pid() {
    let child = run("sh").args(["-c", "echo $$"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id();
    assert_eq!(stdout(&finish_child(child, "sh")).trim(), pid.to_string());
}

#[test]
fn standard_input_and_output_pass_through() {
    let mut child = run("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut input = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn({
        let content = content.clone();
        move || input.write_all(&content)
    });
    let output = finish_child(child, "cat");
    writer.join().expect("the writer").expect("all is written");
    assert!(output.stdout == content);
}

#[test]
fn signal_dispositions_and_closed_descriptors_pass_through() {
    let uringlet = env!("CARGO_BIN_EXE_uringlet");
    let shell =
        |script: &str| success(Command::new("sh").args(["-c", script]).env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", "off"));
    let lines = "^(SigBlk|SigIgn)";
    let plain = format!("trap '' PIPE HUP; exec grep -E '{lines}' /proc/self/status");
    let attached = format!("trap '' PIPE HUP; exec {uringlet} run grep -E '{lines}' /proc/self/status");
    assert_eq!(shell(&plain), shell(&attached));
    assert_eq!(
        shell(&format!("grep -E '{lines}' /proc/self/status")),
        shell(&format!("{uringlet} run grep -E '{lines}' /proc/self/status"))
    );
    assert_eq!(shell(&format!("{uringlet} run ls /proc/self/fd 0<&- 2>&-")), shell("ls /proc/self/fd 0<&- 2>&-"));
}

#[test]
fn the_environment_keeps_other_preloaded_objects() {
    let object = common::object().display().to_string();
    let shown = |preloaded: &str| success(run("printenv").arg("LD_PRELOAD").env("LD_PRELOAD", preloaded));
    assert_eq!(shown(""), format!("{object}\n"));
    assert_eq!(shown("libm.so.6"), format!("{object}:libm.so.6\n"));
    assert_eq!(shown(&object), format!("{object}\n"));
}

#[test]
fn the_mode_is_passed_in_the_environment() {
    let told = |options: &[&str]| {
        let mut command = uringlet(Path::new("off"));
        stdout(&finish(command.args(options).args(["printenv", "URINGLET_MODE"]).env("URINGLET_MODE", "of an outer run")))
    };
    assert_eq!(told(&[]), "");
    assert_eq!(told(&["--mode=adaptive"]), "");
    assert_eq!(told(&["--mode=uringlet"]), "uringlet\n");
    assert_eq!(told(&["--mode", "workers"]), "workers\n");
    let refused = finish(uringlet(Path::new("off")).args(["--mode=fast", "true"]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("[possible values: adaptive, uringlet, workers]"), "{}", stderr(&refused));
}

#[test]
fn the_iosqe_async_option_is_passed_in_the_environment() {
    let told = |options: &[&str]| {
        let mut command = uringlet(Path::new("off"));
        let command = command.args(options).args(["printenv", "URINGLET_IOSQE_ASYNC"]).env("URINGLET_IOSQE_ASYNC", "of an outer run");
        stdout(&finish(command))
    };
    assert_eq!(told(&[]), "");
    assert_eq!(told(&["--iosqe-async=weighed"]), "");
    assert_eq!(told(&["--iosqe-async=worker"]), "worker\n");
    assert_eq!(told(&["--iosqe-async=block"]), "block\n");
}

#[test]
fn options_after_the_program_belong_to_it() {
    assert_eq!(success(run("echo").args(["-n", "--explain", "--", "x"])), "--explain -- x");
    assert_eq!(success(uringlet(Path::new("off")).args(["--", "echo", "y"])), "y\n");
}

#[test]
fn documents_are_generated() {
    let directory = directory("documents");
    success(Command::new(env!("CARGO_BIN_EXE_uringlet")).arg("man").arg(&directory));
    let page = fs::read_to_string(directory.join("uringlet-run.1")).expect("the page of run");
    assert!(page.contains("127"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let script = success(Command::new(env!("CARGO_BIN_EXE_uringlet")).args(["completions", shell]));
        assert!(script.contains("explain"), "{shell}: {script}");
    }
}
