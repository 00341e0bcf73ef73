//! `--when-blocked` and `URINGLET`: the kernel's ring where it works, the engine where it is
//! blocked. Wrong and unknown variables.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::executable::copy_executable;
use common::{compile, directory, finish, object, stderr, stdout, success, uringlet};

/// The filters, and whether the kernel's ring works under them.
const FILTERS: [(&str, bool); 5] = [("none", true), ("eperm", false), ("enosys", false), ("kill", false), ("enter", false)];
const SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";
const NOBODY: &str = "--reuid=65534";

struct Programs {
    filter: PathBuf,
    dynamic: PathBuf,
    fixed: PathBuf,
    /// What a program without uringlet and without a filter gets.
    unfiltered: String,
}

impl Programs {
    fn new(test: &str) -> Self {
        let directory = directory(test);
        let dynamic = compile("cc", &directory, "dynamic", &["backend.c"], &[]);
        let unfiltered = success(&mut Command::new(&dynamic)).split(' ').next().expect("a word").to_owned();
        Self {
            filter: compile("cc", &directory, "filter", &["backend_filter.c"], &[]),
            fixed: compile("cc", &directory, "fixed", &["backend.c"], &["-static"]),
            dynamic,
            unfiltered,
        }
    }

    /// A command under a filter.
    fn filtered(&self, action: &str, program: &Path) -> Command {
        let mut command = Command::new(&self.filter);
        command.arg(action).arg(program).env("URINGLET_LIB", object()).env("URINGLET_CACHE", "off").env_remove("LD_PRELOAD");
        command
    }

    /// Whether the kernel's ring works in a process with this filter.
    fn works(&self, has_ring: bool) -> bool {
        has_ring && self.unfiltered == "kernel"
    }
}

fn command_line() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_uringlet"))
}

#[test]
fn run_attaches_only_where_the_kernels_ring_is_blocked() {
    let programs = Programs::new("backend-run");
    for (action, has_ring) in FILTERS {
        for program in [&programs.dynamic, &programs.fixed] {
            let expected = if programs.works(has_ring) { "kernel plain unset\n" } else { "engine preloaded unset\n" };
            let told = success(programs.filtered(action, command_line()).args(["run", "--when-blocked"]).arg(program));
            assert_eq!(told, expected, "{action} {program:?}");
            let told = success(programs.filtered(action, command_line()).arg("run").arg(program).env("URINGLET", "when-blocked"));
            assert_eq!(told.split(' ').next(), expected.split(' ').next(), "{action} {program:?} by the variable");
        }
    }
}

#[test]
fn preload_alone_attaches_only_where_the_kernels_ring_is_blocked() {
    let programs = Programs::new("backend-preload");
    for (action, has_ring) in FILTERS {
        let preloaded = || {
            let mut command = programs.filtered(action, &programs.dynamic);
            command.env("LD_PRELOAD", object());
            command
        };
        let chosen = if programs.works(has_ring) { "kernel preloaded when-blocked\n" } else { "engine preloaded engine\n" };
        assert_eq!(success(preloaded().env("URINGLET", "when-blocked")), chosen, "{action}");
        assert_eq!(success(&mut preloaded()), "engine preloaded unset\n", "{action}");
    }
    let mut kernel = programs.filtered("eperm", &programs.dynamic);
    assert_eq!(success(kernel.env("LD_PRELOAD", object()).env("URINGLET", "kernel")), "blocked preloaded kernel\n");
}

#[test]
fn children_of_a_blocked_process_are_attached_and_those_of_another_look_again() {
    let programs = Programs::new("backend-children");
    let shell = |action: &str, script: &str| {
        let mut command = programs.filtered(action, Path::new("sh"));
        success(command.args(["-c", script]).env("LD_PRELOAD", object()).env("URINGLET", "when-blocked"))
    };
    let (filter, dynamic, fixed) = (programs.filter.display(), programs.dynamic.display(), programs.fixed.display());
    assert_eq!(shell("eperm", &format!("{dynamic}; {fixed}")), "engine preloaded engine\n".repeat(2));
    assert_eq!(shell("none", &format!("{filter} eperm {dynamic}; true")), "engine preloaded engine\n");
}

#[test]
fn kernel_is_chosen_for_run_as_well() {
    let programs = Programs::new("backend-kernel");
    for program in [&programs.dynamic, &programs.fixed] {
        let mut run = programs.filtered("eperm", command_line());
        assert_eq!(success(run.arg("run").arg(program).env("URINGLET", "kernel")), "blocked plain kernel\n");
    }
}

#[test]
fn a_wrong_backend_is_refused_in_one_line() {
    let output = finish(uringlet(Path::new("off")).arg("true").env("URINGLET", "none"));
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(stderr(&output), "uringlet run: URINGLET=none is none of kernel, engine, when-blocked\n");
}

/// The system's own switch: at 1 only root gets rings.
#[test]
fn sysctl_blocks_an_ordinary_user() {
    struct Restore(String);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = fs::write(SYSCTL, &self.0);
        }
    }
    let programs = Programs::new("backend-sysctl");
    let Ok(before) = fs::read_to_string(SYSCTL) else { return eprintln!("skipped: this kernel has no {SYSCTL}") };
    let place = PathBuf::from(format!("/tmp/uringlet-backend-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a folder that everybody reads");
    let library = place.join("liburinglet.so");
    copy_executable(object(), &library, 0o755);
    copy_executable(&programs.dynamic, &place.join("program"), 0o755);
    let told = || {
        let mut command = Command::new("setpriv");
        command.args([NOBODY, "--clear-groups"]).arg(place.join("program"));
        finish(command.env("LD_PRELOAD", &library).env("URINGLET", "when-blocked").env("URINGLET_CACHE", "off"))
    };
    if before.trim() != "0" || fs::write(SYSCTL, "1").is_err() {
        let _ = fs::remove_dir_all(&place);
        return eprintln!("skipped: only root can change {SYSCTL}");
    }
    let restore = Restore(before);
    let blocked = told();
    drop(restore);
    let free = told();
    let _ = fs::remove_dir_all(&place);
    assert_eq!(stdout(&blocked), "engine preloaded engine\n", "{}", stderr(&blocked));
    assert_eq!(stdout(&free), "kernel preloaded when-blocked\n", "{}", stderr(&free));
}

#[test]
fn wrong_variables_are_named_once_by_a_program_with_a_ring() {
    let programs = Programs::new("backend-wrong");
    let run = |program: &Path, notice: &str| {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", object()).env("URINGLET_CACHE", "off").env("URINGLET_NOTICE", notice);
        finish(command.env("URINGLET_MODE", "fast").env("URINGLET_EXPLAINS", "1").env("URINGLET_TRAP", ""))
    };
    let output = run(&programs.dynamic, "");
    assert_eq!(stdout(&output), "engine preloaded unset\n");
    let line = stderr(&output);
    assert!(line.starts_with("uringlet: ignored: ") && line.lines().count() == 1, "{line}");
    for part in ["URINGLET_MODE=fast (not adaptive, uringlet, workers)", "URINGLET_EXPLAINS (no such variable)"] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(stderr(&run(&programs.dynamic, "quiet")), "");
    assert_eq!(stderr(&run(Path::new("true"), "")), "", "it makes no ring");
    let shell = "exec 2>/dev/null 3>&1; exec 2>\"$0\"; exec \"$1\"";
    let log = programs.dynamic.with_extension("log");
    let mut command = Command::new("sh");
    command.args(["-c", shell]).arg(&log).arg(&programs.dynamic);
    finish(command.env("LD_PRELOAD", object()).env("URINGLET_CACHE", "off").env("URINGLET_MODE", "fast"));
    assert!(fs::read_to_string(&log).expect("the log").contains("URINGLET_MODE=fast"), "standard error may be a file");
}

/// An image's library, and one of LD_PRELOAD: the first one is attached, the other does nothing.
#[test]
fn two_copies_of_the_library_are_one_engine() {
    let programs = Programs::new("backend-copies");
    let copies = ["one", "two"].map(|name| {
        let folder = programs.dynamic.with_file_name(name);
        fs::create_dir_all(&folder).expect("a folder");
        let copy = folder.join("liburinglet.so");
        fs::copy(object(), &copy).expect("a copy");
        copy.display().to_string()
    });
    let run = |program: &Path, preload: &str| {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", preload).env("URINGLET_CACHE", "off").env("URINGLET_MODE", "fast");
        finish(command.args(["-c", &format!("exec {}", programs.dynamic.display())]))
    };
    let [one, two] = copies;
    for preload in [format!("{one}:{two}"), format!("{two}:{one}")] {
        for program in [&programs.dynamic, Path::new("sh")] {
            let output = run(program, &preload);
            assert_eq!(stdout(&output), "engine preloaded unset\n", "{}", stderr(&output));
            assert_eq!(stderr(&output).lines().count(), 1, "one of them reads the variables: {}", stderr(&output));
        }
    }
    let fio = ["--name=copies", "--ioengine=io_uring", "--size=1m", "--rw=randrw", "--verify=crc32c", "--iodepth=16"];
    let mut command = Command::new("fio");
    command.args(fio).arg("--directory").arg(programs.dynamic.parent().expect("a folder"));
    // It leaves a file in its working folder.
    command.current_dir(programs.dynamic.parent().expect("a folder"));
    let output = finish(command.env("LD_PRELOAD", format!("{one}:{two}")).env("URINGLET_CACHE", "off"));
    assert!(output.status.success() && stdout(&output).contains("err= 0"), "{}{}", stdout(&output), stderr(&output));
}

/// `/etc/ld.so.preload` in a mount namespace of the test's own.
#[test]
fn a_program_that_gains_privileges_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can make a set-uid program of another user");
    }
    let programs = Programs::new("backend-secure");
    let place = PathBuf::from(format!("/var/tmp/uringlet-secure-{}", std::process::id()));
    fs::create_dir_all(place.join("etc")).expect("a folder that everybody reads");
    copy_executable(object(), &place.join("liburinglet.so"), 0o755);
    for file in ["passwd", "group", "ld.so.cache"] {
        let _ = fs::copy(Path::new("/etc").join(file), place.join("etc").join(file));
    }
    fs::write(place.join("etc/ld.so.preload"), format!("{}\n", place.join("liburinglet.so").display())).expect("a file");
    for (name, mode) in [("plain", 0o755), ("secure", 0o4755)] {
        copy_executable(&programs.dynamic, &place.join(name), mode);
    }
    let told = |name: &str| {
        let script = format!("mount --bind {0}/etc /etc && exec setpriv {NOBODY} --clear-groups {0}/{name}", place.display());
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).env("URINGLET_MODE", "fast").env("URINGLET_CACHE", "off").env_remove("LD_PRELOAD");
        let output = finish(&mut command);
        (stdout(&output), stderr(&output))
    };
    let (plain, secure) = (told("plain"), told("secure"));
    let _ = fs::remove_dir_all(&place);
    assert!(plain.0.starts_with("engine") && plain.1.contains("URINGLET_MODE=fast"), "{plain:?}");
    assert_eq!(secure, (format!("{} plain unset\n", programs.unfiltered), String::new()));
}
