//! Shared by the tests of `uringlet run`: the object, C programs, and runs with a time limit.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test file uses a part of it")]

pub(crate) mod executable;
pub(crate) mod oracle;
pub(crate) mod trace;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// The release build of `liburinglet.so`: the tests check the object that is shipped.
pub(crate) fn object() -> &'static Path {
    static OBJECT: OnceLock<PathBuf> = OnceLock::new();
    OBJECT.get_or_init(|| {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
        let target = Path::new(env!("CARGO_BIN_EXE_uringlet")).ancestors().nth(2).expect("cargo's target directory");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--release", "--package", "uringlet-attach", "--manifest-path"]).arg(manifest);
        let status = build.arg("--target-dir").arg(target).status().expect("cargo starts");
        assert!(status.success(), "liburinglet.so does not build");
        target.join("release/liburinglet_attach.so")
    })
}

/// A fresh directory for one test.
pub(crate) fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a directory in cargo's target directory");
    path
}

/// Compiles tests/c/`sources` to a program, or to a library if `options` contain "-shared".
pub(crate) fn compile(compiler: &str, directory: &Path, name: &str, sources: &[&str], options: &[&str]) -> PathBuf {
    let output = directory.join(name);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let mut cc = Command::new(compiler);
    cc.arg("-O2").args(["-D_GNU_SOURCE", "-w", "-pthread", "-o"]).arg(&output).args(sources.iter().map(|s| folder.join(s))).args(options);
    let done = cc.output().unwrap_or_else(|error| panic!("{compiler} does not start: {error}"));
    assert!(done.status.success(), "{sources:?}: {}", String::from_utf8_lossy(&done.stderr));
    output
}

/// `uringlet run` with the test's own cache.
pub(crate) fn uringlet(cache: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
    command.env("URINGLET_LIB", object()).env("URINGLET_CACHE", cache).env_remove("LD_PRELOAD").arg("run");
    command
}

/// Runs to the end; a program that hangs is killed and fails the test.
pub(crate) fn finish(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    finish_child(child, &format!("{command:?}"))
}

pub(crate) fn finish_child(child: Child, what: &str) -> Output {
    let pid = child.id().to_string();
    let (done, waiting) = mpsc::channel();
    let watchdog = std::thread::spawn(move || {
        let hangs = waiting.recv_timeout(LIMIT).is_err();
        if hangs {
            let _ = Command::new("kill").args(["-9", &pid]).status();
        }
        hangs
    });
    let output = child.wait_with_output().expect("its output");
    let _ = done.send(());
    let hung = watchdog.join().expect("the watchdog");
    assert!(!hung, "{what} hangs; so far:\n{}\n{}", stdout(&output), stderr(&output));
    output
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The standard output of a program that must succeed.
pub(crate) fn success(command: &mut Command) -> String {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}: {}\n{}\n{}", output.status, stdout(&output), stderr(&output));
    stdout(&output)
}
