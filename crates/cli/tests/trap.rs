//! `uringlet run --trap`: io_uring calls of code that is made at run time, or may not be changed.
//!
//! The programs run on the kernel's ring, which checks what they expect, and under a filter that
//! answers the kernel's io_uring with EPERM: a ring there is the engine's.

mod common;

use common::oracle::{NO_RING, has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, stderr, stdout, uringlet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `trap.c`, and what runs it.
struct Trap {
    directory: PathBuf,
    program: PathBuf,
    block: PathBuf,
}

impl Trap {
    fn new(name: &str) -> Self {
        Self::linked(name, &[])
    }

    fn linked(name: &str, options: &[&str]) -> Self {
        let directory = directory(&format!("trap-{name}"));
        let program = compile("cc", &directory, "trap", &["trap.c"], options);
        let block = compile("cc", &directory, "block", &["trap_block.c"], &[]);
        Self { directory, program, block }
    }

    /// Runs the program in the filter, under `uringlet run OPTIONS`.
    fn in_filter(&self, filter: &[&str], options: &[&str], program: &Path, args: &[&str]) -> Output {
        let run = uringlet(&self.directory);
        let mut command = Command::new(&self.block);
        command.args(filter).arg(run.get_program()).args(run.get_args()).args(options).arg("--").arg(program).args(args);
        for (name, value) in run.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        finish(command.current_dir(&self.directory))
    }
}

/// The same on the engine and on the kernel's ring.
fn compare(mode: &str, others: &[&str]) {
    let trap = Trap::new(mode);
    let args: Vec<&str> = std::iter::once(mode).chain(others.iter().copied()).collect();
    must_succeed(&trap.in_filter(&[], &["--trap"], &trap.program, &args), &format!("{args:?}, attached"));
    let kernel = finish(Command::new(&trap.program).args(&args).current_dir(&trap.directory));
    if has_ring(&kernel) && is_kernel_new_enough() {
        must_succeed(&kernel, &format!("{args:?} on the kernel's ring"));
    }
}

#[test]
fn code_made_at_run_time_uses_rings() {
    compare("rings", &[]);
}

#[test]
fn code_made_in_many_pieces_needs_few_filters() {
    compare("pieces", &[]);
}

#[test]
fn threads_that_were_there_before_the_code_use_rings() {
    compare("threads", &[]);
}

#[test]
fn a_program_that_blocks_all_signals_uses_rings_and_sees_its_own_masks() {
    compare("masks", &[]);
}

#[test]
fn a_programs_own_traps_and_actions_stay_its_own() {
    compare("actions", &[]);
}

#[test]
fn children_live_whether_they_are_attached_or_not() {
    let directory = directory("trap-static");
    let other = compile("cc", &directory, "other", &["trap_static.c"], &["-static"]);
    compare("children", &[&other.to_string_lossy()]);
}

#[test]
fn without_the_option_the_kernel_answers_code_made_at_run_time() {
    let trap = Trap::new("off");
    let output = trap.in_filter(&[], &[], &trap.program, &["rings"]);
    assert_eq!(output.status.code(), Some(NO_RING), "{}{}", stdout(&output), stderr(&output));
}

/// The program can gain no privileges anyway, so nothing is lost by a filter.
#[test]
fn code_that_may_not_be_changed_is_trapped_where_nothing_is_lost() {
    let trap = Trap::new("text");
    for options in [&["--explain"][..], &["--explain", "--trap"]] {
        let output = trap.in_filter(&["text"], options, &trap.program, &["text"]);
        must_succeed(&output, &format!("{options:?} text"));
        assert!(stderr(&output).contains("the program: the sites left as they are go by traps (seccomp)"), "{}", stderr(&output));
    }
    let changed = trap.in_filter(&[], &["--explain"], &trap.program, &["text"]);
    must_succeed(&changed, "text that may be changed");
    assert!(!stderr(&changed).contains("go by traps"), "{}", stderr(&changed));
}

/// Its sites are rewritten, so the program sees its masks and actions there; only what is made
/// later, and the few sites that stay, are trapped.
#[test]
fn static_programs_are_trapped_as_dynamic_ones() {
    for (kind, option) in [("fixed", "-static"), ("pie", "-static-pie")] {
        let trap = Trap::linked(&format!("static-{kind}"), &[option]);
        let other = compile("cc", &trap.directory, "other", &["trap_static.c"], &["-static"]);
        for mode in ["rings", "pieces", "threads", "masks", "actions", "children"] {
            let output = trap.in_filter(&[], &["--trap"], &trap.program, &[mode, &other.to_string_lossy()]);
            must_succeed(&output, &format!("{kind}, {mode}"));
        }
    }
}

/// Without `--trap` it runs as without uringlet: as a trapped one it would not find its own file.
#[test]
fn a_static_program_that_may_not_be_changed_is_trapped_if_asked() {
    let trap = Trap::linked("static-text", &["-static"]);
    must_succeed(&trap.in_filter(&["text"], &["--trap"], &trap.program, &["text"]), "trapped");
    let plain = trap.in_filter(&["text"], &[], &trap.program, &["text"]);
    assert_eq!(plain.status.code(), Some(NO_RING), "{}{}", stdout(&plain), stderr(&plain));
    assert!(stderr(&plain).lines().count() == 1 && stderr(&plain).contains("Use uringlet run --trap"), "{}", stderr(&plain));
    let asked = |options: &[&str]| {
        let mut doctor = Command::new(&trap.block);
        doctor.args(["text", env!("CARGO_BIN_EXE_uringlet"), "doctor"]).args(options).arg(&trap.program);
        stdout(&finish(doctor.env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", "off").env_remove("LD_PRELOAD")))
    };
    assert!(asked(&[]).ends_with("docs/system-calls.md lists the calls that a seccomp filter must allow\n"), "{}", asked(&[]));
    let trapped = asked(&["--trap"]);
    assert!(trapped.contains("trapped (seccomp)") && trapped.ends_with("verdict: would be attached\n"), "{trapped}");
}

/// Its runtime takes SIGSYS by calls that would have to be rewritten. It runs as without uringlet,
/// and finds its own file.
#[test]
fn a_static_go_program_that_may_not_be_changed_is_left_alone() {
    let trap = Trap::new("static-go");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/rings.go");
    let program = trap.directory.join("rings");
    let Some(go) = go() else { return };
    let mut build = Command::new(go);
    must_succeed(&finish(build.args(["build", "-o"]).arg(&program).arg(source).env("CGO_ENABLED", "0")), "go build");
    let own = program.to_string_lossy();
    for options in [&[][..], &["--trap"]] {
        let output = trap.in_filter(&["text"], options, &program, &[&own]);
        assert_eq!((output.status.code(), &*stdout(&output)), (Some(NO_RING), "no ring: operation not permitted\n"), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.lines().count() == 1 && said.contains("--trap does not help, Go's runtime handles SIGSYS itself"), "{said}");
    }
    const REFUSED: i32 = 125;
    let required = trap.in_filter(&["text"], &["--trap", "--require"], &program, &[&own]);
    assert_eq!(required.status.code(), Some(REFUSED), "{}", stderr(&required));
}

#[test]
fn a_trapped_call_changes_no_register() {
    let trap = Trap::new("registers");
    let program = compile("cc", &trap.directory, "sites", &["sites.c", "sites.S"], &[]);
    let output = finish(uringlet(&trap.directory).arg("--trap").arg(&program).arg("copy"));
    must_succeed(&output, "sites copy");
    assert!(!stdout(&output).contains("kernel"), "{}", stdout(&output));
    let plain = finish(uringlet(&trap.directory).arg(&program).arg("copy"));
    must_succeed(&plain, "sites copy without traps");
    assert_eq!(stdout(&plain).matches("kernel").count(), 2, "{}", stdout(&plain));
}

/// Go's tool, if it is here.
fn go() -> Option<&'static str> {
    let found = ["go", "/usr/local/go/bin/go"].into_iter().find(|go| Command::new(go).arg("version").output().is_ok());
    if found.is_none() {
        eprintln!("skipped: there is no Go compiler");
    }
    found
}

/// Go's runtime blocks all signals and resets all handlers before a child's execve, and makes its
/// own system calls meanwhile.
#[test]
fn a_go_program_starts_children() {
    let trap = Trap::new("go");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/children.go");
    let program = trap.directory.join("children");
    let Some(go) = go() else { return };
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(source).env("CGO_ENABLED", "1");
    must_succeed(&finish(&mut build), "go build");
    for filter in [&[][..], &["text"]] {
        must_succeed(&trap.in_filter(filter, &["--trap"], &program, &[]), &format!("{filter:?}, children"));
    }
}
