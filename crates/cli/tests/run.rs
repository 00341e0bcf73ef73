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

/// Whether the kernel can run it is the kernel's to say.
#[test]
fn a_program_that_no_kernel_here_runs_is_126() {
    let directory = directory("foreign");
    let foreign = directory.join("foreign");
    let mut content = fs::read("/proc/self/exe").expect("this program");
    // Itanium
    content[18] = 50;
    write_executable(&foreign, content, 0o755);
    let output = finish(&mut run(&foreign));
    assert_eq!(output.status.code(), Some(126), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("not attached: ") && said.contains("another architecture") && said.contains("cannot be executed"), "{said}");
}

/// The program runs as without uringlet, with one line that says why.
#[test]
fn without_the_library_programs_run_plainly_and_the_line_names_the_searched_paths() {
    let directory = directory("object");
    assert!(runs_plainly(run("printenv").env("URINGLET_LIB", directory.join("none.so"))).contains("URINGLET_LIB"));
    let copy = directory.join("uringlet");
    copy_executable(Path::new(env!("CARGO_BIN_EXE_uringlet")), &copy, 0o755);
    assert!(runs_plainly(Command::new(&copy).args(["run", "printenv"])).contains("../lib/uringlet"));
    let required = ["run", "--require", "printenv"];
    assert!(refusal(Command::new(&copy).args(required), 125).contains("nothing is run"));
    symlink(common::object(), directory.join("liburinglet.so")).expect("a link");
    success(Command::new(&copy).args(["run", "true"]));
    let spaced = directory.join("a b.so");
    fs::copy(common::object(), &spaced).expect("a copy");
    assert!(runs_plainly(run("printenv").env("URINGLET_LIB", spaced)).contains("a space"));
}

#[test]
fn a_library_of_another_version_is_put_into_no_program() {
    let directory = directory("version");
    let own = env!("CARGO_PKG_VERSION");
    let mut content = fs::read(common::object()).expect("the library");
    let version = [own.as_bytes(), &[0]].concat();
    let header = [b"uringlet".as_slice(), &uringlet_sys::stats::LAYOUT_VERSION.to_le_bytes()].concat();
    let at = content.windows(header.len()).position(|bytes| bytes == header).expect("the counters' header");
    let at = at + content[at..].windows(version.len()).position(|bytes| bytes == version).expect("the version");
    content[at..at + 5].copy_from_slice(b"9.9.9");
    let other = directory.join("liburinglet.so");
    fs::write(&other, content).expect("another library");
    let line = runs_plainly(run("printenv").env("URINGLET_LIB", &other));
    assert!(line.contains("version 9.9.9") && line.contains(own), "{line}");
    let quiet = finish(uringlet(Path::new("off")).args(["--quiet", "printenv"]).env("URINGLET_LIB", &other));
    assert_eq!((quiet.status.code(), stderr(&quiet)), (Some(0), String::new()));
    assert!(refusal(uringlet(Path::new("off")).args(["--require", "true"]).env("URINGLET_LIB", &other), 125).contains("9.9.9"));
    let libc = fs::read_to_string("/proc/self/maps").expect("the maps");
    let libc = libc.lines().find_map(|line| line.split_whitespace().last().filter(|name| name.contains("libc.so"))).expect("libc");
    assert!(runs_plainly(run("printenv").env("URINGLET_LIB", libc)).contains("no liburinglet.so"));
}

/// The line that says why printenv was not attached.
fn runs_plainly(command: &mut Command) -> String {
    let output = finish(command.env("UNTOUCHED", "yes"));
    let said = stderr(&output);
    assert!(output.status.success() && said.starts_with("uringlet run: not attached: ") && said.lines().count() == 1, "{said}");
    let environment = stdout(&output);
    assert!(environment.contains("UNTOUCHED=yes\n") && !environment.contains("LD_PRELOAD="), "{environment}");
    said
}

/// A 32-bit program, which the kernel runs and the library cannot be put into.
#[test]
fn programs_of_another_architecture_run_plainly() {
    let directory = directory("foreign-runs");
    let foreign = common::compile("cc", &directory, "foreign", &["foreign.S"], &["-m32", "-nostdlib", "-static", "-no-pie"]);
    let plain = Command::new(&foreign).env("LD_PRELOAD", "").stdin(Stdio::null()).output();
    let Ok(plain) = plain else { return eprintln!("skipped: this kernel runs no 32-bit programs") };
    assert_eq!(plain.status.code(), Some(7));
    let output = finish(&mut run(&foreign));
    let said = stderr(&output);
    assert!(said.contains("another architecture") && said.lines().count() == 1, "{said}");
    assert_eq!((output.status.code(), stdout(&output).contains("LD_PRELOAD")), (Some(7), false), "{}", stdout(&output));
    // A child, by a shell's execve and by libc's own.
    for starter in [&["sh", "-c", "\"$0\"; exit $?"][..], &["env"], &["perl", "-e", "exit(system(@ARGV) >> 8)"]] {
        let mut command = uringlet(Path::new("off"));
        command.args(starter).arg(&foreign).env("LD_PRELOAD", "/nowhere/other.so");
        let output = finish(&mut command);
        let environment = stdout(&output);
        assert_eq!(output.status.code(), Some(7), "{starter:?}: {}", stderr(&output));
        assert!(environment.contains("LD_PRELOAD=/nowhere/other.so\n"), "{starter:?}: {environment}");
    }
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
