//! Static programs under `uringlet run`: what they see of themselves is what they see without it,
//! and their rings work where the kernel's are blocked.

mod common;

use common::executable::write_executable;
use common::{compile, directory, finish, oracle, stderr, stdout, uringlet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Compilers and options that make static programs.
const BUILDS: [(&str, &str, &[&str]); 3] = [
    ("glibc", "cc", &["-static"]),
    ("pie", "cc", &["-static-pie"]),
    ("musl", "musl-gcc", &["-static", "-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"]),
];

fn build(directory: &Path, program: &str, (name, compiler, options): (&str, &str, &[&str])) -> PathBuf {
    compile(compiler, directory, &format!("{program}-{name}"), &[&format!("{program}.c")], options)
}

/// The same command, plain and attached.
fn both(directory: &Path, program: &Path, prepare: impl Fn(&mut Command)) -> [Output; 2] {
    let mut plain = Command::new(program);
    let mut attached = uringlet(directory);
    attached.args(["--quiet", "--"]).arg(program);
    [&mut plain, &mut attached].map(|command| {
        prepare(command);
        finish(command.current_dir(directory))
    })
}

fn assert_equal([plain, attached]: [Output; 2], what: &str) {
    assert_eq!(stdout(&attached), stdout(&plain), "{what}: {}", stderr(&attached));
    assert_eq!(stderr(&attached), stderr(&plain), "{what}");
    assert_eq!(attached.status, plain.status, "{what}");
}

#[test]
fn a_program_sees_what_it_would_see_without_us() {
    let directory = directory("static-facts");
    for kind in BUILDS {
        let program = build(&directory, "static_facts", kind);
        let outputs = both(&directory, &program, |command| {
            command.args(["one", "", "three words"]).env_clear().env("FIRST", "1").env("SECOND", "two=2");
            command.env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", &directory);
        });
        assert!(stdout(&outputs[0]).contains("the heap grows: 1"), "{}", stdout(&outputs[0]));
        assert_equal(outputs, kind.0);
    }
}

#[test]
fn a_script_is_run_by_its_static_interpreter() {
    let directory = directory("static-script");
    let program = build(&directory, "static_facts", BUILDS[0]);
    let script = directory.join("a script");
    write_executable(&script, format!("#!{} with one  argument \nrest\n", program.display()), 0o755);
    let outputs = both(&directory, &script, |command| {
        command.arg("more");
    });
    assert!(stdout(&outputs[0]).contains("argument 1: with one  argument"), "{}", stdout(&outputs[0]));
    assert_equal(outputs, "script");
}

/// Programs of other tests, linked statically: rings on the engine where the kernel's are blocked.
#[test]
fn rings_work_in_static_programs() {
    const PROGRAMS: [&str; 10] = [
        "order_links",
        "order_cancel",
        "fs_ops",
        "net_ops",
        "more_ops",
        "futex_ops",
        "waitid_ops",
        "net_buffers",
        "files_held",
        "robust_load",
    ];
    /// With musl's headers the first lacks a structure, the second fails on the kernel's ring, too.
    const NEED_GLIBC: [&str; 2] = ["fs_ops", "net_ops"];
    let directory = directory("static-rings");
    for program in PROGRAMS {
        for kind in BUILDS.into_iter().filter(|kind| kind.0 != "musl" || !NEED_GLIBC.contains(&program)) {
            let executable = build(&directory, program, kind);
            let mut command = uringlet(&directory);
            command.arg("--").arg(executable).env("BLOCK_IO_URING", "1").current_dir(&directory);
            oracle::must_succeed(&finish(&mut command), &format!("{program}, {}", kind.0));
        }
    }
}

/// What is done to a file, and what is said of it then.
type Damage<'a> = (&'a str, &'a dyn Fn(&mut Vec<u8>));

/// What is no static program of this machine ends in one line and status 126.
/// Code in a gap would be taken for the engine's.
#[test]
fn nothing_is_mapped_between_the_engines_segments() {
    let directory = directory("static-gaps");
    for kind in BUILDS {
        let program = build(&directory, "static_gaps", kind);
        let library = common::object().file_name().expect("a file");
        let output = finish(uringlet(&directory).args(["--quiet", "--"]).arg(&program).arg(library));
        assert_eq!(stdout(&output), "loaded, 0 gaps\n", "{}: {}", kind.0, stderr(&output));
    }
}

#[test]
fn damaged_files_are_refused() {
    let directory = directory("static-damaged");
    let whole = std::fs::read(build(&directory, "static_facts", BUILDS[0])).expect("a program");
    let damage: [Damage<'_>; 6] = [
        ("truncated ELF", &|bytes| bytes.truncate(40)),
        ("truncated ELF", &|bytes| bytes.truncate(bytes.len() / 2)),
        ("damaged ELF", &|bytes| bytes[5] = 9),
        ("truncated ELF", &|bytes| bytes[54] = 1),
        ("damaged ELF", &|bytes| bytes[24..32].fill(0x11)),
        ("damaged ELF", &|bytes| bytes[0x48..0x50].fill(0x7f)),
    ];
    for (at, (expected, change)) in damage.iter().enumerate() {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let file = directory.join(format!("damaged-{at}"));
        write_executable(&file, bytes, 0o755);
        let output = finish(uringlet(&directory).arg(&file));
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(126), 1), "{at}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{at}: {}", stderr(&output));
    }
}

/// What execve(2) of a whole program would refuse, for reasons that do not lie in its headers.
#[test]
fn programs_that_cannot_be_executed_here_are_refused_in_one_line() {
    let directory = directory("static-refused");
    let is_refused = |output: &Output, why: &str| {
        assert_eq!((output.status.code(), stderr(output).lines().count()), (Some(126), 1), "{}", stderr(output));
        assert!(stderr(output).contains(why), "{}", stderr(output));
    };
    let missing = "-Wl,--dynamic-linker=/no/such/linker.so";
    let program = compile("cc", &directory, "no-linker", &["static_facts.c"], &[missing]);
    is_refused(&finish(uringlet(&directory).arg(program)), "needs the dynamic linker /no/such/linker.so");
    let program = build(&directory, "static_facts", BUILDS[0]);
    let mount = directory.join("mounted");
    std::fs::create_dir(&mount).expect("a folder");
    let script = "mount -t tmpfs -o noexec none \"$1\" && cp \"$2\" \"$1/program\" && shift 2 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]).arg(&mount).arg(program);
    let run = uringlet(&directory);
    command.arg(run.get_program()).args(run.get_args()).arg(mount.join("program"));
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("LD_PRELOAD");
    let output = finish(&mut command);
    if stderr(&output).contains("unshare") || stderr(&output).contains("mount:") {
        return eprintln!("skipped: nothing can be mounted here: {}", stderr(&output));
    }
    is_refused(&output, "mounted with noexec");
}

/// Segments that lie upon each other: the kernel maps the one over the other.
#[test]
fn overlapping_segments_are_refused() {
    const TABLE: usize = 64;
    const HEADER: usize = 56;
    const ADDRESS: usize = 16;
    let directory = directory("static-overlap");
    for kind in &BUILDS[..2] {
        let mut bytes = std::fs::read(build(&directory, "static_facts", *kind)).expect("a program");
        let kind_at = |at: usize, bytes: &[u8]| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let loads: Vec<usize> = (0..6).map(|index| TABLE + HEADER * index).filter(|&at| kind_at(at, &bytes) == 1).collect();
        let first = bytes[loads[0] + ADDRESS..][..8].to_vec();
        bytes[loads[1] + ADDRESS..][..8].copy_from_slice(&first);
        let file = directory.join("overlapping");
        write_executable(&file, &bytes, 0o755);
        let output = finish(uringlet(&directory).arg(&file));
        assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(126), 1), "{}", stderr(&output));
        assert!(stderr(&output).contains("contradict each other"), "{}", stderr(&output));
    }
}

/// Random bytes in the headers: the program runs, is refused, or dies of its own code; the loader
/// never panics.
#[test]
fn headers_at_random_never_harm_the_loader() {
    const SEEDS: u64 = 300;
    let directory = directory("static-fuzz");
    let whole = std::fs::read(build(&directory, "static_facts", BUILDS[1])).expect("a program");
    let file = directory.join("fuzzed");
    for seed in 1..=SEEDS {
        let mut bytes = whole.clone();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..1 + next() % 4 {
            // Behind the magic; the table of program headers follows the header.
            let at = 4 + (next() % 600) as usize;
            bytes[at] = next().to_le_bytes()[0];
        }
        write_executable(&file, &bytes, 0o755);
        let mut command = uringlet(&directory);
        let output = finish(command.arg("--no-cache").arg(&file).arg(OsStr::new("x")));
        assert!(!stderr(&output).contains("internal error"), "seed {seed}: {}", stderr(&output));
    }
}
