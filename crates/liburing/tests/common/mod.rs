//! What the tests share: the library itself, built and linked as shipped, and C programs to use it.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// This crate's folder.
pub(crate) fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder for files of the tests. cargo keeps one for each package.
pub(crate) fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("liburing")
}

/// Runs a command to its end; panics with its output unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    output
}

/// The standard output of a command.
pub(crate) fn stdout(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).expect("text")
}

pub(crate) fn cc() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// The folder that holds our `liburing.so.2`. Each test program makes it once: cargo cannot,
/// because the C linker makes the library.
pub(crate) fn our_library() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let profile_dir = std::env::current_exe().expect("own path").ancestors().nth(2).expect("TARGET/PROFILE/deps/TEST").to_owned();
        let profile = profile_dir.file_name().and_then(OsStr::to_str).expect("profile");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
        let profile_name = if profile == "debug" { "dev" } else { profile };
        run(Command::new(cargo)
            .args(["build", "--quiet", "--package", env!("CARGO_PKG_NAME"), "--profile", profile_name, "--target-dir"])
            .arg(profile_dir.parent().expect("target folder"))
            .current_dir(crate_dir()));
        let made = scratch().join("lib");
        run(Command::new(crate_dir().join("link.sh")).arg(profile_dir.join("liburinglet_liburing.a")).arg(&made));
        made
    })
}

/// The distribution's `liburing.so.2`.
pub(crate) fn their_library() -> PathBuf {
    let path = PathBuf::from(stdout(cc().arg("-print-file-name=liburing.so.2")).trim());
    assert!(path.is_absolute(), "the distribution's liburing is missing: install the package liburing-dev");
    path
}

/// Exported functions and their versions.
pub(crate) fn exports(library: &Path) -> BTreeMap<String, String> {
    let listing = stdout(Command::new("nm").args(["-D", "--with-symbol-versions"]).arg(library));
    let functions = listing.lines().filter_map(|line| line.split_once(" T ")).map(|(_, symbol)| symbol);
    functions
        .map(|symbol| {
            let (name, version) = symbol.split_once("@@").unwrap_or((symbol, "none"));
            (name.to_owned(), version.to_owned())
        })
        .collect()
}

/// Compiles a C program from a file.
pub(crate) fn compile(source: &Path, to: &Path, args: &[&str]) {
    compile_with(cc(), source, to, args);
}

pub(crate) fn compile_with(mut compiler: Command, source: &Path, to: &Path, args: &[&str]) {
    std::fs::create_dir_all(to.parent().expect("folder")).expect("scratch");
    run(compiler.args(["-D_GNU_SOURCE", "-Wall", "-O1", "-o"]).arg(to).arg(source).args(args));
}
