//! C programs compiled against the installed liburing.h, run unchanged over three pairs of library
//! and rings:
//!
//! | run | library | rings |
//! |---|---|---|
//! | reference | the distribution's | the kernel's |
//! | over the kernel | ours, told that attach is present | the kernel's |
//! | over the engine | ours, by LD_LIBRARY_PATH alone; io_uring system calls kill | the engine's |
//!
//! Each program checks its results and writes a transcript; the transcripts must be equal. Where
//! the kernel has no rings, only the last run is made.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(600);
const SIGSYS: i32 = 31;

fn source(name: &str) -> PathBuf {
    common::crate_dir().join("tests/c").join(name).with_extension("c")
}

/// A compiled program (or library), removed when dropped. Tests run in parallel, so each compiles
/// its own.
struct Compiled(PathBuf);

impl Compiled {
    fn new(name: &str, args: &[&str]) -> Self {
        Self::with(common::cc(), name, args)
    }

    fn with(compiler: Command, name: &str, args: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let compiled = Self(common::scratch().join(unique));
        common::compile_with(compiler, &source(name), &compiled.0, args);
        compiled
    }

    /// A library that tells ours that attach is present.
    fn attach_marker() -> Self {
        Self::new("attach_marker", &["-shared", "-fPIC"])
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a program to its end, with a time limit.
fn finish(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let start = Instant::now();
    while child.try_wait().expect("own child").is_none() {
        if start.elapsed() > LIMIT {
            child.kill().expect("own child");
            let output = child.wait_with_output().expect("own child");
            panic!("{command:?} hangs\n{}", describe(&output));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("own child")
}

fn describe(output: &Output) -> String {
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn transcript(command: &mut Command) -> String {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}: {}", describe(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn with_our_library(program: &Compiled) -> Command {
    let mut command = Command::new(&program.0);
    command.env("LD_LIBRARY_PATH", common::our_library());
    command
}

fn over_the_kernel(program: &Compiled) -> String {
    transcript(with_our_library(program).env("LD_PRELOAD", &Compiled::attach_marker().0))
}

fn over_the_engine_command(program: &Compiled) -> Command {
    let mut command = with_our_library(program);
    command.env("BLOCK_IO_URING", "1");
    command
}

fn over_the_engine(program: &Compiled) -> String {
    transcript(&mut over_the_engine_command(program))
}

/// Whether the kernel makes rings for this user.
fn kernel_has_rings() -> bool {
    let has_rings = finish(&mut Command::new(&Compiled::new("kernel_has_io_uring", &[]).0)).status.success();
    if !has_rings {
        eprintln!("this kernel has no io_uring for this user: nothing to compare with");
    }
    has_rings
}

/// The transcript of the distribution's library over the kernel; `None` if the kernel has no rings.
fn reference(program: &Compiled) -> Option<String> {
    kernel_has_rings().then(|| transcript(&mut Command::new(&program.0)))
}

macro_rules! programs {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use super::*;

            fn program() -> Compiled {
                Compiled::new(stringify!($name), &["-luring", "-lpthread"])
            }

            #[test]
            fn over_kernel() {
                let program = program();
                if let Some(reference) = reference(&program) {
                    assert_eq!(super::over_the_kernel(&program), reference);
                }
            }

            #[test]
            fn over_engine() {
                let program = program();
                let over_engine = super::over_the_engine(&program);
                if let Some(reference) = reference(&program) {
                    assert_eq!(over_engine, reference);
                }
            }
        })*
    };
}

programs!(basics, files, waits, rings, buffers, polls, inline_reap, forks, identity, closed_numbers);

/// Programs that use functions which the distribution's library may lack: they have no reference.
macro_rules! newer_programs {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use super::*;

            fn program() -> Compiled {
                Compiled::new(stringify!($name), &[&format!("-L{}", common::our_library().display()), "-luring"])
            }

            #[test]
            fn over_kernel() {
                if kernel_has_rings() {
                    super::over_the_kernel(&program());
                }
            }

            #[test]
            fn over_engine() {
                let run = finish(&mut over_the_engine_command(&program()));
                let gap = ENGINE_GAPS.iter().find(|(name, _)| *name == stringify!($name));
                match gap {
                    None => assert!(run.status.success(), "{}", describe(&run)),
                    Some((name, why)) => assert!(!run.status.success(), "{name} works: \"{why}\" is no gap any more, remove it"),
                }
            }
        })*
    };
}

/// Functions that the engine is known to lack, each with the program that shows it. None at
/// present.
const ENGINE_GAPS: &[(&str, &str)] = &[];

newer_programs!(newer_functions, closed_ring_fd);

/// `URINGLET=kernel`: the library makes the kernel's calls; transcripts are the reference's.
#[test]
fn kernel_is_used_if_it_is_chosen() {
    for name in ["basics", "files", "waits", "rings", "buffers", "polls", "forks"] {
        let program = Compiled::new(name, &["-luring", "-lpthread"]);
        if let Some(reference) = reference(&program) {
            assert_eq!(transcript(with_our_library(&program).env("URINGLET", "kernel")), reference, "{name}");
        }
    }
    let output = finish(over_the_engine_command(&Compiled::new("basics", &["-luring"])).env("URINGLET", "kernel"));
    assert_eq!(output.status.signal(), Some(SIGSYS), "{}", describe(&output));
}

/// `URINGLET=when-blocked`: the kernel's ring where it works, else the engine, a filter that kills
/// included.
#[test]
fn kernel_is_used_where_it_works() {
    let (program, filter) = (Compiled::new("whose_ring", &["-luring"]), Compiled::new("forbid_io_uring", &[]));
    let when_blocked = |command: &mut Command| transcript(command.env("URINGLET", "when-blocked"));
    let free = if kernel_has_rings() { "kernel\n" } else { "engine\n" };
    assert_eq!(when_blocked(&mut with_our_library(&program)), free);
    let mut blocked = Command::new(&filter.0);
    blocked.arg(&program.0).env("LD_LIBRARY_PATH", common::our_library());
    assert_eq!(when_blocked(&mut blocked), "engine\n");
    assert_eq!(transcript(&mut with_our_library(&program)), "engine\n");
}

#[test]
fn a_wrong_backend_is_ignored_in_one_line() {
    let output = finish(with_our_library(&Compiled::new("whose_ring", &["-luring"])).env("URINGLET", "none"));
    assert_eq!(output.stdout, b"engine\n");
    let line = "uringlet: ignored: URINGLET=none (not kernel, engine, when-blocked); see docs/environment.md\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), line);
}

/// If attach is present, the library's own engine is not used: forbidden system calls are fatal
/// then.
#[test]
fn attached_program_makes_system_calls() {
    let (program, marker) = (Compiled::new("basics", &["-luring"]), Compiled::attach_marker());
    let output = finish(with_our_library(&program).env("LD_PRELOAD", &marker.0).env("BLOCK_IO_URING", "1"));
    assert_eq!(output.status.signal(), Some(SIGSYS), "{}", describe(&output));
}

/// The same programs over another libc.
#[test]
fn musl_over_engine() {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        eprintln!("skipped: musl-gcc is not installed (package musl-tools)");
        return;
    }
    // liburing's and the kernel's headers are in the other compiler's directories; musl's own come
    // first.
    let multiarch = format!("/usr/include/{}", common::stdout(common::cc().arg("-print-multiarch")).trim());
    let ours = format!("-L{}", common::our_library().display());
    for name in ["basics", "files", "waits", "buffers", "polls", "inline_reap", "forks"] {
        let args = ["-w", "-idirafter", "/usr/include", "-idirafter", &multiarch, &ours, "-luring", "-lpthread"];
        over_the_engine(&Compiled::with(Command::new("musl-gcc"), name, &args));
    }
}

/// QEMU's block layer, as the distribution built it: reads and writes 16 at a time, woken by a poll
/// of the ring's fd.
#[test]
fn qemu_img_over_engine() {
    if Command::new("qemu-img").arg("--version").output().is_err() {
        eprintln!("skipped: qemu-img is not installed (package qemu-utils)");
        return;
    }
    let (forbid, disk) = (Compiled::new("forbid_io_uring", &[]), Compiled(common::scratch().join(format!("disk-{}", std::process::id()))));
    std::fs::write(&disk.0, vec![0x5a; 8 << 20]).expect("scratch");
    let bench = |kind: &[&str]| {
        let mut command = Command::new(&forbid.0);
        command.args(["qemu-img", "bench", "-f", "raw", "-i", "io_uring", "-t", "writeback", "-c", "2000", "-d", "16", "-s", "4096"]);
        command.args(kind).arg(&disk.0);
        command
    };
    let theirs = finish(&mut bench(&[]));
    assert!(!theirs.status.success(), "io_uring calls of the distribution's library are not forbidden: {}", describe(&theirs));
    for kind in [["-o", "0"], ["-w", "--pattern=165"]] {
        transcript(bench(&kind).env("LD_LIBRARY_PATH", common::our_library()));
    }
    assert!(std::fs::read(&disk.0).expect("scratch").iter().take(2000 * 4096).all(|byte| *byte == 165), "written bytes are missing");
}
