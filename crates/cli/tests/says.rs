//! What is said when a program's io_uring calls cannot reach the engine: one line, `--quiet`,
//! `--require`; `--explain`; `uringlet doctor`.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::executable::{copy_executable, write_executable};
use common::{compile, directory, finish, object, stderr, stdout, uringlet};
use uringlet_sys::Sysno;

/// Exit status of `--require`.
const REFUSED: i32 = 125;

fn run(options: &[&str], program: &Path) -> Output {
    finish(uringlet(Path::new("off")).args(options).arg(program))
}

/// Runs a program that cannot be attached: it runs and one line says `why`; `--quiet` says nothing,
/// `--require` runs nothing.
fn is_said(program: &Path, why: &str, ran: &str) {
    let output = run(&[], program);
    assert!(stdout(&output).contains(ran), "{}{}", stdout(&output), stderr(&output));
    let line = stderr(&output);
    assert!(line.starts_with("uringlet") && line.contains(why) && line.lines().count() == 1, "{line}");
    let output = run(&["--quiet"], program);
    assert_eq!((stdout(&output).contains(ran), stderr(&output)), (true, String::new()));
    let output = run(&["--require"], program);
    assert_eq!((output.status.code(), stdout(&output)), (Some(REFUSED), String::new()), "{}", stderr(&output));
    let line = stderr(&output);
    assert!(line.contains(why) && line.contains("nothing is run") && line.lines().count() == 1, "{line}");
}

/// Exit status of `uringlet doctor` for a program that can run: whether the kernel's ring is free.
fn kernel_status() -> i32 {
    let answer = uringlet_sys::spawn::ask_kernel_for_ring().expect("a copy of this process");
    i32::from(answer != uringlet_sys::spawn::CopyEnd::Exit(uringlet_sys::Errno::EFAULT.into_raw()))
}

fn doctor(options: &[&str], program: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
    command.env("URINGLET_LIB", object()).env("URINGLET_CACHE", "off").env_remove("LD_PRELOAD");
    finish(command.arg("doctor").args(options).arg(program))
}

/// `uringlet doctor` ends with this status and a verdict that contains `why`.
fn is_diagnosed(program: &Path, status: i32, why: &str) -> String {
    let output = doctor(&[], program);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(status), "{text}{}", stderr(&output));
    let verdict = text.lines().last().expect("a verdict");
    assert!(verdict.starts_with("verdict: ") && verdict.contains(why), "{text}");
    text
}

#[test]
fn a_program_without_any_road_to_the_engine_is_named() {
    let directory = directory("says-plain");
    let plain = compile("cc", &directory, "plain", &["says_plain.c"], &[]);
    is_said(&plain, "neither it nor its libraries", "URINGLET_CACHE=off");
    is_diagnosed(&plain, kernel_status(), "neither it nor its libraries");
    let musl = compile("musl-gcc", &directory, "plain-musl", &["says_plain.c"], &[]);
    is_said(&musl, "neither it nor its libraries", "URINGLET_CACHE=off");
    is_diagnosed(&musl, kernel_status(), "neither it nor its libraries");
}

#[test]
fn children_say_it_only_if_explain_asks() {
    let directory = directory("says-children");
    let plain = compile("cc", &directory, "plain", &["says_plain.c"], &[]);
    let script = format!("{}; true", plain.display());
    let output = finish(uringlet(Path::new("off")).args(["--require", "sh", "-c", &script]));
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let output = finish(uringlet(Path::new("off")).args(["--explain", "sh", "-c", &script]));
    assert!(stderr(&output).contains("neither it nor its libraries"), "{}", stderr(&output));
}

#[test]
fn a_program_that_gains_privileges_runs_plainly() {
    let directory = directory("says-privileged");
    let program = compile("cc", &directory, "plain", &["says_plain.c"], &[]);
    // Only root can make such a file for another user.
    if chown(&program, Some(65534), Some(65534)).is_err() {
        return eprintln!("skipped: only root can make a set-uid program of another user");
    }
    for (mode, why) in [(0o4755, "is set-uid"), (0o2755, "is set-gid")] {
        fs::set_permissions(&program, Permissions::from_mode(mode)).expect("chmod");
        is_said(&program, why, "URINGLET_CACHE=off");
        is_diagnosed(&program, kernel_status(), why);
    }
}

#[test]
fn a_static_program_is_attached_if_the_library_may_be_executed() {
    let directory = directory("says-static");
    let library = directory.join("liburinglet.so");
    copy_executable(object(), &library, 0o644);
    for (name, option) in [("fixed", "-static"), ("fixed-pie", "-static-pie")] {
        let program = compile("cc", &directory, name, &["says_site.c"], &[option]);
        assert!(is_diagnosed(&program, kernel_status(), "would be attached").contains("kind: static"));
        let output = finish(uringlet(Path::new("off")).arg(&program).env("URINGLET_LIB", &library));
        assert!(stdout(&output).starts_with("it ran: ") && stderr(&output).contains("chmod +x"), "{}", stderr(&output));
        let output = finish(uringlet(Path::new("off")).arg("--require").arg(&program).env("URINGLET_LIB", &library));
        assert_eq!((output.status.code(), stdout(&output)), (Some(REFUSED), String::new()));
    }
}

#[test]
fn a_library_that_cannot_be_mapped_is_named() {
    let directory = directory("says-library");
    let plain = compile("cc", &directory, "plain", &["says_plain.c"], &[]);
    let library = PathBuf::from(format!("/dev/shm/uringlet-says-{}.so", std::process::id()));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_noexec = |line: &str| line.split(' ').nth(1) == Some("/dev/shm") && line.contains("noexec");
    if !mounts.lines().any(is_noexec) || fs::copy(object(), &library).is_err() {
        return eprintln!("skipped: /dev/shm is not mounted noexec here");
    }
    let output = finish(uringlet(Path::new("off")).arg(&plain).env("URINGLET_LIB", &library));
    let refused = finish(uringlet(Path::new("off")).arg("--require").arg(&plain).env("URINGLET_LIB", &library));
    let _ = fs::remove_file(&library);
    assert!(stdout(&output).contains("URINGLET_LIB=") && stderr(&output).contains("noexec"), "{}", stderr(&output));
    assert!(!stdout(&output).contains("LD_PRELOAD="), "it runs as without uringlet");
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(REFUSED), String::new()));
}

#[test]
fn a_required_call_that_a_filter_denies_is_named() {
    let directory = directory("says-denied");
    let deny = compile("cc", &directory, "deny", &["says_deny.c"], &[]);
    let program = compile("cc", &directory, "calls", &["calls.c"], &[]);
    let number = (Sysno::epoll_create1 as u32).to_string();
    let under_filter = |arguments: &[&str]| {
        let mut command = Command::new(&deny);
        command.arg(&number).arg(env!("CARGO_BIN_EXE_uringlet")).args(arguments).arg(&program);
        finish(command.env("URINGLET_LIB", object()).env("URINGLET_CACHE", "off").env_remove("LD_PRELOAD"))
    };
    let message = "the system call epoll_create1 is denied";
    let output = under_filter(&["run"]);
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    assert!(!stderr(&under_filter(&["run", "--quiet"])).contains("uringlet"));
    let output = under_filter(&["run", "--require"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(REFUSED), String::new()));
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    let output = under_filter(&["doctor"]);
    assert_eq!(output.status.code(), Some(kernel_status()), "{}", stdout(&output));
    assert!(stdout(&output).contains(message), "{}", stdout(&output));
}

#[test]
fn explain_lists_interposed_symbols_and_sites_with_their_functions() {
    let directory = directory("says-explain");
    let program = compile("cc", &directory, "site", &["says_site.c"], &["-rdynamic"]);
    let explained = stderr(&run(&["--explain"], &program));
    let site = explained.lines().find(|line| line.contains("the program: 0x")).unwrap_or_else(|| panic!("{explained}"));
    assert!(site.contains(" in make_ring+0x") && site.ends_with(": io_uring_setup rewritten at the number"), "{site}");
    let program = compile("cc", &directory, "sites", &["sites.c", "sites.S"], &[]);
    let explained = stderr(&run(&["--explain"], &program));
    let interposed = explained.lines().find(|line| line.contains("the program: interposed: ")).unwrap_or_else(|| panic!("{explained}"));
    assert!(interposed.contains("prctl") && !interposed.contains("printf"), "{interposed}");
    assert_eq!(explained.matches(": any call rewritten").count(), 5, "{explained}");
}

#[test]
fn doctor_reports_what_run_would_do_and_runs_nothing() {
    let directory = directory("says-doctor");
    let program = compile("cc", &directory, "site", &["says_site.c"], &[]);
    let text = is_diagnosed(&program, kernel_status(), "would be attached");
    assert!(!text.contains("it ran"), "{text}");
    // The names are those of the file's symbol table.
    for line in ["in make_ring: io_uring_setup at the number", "kind: dynamic, started by /", "the kernel's io_uring: "] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&stdout(&doctor(&["--json"], &program))).expect("JSON");
    assert_eq!((&json["status"], &json["attached"]), (&kernel_status().into(), &true.into()));
    assert_eq!(json["objects"][0]["sites"][0]["function"], "make_ring");
    assert_eq!(json["objects"][0]["road"], "rewritten");
    let script = directory.join("script");
    write_executable(&script, format!("#!{}\n", program.display()), 0o755);
    assert!(is_diagnosed(&script, kernel_status(), "would be attached").contains(&format!("interpreter: {}", program.display())));
}

#[test]
fn doctor_without_a_program_tells_of_the_place() {
    let ask = |option: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
        command.env("URINGLET_LIB", object()).env("URINGLET_CACHE", "off").env_remove("LD_PRELOAD");
        finish(command.arg("doctor").args(option))
    };
    let output = ask(&[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(kernel_status()), "{text}{}", stderr(&output));
    let beginnings =
        ["the kernel's io_uring: ", "io_uring calls are answered by: ", "RLIMIT_NOFILE: ", "verdict: programs can be attached here"];
    for beginning in beginnings {
        assert_eq!(text.lines().filter(|line| line.starts_with(beginning)).count(), 1, "{beginning} {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&stdout(&ask(&["--json"]))).expect("JSON");
    assert_eq!(
        (&json["program"], &json["objects"], &json["status"]),
        (&serde_json::Value::Null, &serde_json::Value::Null, &kernel_status().into())
    );
    // The lines are there whether they are needed here or not.
    let container = json["place"]["container"].as_str();
    assert_eq!(container.is_some_and(|name| text.contains(&format!("inside of: {name}\n"))), container.is_some(), "{text}");
    let lines = json["place"]["lines"]["Dockerfile"].as_str().expect("lines");
    assert!(lines.contains("ENV LD_PRELOAD=/opt/uringlet/lib/uringlet/liburinglet.so\n"), "{lines}");
    assert_eq!(text.contains(lines), container.is_some() || json["kernel"]["works"] == false, "{text}");
}

#[test]
fn the_exit_status_of_doctor_says_whether_the_kernel_is_free() {
    let directory = directory("says-status");
    let filter = compile("cc", &directory, "filter", &["backend_filter.c"], &[]);
    let deny = compile("cc", &directory, "deny", &["says_deny.c"], &[]);
    let attached = compile("cc", &directory, "calls", &["calls.c"], &[]);
    let plain = compile("cc", &directory, "plain", &["says_plain.c"], &[]);
    let clone = (Sysno::clone as u32).to_string();
    let ask = |filter: &Path, action: &str, options: &[&str]| {
        let mut command = Command::new(filter);
        command.env("URINGLET_LIB", object()).env("URINGLET_CACHE", "off").env_remove("LD_PRELOAD");
        let output = finish(command.args([action, env!("CARGO_BIN_EXE_uringlet"), "doctor", "--json"]).args(options));
        let json: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(json["status"], output.status.code().expect("a status"), "{json}");
        (output.status.code(), json["attached"] == true)
    };
    let (attached, plain) = (attached.to_str().expect("UTF-8"), plain.to_str().expect("UTF-8"));
    for action in ["eperm", "enosys", "kill"] {
        assert_eq!(ask(&filter, action, &[]), (Some(1), true), "{action}: of the place");
        assert_eq!(ask(&filter, action, &[attached]), (Some(1), true), "{action}: a program that is attached");
        assert_eq!(ask(&filter, action, &[plain]), (Some(1), false), "{action}: a program that is not attached");
        assert_eq!(ask(&filter, action, &["no-such-program"]), (Some(2), false), "{action}: no program");
    }
    let free = Some(kernel_status());
    assert_eq!([ask(&filter, "none", &[]).0, ask(&filter, "none", &[plain]).0], [free, free]);
    assert_eq!(ask(&deny, &clone, &[]).0, Some(2), "no process can be made to ask the kernel");
}

#[test]
fn doctor_names_what_keeps_a_program_from_running() {
    let directory = directory("says-unfit");
    is_diagnosed(Path::new("no-such-program"), 2, "not found in PATH");
    let library = compile("cc", &directory, "libgone.so", &["liblater.c"], &["-shared", "-fPIC", "-Wl,-soname,libgone.so"]);
    let option = library.display().to_string();
    let program = compile("cc", &directory, "plain", &["says_plain.c"], &["-Wl,--no-as-needed", &option]);
    fs::remove_file(&library).expect("the library");
    is_diagnosed(&program, 2, "libgone.so");
}

#[test]
fn doctor_uses_the_cache_and_leaves_it_as_it_is() {
    let directory = directory("says-cache");
    let program = compile("cc", &directory, "sites", &["sites.c", "sites.S"], &[]);
    let cache = directory.join("cache");
    let known = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
        command.env("URINGLET_LIB", object()).env("URINGLET_CACHE", &cache).env_remove("LD_PRELOAD");
        stdout(&finish(command.arg("doctor").arg(&program))).contains("the program: interposed and rewritten, known from an earlier start")
    };
    assert!(!known() && !known());
    finish(uringlet(&cache).arg(&program));
    assert!(known());
}
