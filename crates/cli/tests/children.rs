//! Children of an attached program are attached, however they are started and linked, and every
//! error of execve(2) is the kernel's. The oracle is the same program without the engine.

mod common;

use common::executable::{copy_executable, write_executable};
use common::{compile, directory, finish, object, stderr, stdout, success, uringlet};
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a program is compiled: a name, the compiler, its options.
type Build = (&'static str, &'static str, &'static [&'static str]);

const LINUX_HEADERS: [&str; 4] = ["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"];
const GLIBC: Build = ("glibc", "cc", &[]);
const MUSL: Build = ("musl", "musl-gcc", &LINUX_HEADERS);
const STATIC_GLIBC: Build = ("static-glibc", "cc", &["-static"]);
const STATIC_PIE: Build = ("static-pie", "cc", &["-static-pie"]);
const STATIC_MUSL: Build =
    ("static-musl", "musl-gcc", &["-static", LINUX_HEADERS[0], LINUX_HEADERS[1], LINUX_HEADERS[2], LINUX_HEADERS[3]]);

fn build(directory: &Path, (name, compiler, options): Build) -> PathBuf {
    compile(compiler, directory, name, &["children.c"], options)
}

fn script(directory: &Path, name: &str, line: &str, mode: u32) -> PathBuf {
    let path = directory.join(name);
    write_executable(&path, line, mode);
    path
}

/// The program's answers without the engine, and under `uringlet run`.
fn answers(parent: &Path, arguments: &[&Path], cache: &Path) -> [String; 2] {
    let plain = success(Command::new(parent).args(arguments).env_remove("LD_PRELOAD"));
    [plain, success(uringlet(cache).arg("--").arg(parent).args(arguments))]
}

/// Runs every road from `parent` to all kinds of children.
fn all_roads(test: &str, parent: Build) {
    let directory = directory(test);
    let parent = compile(parent.1, &directory, &format!("parent-{}", parent.0), &["children.c"], parent.2);
    let mut targets: Vec<PathBuf> = [GLIBC, MUSL, STATIC_GLIBC, STATIC_PIE, STATIC_MUSL].map(|kind| build(&directory, kind)).into();
    for interpreter in ["glibc", "static-musl"] {
        let line = format!("#! {} child\n", directory.join(interpreter).display());
        targets.push(script(&directory, &format!("script-{interpreter}"), &line, 0o755));
    }
    let nested = format!("#!{} child\n", directory.join("script-static-musl").display());
    targets.push(script(&directory, "nested", &nested, 0o755));
    for target in &targets {
        let [plain, attached] = answers(&parent, &[Path::new("roads"), target], &directory.join("cache"));
        assert!(plain.lines().count() == 20 && plain.lines().all(|line| line.contains(": kernel ")), "{plain}");
        assert_eq!(attached, plain.replace(": kernel ", ": engine "), "{} starts {}", parent.display(), target.display());
    }
}

#[test]
fn a_dynamic_program_starts_all_kinds() {
    all_roads("children-of-glibc", GLIBC);
}

#[test]
fn a_dynamic_musl_program_starts_all_kinds() {
    all_roads("children-of-musl", MUSL);
}

#[test]
fn a_static_program_starts_all_kinds() {
    all_roads("children-of-static", STATIC_GLIBC);
}

#[test]
fn a_static_musl_program_starts_all_kinds() {
    all_roads("children-of-static-musl", STATIC_MUSL);
}

/// A vfork child runs in its parent's memory and never comes back: nothing may be lost by that,
/// and nothing left, here or in files.
#[test]
fn many_vfork_children_lose_nothing() {
    let directory = directory("children-many");
    let cache = directory.join("cache");
    for kind in [GLIBC, STATIC_GLIBC] {
        let program = build(&directory, kind);
        let many = |count: &str| finish(uringlet(&cache).arg(&program).arg("many").arg(&program).arg(count));
        many("1");
        let files = || fs::read_dir(&cache).expect("the cache").count();
        let before = files();
        let output = many("200");
        let nothing = "0 lost, more: 0 descriptors, 0 mappings, 0 threads, 0 kB\n";
        assert_eq!(stderr(&output), nothing, "{kind:?}: {}", stdout(&output));
        assert_eq!(files(), before, "{kind:?}: files in the cache");
    }
}

/// A user who may not write, or read, what root has.
const ORDINARY: u32 = 65534;

/// The checkout may be readable by root only: everything is copied to where an ordinary user can
/// read it.
#[test]
fn an_ordinary_user_starts_all_kinds() {
    let built = directory("children-ordinary");
    let public = std::env::temp_dir().join(format!("uringlet-children-{}", std::process::id()));
    fs::create_dir(&public).expect("a directory");
    if chown(&public, Some(ORDINARY), Some(ORDINARY)).is_err() {
        fs::remove_dir(&public).expect("it is empty");
        return eprintln!("skipped: the other tests have run as an ordinary user");
    }
    let copy = |from: &Path, name: &str| {
        let to = public.join(name);
        copy_executable(from, &to, 0o755);
        to
    };
    let library = copy(object(), "liburinglet.so");
    let launcher = copy(Path::new(env!("CARGO_BIN_EXE_uringlet")), "uringlet");
    let [dynamic, fixed] = [GLIBC, STATIC_PIE].map(|kind| copy(&build(&built, kind), kind.0));
    let script = script(&public, "script", &format!("#!{} child\n", fixed.display()), 0o755);
    let answer = |command: &mut Command| success(command.uid(ORDINARY).gid(ORDINARY).env_remove("LD_PRELOAD"));
    for (parent, target) in [(&dynamic, &dynamic), (&dynamic, &fixed), (&fixed, &dynamic), (&fixed, &script)] {
        let plain = answer(Command::new(parent).arg("roads").arg(target));
        let mut attached = Command::new(&launcher);
        attached.env("URINGLET_LIB", &library).env("URINGLET_CACHE", public.join("cache"));
        let attached = answer(attached.args(["run", "--require", "--"]).arg(parent).arg("roads").arg(target));
        assert!(plain.lines().count() == 20, "{plain}");
        assert_eq!(attached, plain.replace(": kernel ", ": engine "), "{} starts {}", parent.display(), target.display());
    }
    fs::remove_dir_all(&public).expect("the copies are removed");
}

#[test]
fn errors_are_the_kernels() {
    let directory = directory("children-errors");
    let program = build(&directory, GLIBC);
    let fixed = build(&directory, STATIC_GLIBC);
    let content = fs::read(&fixed).expect("the program");
    let file = |name: &str, content: &[u8], mode: u32| {
        let path = directory.join(name);
        write_executable(&path, content, mode);
        path
    };
    let mut foreign = content.clone();
    foreign[18] = 183;
    let line = |interpreter: &Path| format!("#!{} child\n", interpreter.display());
    let refused = file("refused", &content, 0o644);
    // Copies: the file of a running program cannot be opened for writing.
    let mut files = vec![
        file("static", &content, 0o755),
        file("dynamic", &fs::read(&program).expect("the program"), 0o755),
        directory.join("missing"),
        fixed.join("below"),
        directory.clone(),
        refused.clone(),
        file("truncated", &content[..40], 0o755),
        file("half", &content[..content.len() / 2], 0o755),
        file("foreign", &foreign, 0o755),
        file("text", b"hello\n", 0o755),
        file("empty", b"", 0o755),
        file("no-interpreter", b"#!/nowhere/sh\n", 0o755),
        file("refused-interpreter", line(&refused).as_bytes(), 0o755),
        file("refused-script", line(&fixed).as_bytes(), 0o644),
        file("script", line(&fixed).as_bytes(), 0o755),
        file("odd-script", b"#!\n", 0o755),
    ];
    // Six scripts in a row are one too many.
    for depth in 1..=6 {
        let before = if depth == 1 { fixed.clone() } else { directory.join(format!("depth{}", depth - 1)) };
        files.push(file(&format!("depth{depth}"), line(&before).as_bytes(), 0o755));
    }
    let arguments: Vec<&Path> = [Path::new("errors")].into_iter().chain(files.iter().map(PathBuf::as_path)).collect();
    for child in [&program, &fixed] {
        // A copy: nobody may open a running program's own file for writing, which the loader cannot
        // prevent.
        let parent = &child.with_extension("parent");
        copy_executable(child, parent, 0o755);
        let [plain, attached] = answers(parent, &arguments, &directory.join("cache"));
        assert_eq!(attached.replace("engine ", "kernel "), plain, "{}", parent.display());
    }
}

/// A program that gains rights is executed as it is.
#[test]
fn programs_that_gain_rights_are_left_alone() {
    let directory = directory("children-rights");
    let program = build(&directory, GLIBC);
    let fixed = build(&directory, STATIC_GLIBC);
    for (name, mode) in [("set-uid", 0o4755), ("set-gid", 0o2755)] {
        let copy = directory.join(name);
        copy_executable(&fixed, &copy, mode);
        let [plain, attached] = answers(&program, &[Path::new("roads"), &copy], &directory.join("cache"));
        assert_eq!(attached, plain, "{name}");
    }
}

/// Where the library is not there, the dynamic linker does not complain about it, and a static
/// program starts without it.
#[test]
fn a_root_without_the_library_is_quiet() {
    let directory = directory("children-root");
    let mut bwrap = Command::new("bwrap");
    bwrap.args([
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--symlink",
        "usr/bin",
        "/bin",
    ]);
    let fixed = build(&directory, STATIC_GLIBC);
    bwrap.arg("--ro-bind").arg(&fixed).arg("/fixed");
    let sandbox: Vec<_> = bwrap.get_args().map(ToOwned::to_owned).collect();
    if !bwrap.arg("/bin/true").output().is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: bwrap does not make a root here");
    }
    assert!(!object().starts_with("/usr"), "the object would be in that root");
    let run = |command: &[&str]| finish(uringlet(&directory.join("cache")).args(["--", "bwrap"]).args(&sandbox).args(command));
    let output = run(&["/bin/sh", "-c", "/bin/echo $LD_PRELOAD; /bin/true"]);
    assert_eq!((stdout(&output), stderr(&output)), ("\n".into(), String::new()));
    // It has a ring of the kernel's, or none: but it runs.
    assert!(stdout(&run(&["/fixed", "child"])).contains(" fixed: /fixed child"));
}
