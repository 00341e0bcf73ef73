//! Operations on files, names and descriptors, as a C program (`crates/cli/tests/c/fs_ops.c`) sees them through a ring: under `uringlet run` as
//! Linux 6.18 answers, and on this kernel's own ring too, where that is no older, so that the expectations themselves are checked.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(600);
/// The program's "no ring to be had".
const NO_RING: i32 = 77;

fn manifest_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
}

fn said(output: &Output) -> String {
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The compiled program, and a folder for it to work in.
fn program(test: &str) -> (PathBuf, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fs_ops-{test}"));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let program = folder.join("program");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let source = manifest_dir().join("tests/c/fs_ops.c");
    succeed(Command::new(compiler).args(["-Wall", "-O1", "-o"]).arg(&program).arg(source));
    (program, folder)
}

/// `uringlet`, with the library beside it that it puts into programs.
fn uringlet() -> Command {
    let executable = Path::new(env!("CARGO_BIN_EXE_uringlet"));
    let profile_dir = executable.parent().expect("TARGET/PROFILE/uringlet");
    let profile = if profile_dir.ends_with("debug") { "dev".as_ref() } else { profile_dir.file_name().expect("profile") };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    succeed(
        Command::new(cargo)
            .args(["build", "--quiet", "--package", "uringlet-attach", "--target-dir"])
            .arg(profile_dir.parent().expect("target folder"))
            .arg("--profile")
            .arg(profile)
            .current_dir(manifest_dir()),
    );
    Command::new(executable)
}

/// Runs to the end, which must come soon.
fn finish(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let start = Instant::now();
    while child.try_wait().expect("own child").is_none() {
        if start.elapsed() > LIMIT {
            child.kill().expect("own child");
            panic!("{command:?} hangs: {}", said(&child.wait_with_output().expect("own child")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("own child")
}

/// Whether this kernel is at least the one that the expectations are of.
fn is_kernel_as_expected() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

#[test]
fn the_engine_answers_as_linux_does() {
    let (program, folder) = program("engine");
    let output = finish(uringlet().arg("run").arg("--").arg(program).env("BLOCK_IO_URING", "1").current_dir(folder));
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_kernel_answers_as_expected() {
    if !is_kernel_as_expected() {
        eprintln!("this kernel is older than the expectations: not asked");
        return;
    }
    let (program, folder) = program("kernel");
    let output = finish(Command::new(program).current_dir(folder));
    if output.status.code() == Some(NO_RING) {
        eprintln!("this kernel has no io_uring for us: not asked");
        return;
    }
    assert!(output.status.success(), "{}", said(&output));
}
