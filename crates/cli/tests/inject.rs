//! `uringlet run --inject` and `--legal`: what a program sees of what is done to its requests.

mod common;

use std::path::Path;
use std::process::Output;

fn run(directory: &Path, options: &[&str], arguments: &[&str]) -> Output {
    let program = directory.join("inject");
    if !program.exists() {
        common::compile("cc", directory, "inject", &["inject.c"], &["-luring"]);
    }
    common::finish(common::uringlet(directory).current_dir(directory).args(options).arg("--").arg(program).args(arguments))
}

/// What the program has printed under these expressions.
fn seen(test: &str, expressions: &[&str], arguments: &[&str]) -> String {
    let directory = common::directory(test);
    let options: Vec<&str> = expressions.iter().flat_map(|expression| ["--inject", expression]).collect();
    let output = run(&directory, &options, arguments);
    assert!(output.status.success(), "{}", common::stderr(&output));
    common::stdout(&output).trim().to_owned()
}

#[test]
fn a_result_is_put_in_place_of_a_request() {
    assert_eq!(seen("inject-error", &["WRITE:error=EIO"], &["files"]).split(' ').next(), Some("1=-5"));
    assert_eq!(seen("inject-retval", &["NOP:retval=7:when=2"], &["nops", "3"]), "1=0 2=7 3=0");
    // A failure breaks a chain.
    assert!(seen("inject-chain", &["READ:error=ENOMEM:when=2"], &["files"]).ends_with("8=-12 9=-125"));
}

#[test]
fn occurrences_are_counted_as_strace_counts_them() {
    let nops = |when: &str| {
        let text = seen("inject-when", &[&format!("NOP:error=EIO:when={when}")], &["nops", "12"]);
        text.split(' ').enumerate().filter(|(_, word)| word.ends_with("=-5")).map(|(n, _)| n + 1).collect::<Vec<usize>>()
    };
    assert_eq!([nops("3"), nops("10+"), nops("3+4"), nops("2..7+2")], [vec![3], vec![10, 11, 12], vec![3, 7, 11], vec![2, 4, 6]]);
    let chance = nops("30%:seed=5");
    assert!(!chance.is_empty() && chance.len() < 12 && chance == nops("30%:seed=5"), "{chance:?}");
    assert!((6..16).any(|seed| nops(&format!("30%:seed={seed}")) != chance));
}

#[test]
fn requests_are_chosen_by_file_and_path() {
    let files = |what: &str| seen("inject-files", &[what], &["files"]);
    assert_eq!(files("*:error=EIO:path=*/file"), "1=-5 2=1000 3=-5 4=-5 5=1000 6=-5 7=6 8=1000 9=0");
    // A path that is named: the whole of it counts.
    assert_eq!(files("OPENAT:error=ENOENT:path=fi?e").split(' ').nth(6), Some("7=-2"));
    assert_eq!(files("*:error=EIO:fd=5,99").split(' ').nth(1), Some("2=-5"));
    assert_eq!(files("%net:error=EIO"), files("WRITE:error=EIO:when=9"));
}

#[test]
fn transfers_are_cut_and_break_their_links() {
    let shown = seen("inject-short", &["*:short=50%"], &["files"]);
    // Of four iovecs two remain; one iovec is cut itself; what was written is half as long.
    assert_eq!(shown, "1=500 2=500 3=500 4=300 5=500 6=0 7=6 8=500 9=-125");
    assert!(seen("inject-bytes", &["READ:short=7"], &["files"]).contains("3=7 "));
    assert!(seen("inject-net", &["SEND:short=10%", "RECV:short=3:when=2"], &["net"]).starts_with("1=100 2=100 3=100 4=3 "));
}

#[test]
fn a_delayed_request_is_late_and_can_be_cancelled() {
    assert_eq!(seen("inject-order", &["NOP:delay=20ms:when=1"], &["order"]), "2=0 1=0");
    assert_eq!(seen("inject-late", &["*:delay=40ms"], &["late"]), "1=0 late 3=-62 2=-125 4=10");
}

#[test]
fn a_lost_peer_is_an_end_for_both_sides() {
    // The first receive finds what was sent before, the next one the end; later sends fail.
    assert_eq!(seen("inject-hangup", &["SEND:hangup:when=2"], &["net"]), "1=1000 2=1000 3=-32 4=0 5=-32");
    assert_eq!(seen("inject-reset", &["RECV:error=ECONNRESET:when=2+"], &["net"]), "1=1000 2=1000 3=1000 4=-104 5=10");
}

#[test]
fn a_multishot_ends_early_and_is_armed_no_more() {
    assert_eq!(seen("inject-shots", &["POLL_ADD:shots=2"], &["polls"]), "1=1+ 1=1 2=-2");
    assert_eq!(seen("inject-shots-3", &["POLL_ADD:shots=3"], &["polls"]).split(' ').take(2).collect::<Vec<_>>(), ["1=1+", "1=1+"]);
}

#[test]
fn a_poll_is_told_of_what_is_not_there() {
    assert_eq!(seen("inject-ready", &["POLL_ADD:ready"], &["ready"]), "wait=0 read=-11 1=1");
    assert_eq!(seen("inject-not-ready", &[], &["ready"]), "wait=-62 read=-11");
}

#[test]
fn a_cqe_overflows_and_is_not_lost() {
    assert_eq!(seen("inject-overflow", &["NOP:overflow"], &["overflow"]), "ready=0 overflow=1 1=0 overflow=0");
    assert_eq!(seen("inject-no-overflow", &[], &["overflow"]), "ready=1 overflow=0 1=0 overflow=0");
}

#[test]
fn calls_fail() {
    assert_eq!(seen("inject-setup", &["setup:error=EPERM"], &["nops"]), "setup=-1");
    assert_eq!(seen("inject-register", &["register:error=ENOMEM:when=1"], &["calls"]), "register=-12 register=-6 1=0 2=0");
    // Nothing is submitted, and the next try does it.
    assert_eq!(seen("inject-enter", &["enter:error=EINTR:when=1"], &["nops", "2"]), "submit=-4 1=0 2=0");
    assert_eq!(seen("inject-enter-2", &["enter:error=EBUSY:when=2"], &["nops", "2"]), "1=0 submit=-16 2=0");
}

#[test]
fn children_count_for_themselves() {
    assert_eq!(seen("inject-children", &["NOP:error=EIO:when=2"], &["children"]), "1=0 2=-5 3=0 \n1=0 2=-5 3=0");
}

#[test]
fn an_injected_result_is_marked_in_a_trace() {
    let directory = common::directory("inject-trace");
    common::compile("cc", &directory, "inject", &["inject.c"], &["-luring"]);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_uringlet"));
    command.env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", &directory).current_dir(&directory);
    command.args(["trace", "--calls", "--", env!("CARGO_BIN_EXE_uringlet"), "run", "--inject", "*:short=50%", "--inject"]);
    let output = common::finish(command.args(["FSYNC:error=EIO", "--inject", "enter:error=EINTR:when=3", "--", "./inject", "files"]));
    let shown = common::stderr(&output);
    let line = |start: &str| shown.lines().find(|line| line.contains(start)).unwrap_or_else(|| panic!("{start}: {shown}")).to_owned();
    assert!(line(": WRITE(").contains("1000, 0) user_data=0x1 = 500 (INJECTED) ["), "{shown}");
    // As the program wrote it, although it was executed as a READ.
    assert!(line(": READV(4").contains(" = 300 (INJECTED) ["), "{shown}");
    assert!(line("user_data=0x5").contains(": READV(") && line("user_data=0x5").contains(" = 500 (INJECTED) ["), "{shown}");
    assert!(line(": FSYNC(").contains(" = -5 EIO (I/O error) (INJECTED) [inline]"), "{shown}");
    assert!(!line(": OPENAT(").contains("INJECTED"), "{shown}");
    assert!(line("= -1 EINTR").ends_with("(Interrupted system call) (INJECTED)"), "{shown}");
}

#[test]
fn a_wrong_expression_runs_nothing() {
    let directory = common::directory("inject-wrong");
    let output = run(&directory, &["--inject", "REED:error=EIO"], &["nops"]);
    assert_eq!((output.status.code(), common::stdout(&output).as_str()), (Some(125), ""));
    let said = common::stderr(&output);
    assert!(said.contains("\n  --inject REED:error=EIO\n           ^^^^ is no opcode; did you mean READ?\n"), "{said}");
    let alone = run(&directory, &["--only", "0.3"], &["nops"]);
    assert!(common::stderr(&alone).contains("--only needs --inject or --legal") && alone.status.code() == Some(125));
    let kernel = common::finish(common::uringlet(&directory).env("URINGLET", "kernel").args(["--legal", "1", "--", "true"]));
    assert!(common::stderr(&kernel).contains("Only the engine injects faults") && kernel.status.code() == Some(125));
}

#[test]
fn only_the_named_decisions_are_carried_out() {
    let directory = common::directory("inject-only");
    let with = |only: &str| {
        let output = run(&directory, &["--inject", "NOP:error=EIO:when=2+2", "--only", only], &["nops", "8"]);
        common::stdout(&output).trim().to_owned()
    };
    assert_eq!(with("0.1-2"), "1=0 2=0 3=0 4=-5 5=0 6=-5 7=0 8=0");
    assert_eq!(with("0.3,call.0"), "1=0 2=0 3=0 4=0 5=0 6=0 7=0 8=-5");
}

#[test]
fn a_legal_kernel_repeats_itself_and_surprises() {
    let directory = common::directory("inject-legal");
    let files = |seed: u32| {
        let output = run(&directory, &["--legal", &seed.to_string()], &["files"]);
        assert!(output.status.success(), "{}", common::stderr(&output));
        common::stdout(&output).trim().to_owned()
    };
    let all: Vec<String> = (0..20).map(files).collect();
    // How often a program enters depends on time, and with it which of its calls fails.
    let results = |shown: &String| shown.split(' ').filter(|word| !word.starts_with("submit=")).collect::<Vec<_>>().join(" ");
    let again: Vec<String> = (0..20).map(files).collect();
    assert_eq!(all.iter().map(results).collect::<Vec<_>>(), again.iter().map(results).collect::<Vec<_>>());
    let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
    assert!(distinct.len() > 5, "{all:?}");
    // Results that the ABI does not allow.
    assert!(all.iter().all(|shown| !shown.contains("1=0 ") && shown.contains(" 6=0 ")), "{all:?}");
}

#[test]
fn a_worker_executes_what_it_is_given() {
    let directory = common::directory("inject-worker");
    common::compile("cc", &directory, "inject", &["inject.c"], &["-luring"]);
    let own = env!("CARGO_BIN_EXE_uringlet");
    let mut command = std::process::Command::new(own);
    command.env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", &directory).current_dir(&directory);
    let output = common::finish(command.args(["trace", "--", own, "run", "--inject", "FSYNC:worker", "--", "./inject", "files"]));
    let shown = common::stderr(&output);
    let line = shown.lines().find(|line| line.contains(": FSYNC(")).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.ends_with(" = 0 (INJECTED) [io-wq]"), "{line}");
}
