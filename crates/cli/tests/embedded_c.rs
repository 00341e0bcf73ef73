//! `liburinglet.a` and `uringlet.h`: C programs that attach themselves.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{compile, directory, finish, object, stdout, success};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi");
const ENGINE: &str = "1 engine: the engine answers io_uring calls\n";
const KERNEL: &str = "0 kernel: the kernel's io_uring works\n";

/// The archive with the object of the release.
fn archive() -> &'static Path {
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    ARCHIVE.get_or_init(|| {
        let folder = directory("archive");
        let embedded = folder.join("embedded.so");
        success(Command::new("strip").arg("--strip-unneeded").arg("-o").arg(&embedded).arg(object()));
        let capi = Path::new(HEADER);
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--release", "--package", "uringlet-capi", "--manifest-path"]).arg(capi.join("Cargo.toml"));
        let target = object().ancestors().nth(2).expect("cargo's target directory");
        success(build.arg("--target-dir").arg(target).env("URINGLET_OBJECT", &embedded));
        let archive = folder.join("liburinglet.a");
        success(Command::new(capi.join("link.sh")).arg(target.join("release/liburinglet_capi.a")).arg(&archive));
        archive
    })
}

/// What pkg-config answers about the archive, by a file in `place`.
fn pkg_config(place: &Path, question: &str) -> Vec<String> {
    let folder = archive().parent().expect("a folder");
    let text = fs::read_to_string(Path::new(HEADER).join("uringlet.pc.in")).expect("uringlet.pc.in");
    let text = text.replace("includedir=${prefix}/include", &format!("includedir={HEADER}"));
    let text = text.replace("@LIBDIR@", folder.to_str().expect("UTF-8")).replace("@VERSION@", "1.2.3").replace("@PREFIX@", "/nowhere");
    fs::write(place.join("uringlet.pc"), text).expect("uringlet.pc");
    let answer = success(Command::new("pkg-config").args([question, "uringlet"]).env("PKG_CONFIG_PATH", place));
    answer.split_whitespace().map(str::to_owned).collect()
}

struct Programs {
    filter: PathBuf,
    folder: PathBuf,
    options: Vec<String>,
}

impl Programs {
    fn new(test: &str) -> Self {
        let folder = directory(test);
        let options = [pkg_config(&folder, "--cflags"), pkg_config(&folder, "--libs")].concat();
        Self { filter: compile("cc", &folder, "filter", &["backend_filter.c"], &[]), folder, options }
    }

    fn compile(&self, compiler: &str, name: &str, more: &[&str]) -> PathBuf {
        let options: Vec<&str> = self.options.iter().map(String::as_str).chain(more.iter().copied()).collect();
        compile(compiler, &self.folder, name, &["embedded.c"], &options)
    }

    fn filtered(&self, action: &str, program: &Path) -> Command {
        let mut command = Command::new(&self.filter);
        command.arg(action).arg(program).env("URINGLET_CACHE", "off").env_remove("LD_PRELOAD");
        command
    }

    /// What a program prints where the ring works, if it does on this machine.
    fn expected(&self, program: &Path) -> &'static str {
        let plain = finish(Command::new(program).env("URINGLET", "kernel"));
        if stdout(&plain).starts_with("0 kernel") { KERNEL } else { ENGINE }
    }
}

#[test]
fn the_archive_defines_three_functions_and_needs_environ_alone() {
    let symbols = success(Command::new("nm").arg("--extern-only").arg(archive()));
    let mut lines: Vec<&str> = symbols.lines().filter(|line| line.contains(' ')).map(str::trim_start).collect();
    lines.iter_mut().for_each(|line| *line = line.trim_start_matches(|c: char| c.is_ascii_hexdigit()).trim_start());
    lines.sort_unstable();
    assert_eq!(lines, ["T uringlet_init", "T uringlet_strerror", "T uringlet_version", "U environ"]);
}

#[test]
fn a_blocked_program_of_every_linkage_attaches_itself() {
    let programs = Programs::new("embedded-linkages");
    let kinds: [(&str, &str, &[&str]); 6] = [
        ("cc", "dynamic", &[]),
        ("cc", "fixed", &["-no-pie"]),
        ("cc", "static", &["-static"]),
        ("cc", "static-pie", &["-static-pie"]),
        ("musl-gcc", "musl", &["-static"]),
        ("cc", "constructor", &["-DIN_CONSTRUCTOR"]),
    ];
    for (compiler, name, options) in kinds {
        let program = programs.compile(compiler, name, options);
        for action in ["eperm", "enosys", "kill", "enter"] {
            assert_eq!(success(&mut programs.filtered(action, &program)), ENGINE, "{name} {action}");
        }
        assert_eq!(success(&mut programs.filtered("none", &program)), programs.expected(&program), "{name}");
    }
}

#[test]
fn an_obstacle_is_an_error_and_the_program_goes_on() {
    let programs = Programs::new("embedded-errors");
    let program = programs.compile("cc", "dynamic", &[]);
    let told = |command: &mut Command| success(command);
    let threads = told(programs.filtered("eperm", &program).arg("threads"));
    assert_eq!(threads, "-16 no ring: other threads run already: call init first in main\n");
    let wrong = told(programs.filtered("eperm", &program).env("URINGLET", "neither"));
    assert_eq!(wrong, "-22 no ring: URINGLET is none of kernel, engine, when-blocked\n");
    let missing = told(programs.filtered("eperm", &program).env("URINGLET_LIB", "/nowhere/liburinglet.so"));
    assert!(missing.starts_with("-79 no ring: URINGLET_LIB must be"), "{missing}");
    let left = told(programs.filtered("eperm", &program).env("URINGLET", "kernel"));
    assert_eq!(left, "0 no ring: the kernel's io_uring works\n");
}

#[test]
fn a_named_object_takes_the_place_of_the_embedded_one() {
    let programs = Programs::new("embedded-named");
    for (name, options) in [("dynamic", &[][..]), ("static", &["-static"])] {
        let program = programs.compile("cc", name, options);
        assert_eq!(success(programs.filtered("eperm", &program).env("URINGLET_LIB", object())), ENGINE, "{name}");
    }
}

#[test]
fn a_child_whose_descriptors_are_closed_is_attached() {
    let programs = Programs::new("embedded-spawn");
    let options: Vec<&str> = programs.options.iter().map(String::as_str).collect();
    let program = compile("cc", &programs.folder, "spawn", &["embedded_spawn.c"], &options);
    let child = compile("cc", &programs.folder, "child", &["backend.c"], &[]);
    let told = success(programs.filtered("eperm", &program).arg(child));
    assert_eq!(told, "engine plain unset\n");
}

/// The object is preloaded, and then refuses to be attached: it is not tried for ever.
#[test]
fn a_program_that_cannot_be_attached_is_executed_again_once() {
    let programs = Programs::new("embedded-once");
    let program = programs.compile("cc", "dynamic", &[]);
    let other = compile("cc", &programs.folder, "other.so", &["libspace.c"], &["-shared", "-fPIC"]);
    let told = success(programs.filtered("eperm", &program).env("URINGLET_LIB", other));
    assert!(told.starts_with("-95 no ring: the program was executed again"), "{told}");
}

#[test]
fn the_version_is_that_of_the_packages() {
    let programs = Programs::new("embedded-version");
    let program = programs.compile("cc", "dynamic", &[]);
    assert_eq!(success(Command::new(program).arg("version")).trim_end(), env!("CARGO_PKG_VERSION"));
}
