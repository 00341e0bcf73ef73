//! Sanitizers, valgrind and gdb beside the engine: programs that use rings give no false report and
//! their own errors are found. `docs/debugging.md` says how to use them.

mod common;

use common::{compile, directory, finish, oracle, stderr, stdout, uringlet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const BASE: [&str; 9] =
    ["-nx", "-q", "-batch", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", "-ex", "set breakpoint pending on"];

/// The exit status of valgrind if it has reported an error.
const REPORTED: i32 = 9;

/// A compiler, how it is asked for a sanitizer, and a program's own error that this one finds.
struct Sanitizer {
    compiler: &'static str,
    options: &'static [&'static str],
    error: &'static str,
    report: &'static str,
    /// It does not see what a ring writes, the kernel's neither: buffers are initialised first.
    needs_initialised_buffers: bool,
}

const SANITIZERS: [Sanitizer; 11] = [
    Sanitizer::new("gcc", &["-fsanitize=address"], "overflow", "heap-buffer-overflow"),
    Sanitizer::new("gcc", &["-fsanitize=address", "-static-libasan"], "lost", "detected memory leaks"),
    Sanitizer::new("clang", &["-fsanitize=address"], "overflow", "heap-buffer-overflow"),
    Sanitizer::new("clang", &["-fsanitize=address", "-shared-libasan"], "lost", "detected memory leaks"),
    Sanitizer::new("gcc", &["-fsanitize=thread"], "race", "data race"),
    Sanitizer::new("gcc", &["-fsanitize=thread", "-static-libtsan"], "race", "data race"),
    Sanitizer::new("clang", &["-fsanitize=thread"], "race", "data race"),
    Sanitizer::new("gcc", &["-fsanitize=undefined"], "signed", "signed integer overflow"),
    Sanitizer::new("gcc", &["-fsanitize=undefined", "-static-libubsan"], "signed", "signed integer overflow"),
    Sanitizer::new("clang", &["-fsanitize=undefined"], "signed", "signed integer overflow"),
    Sanitizer {
        needs_initialised_buffers: true,
        ..Sanitizer::new("clang", &["-fsanitize=memory"], "undefined", "use-of-uninitialized-value")
    },
];

impl Sanitizer {
    const fn new(compiler: &'static str, options: &'static [&'static str], error: &'static str, report: &'static str) -> Self {
        Self { compiler, options, error, report, needs_initialised_buffers: false }
    }

    fn name(&self) -> String {
        format!("{}{}", self.compiler, self.options.concat())
    }

    /// Compiles a program; `None` where the compiler has no such runtime, or it does not even start
    /// by itself.
    fn build(&self, directory: &Path, source: &str, further: &[&str]) -> Option<PathBuf> {
        let nothing = directory.join("nothing.c");
        std::fs::write(&nothing, "int main(void) { return 0; }").expect("a source file");
        let probe = directory.join("nothing");
        let compiled = Command::new(self.compiler).args(self.options).arg("-o").arg(&probe).arg(&nothing).output();
        let is_there = compiled.is_ok_and(|output| output.status.success()) && self.on(Command::new(&probe)).status.success();
        if !is_there {
            eprintln!("skipped: no program starts with {}", self.name());
            return None;
        }
        let options: Vec<&str> = self.options.iter().chain(further).copied().chain(["-g"]).collect();
        Some(compile(self.compiler, directory, "program", &[source], &options))
    }

    /// Runs a program where the dynamic linker finds the compiler's own libraries.
    fn on(&self, mut command: Command) -> Output {
        let search = Command::new(self.compiler).arg("-print-file-name=libclang_rt.asan-x86_64.so").output().expect("the compiler");
        let library = PathBuf::from(stdout(&search).trim());
        finish(command.env("LD_LIBRARY_PATH", library.parent().expect("a file's name")))
    }

    /// Runs the program on the kernel's ring, and attached, where the kernel's ring kills.
    fn compare(&self, program: &Path, arguments: &[&str], judge: impl Fn(&Output, &str)) {
        let directory = program.parent().expect("a directory");
        let mut plain = Command::new(program);
        plain.args(arguments).current_dir(directory);
        let kernel = self.on(plain);
        if oracle::has_ring(&kernel) {
            judge(&kernel, &format!("{} on the kernel's ring {arguments:?}", self.name()));
        }
        let mut attached = uringlet(&directory.join("cache"));
        attached.arg(program).args(arguments).env("BLOCK_IO_URING", "1").current_dir(directory);
        judge(&self.on(attached), &format!("{} attached {arguments:?}", self.name()));
    }
}

fn is_quiet(output: &Output, what: &str) {
    oracle::must_succeed(output, what);
    assert_eq!(stderr(output), "", "{what} reports");
}

#[test]
fn a_sanitizer_reports_nothing_of_a_ring() {
    for sanitizer in &SANITIZERS {
        let directory = directory(&format!("tools-{}", sanitizer.name()));
        let Some(program) = sanitizer.build(&directory, "tools_memory.c", &[]) else { continue };
        let fill: &[&str] = if sanitizer.needs_initialised_buffers { &["fill"] } else { &[] };
        sanitizer.compare(&program, fill, is_quiet);
        sanitizer.compare(&program, &["fill", sanitizer.error], |output, what| {
            assert!(stderr(output).contains(sanitizer.report), "{what} does not report: {}\n{}", output.status, stderr(output));
        });
    }
}

#[test]
fn a_sanitizer_reports_nothing_of_liburing() {
    let directory = directory("tools-liburing");
    let probe = Command::new("cc").args(["-luring", "-shared", "-o"]).arg(directory.join("probe.so")).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: the package liburing-dev is not installed");
    }
    for sanitizer in &SANITIZERS {
        let directory = directory.join(sanitizer.name());
        std::fs::create_dir_all(&directory).expect("a directory");
        let Some(program) = sanitizer.build(&directory, "tools_liburing.c", &["-luring"]) else { continue };
        sanitizer.compare(&program, &[], is_quiet);
    }
}

/// A program that is started by an attached one, with an environment of its own.
#[test]
fn a_child_with_a_shared_address_sanitizer_starts() {
    let directory = directory("tools-child");
    let Some(program) = SANITIZERS[0].build(&directory, "tools_memory.c", &[]) else { return };
    let script = format!("env -i BLOCK_IO_URING=1 {}", program.display());
    let child = finish(uringlet(&directory.join("cache")).args(["sh", "-c", &script]).current_dir(&directory));
    is_quiet(&child, "a child of a shell");
}

/// Runs an attached program under a tool of valgrind's.
fn valgrind(program: &Path, options: &[&str], arguments: &[&str]) -> Output {
    let directory = program.parent().expect("a directory");
    let mut command = uringlet(&directory.join("cache"));
    command.args(["valgrind", "--quiet", "--leak-check=full"]).arg(format!("--error-exitcode={REPORTED}")).args(options);
    finish(command.arg(program).args(arguments).env("BLOCK_IO_URING", "1").current_dir(directory))
}

/// A plain program; `None` where valgrind runs none.
fn for_valgrind(test: &str, sources: &[&str], options: &[&str]) -> Option<PathBuf> {
    let runs = Command::new("valgrind").args(["--quiet", "true"]).output();
    if !runs.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: valgrind (a package of that name) runs no program here");
        return None;
    }
    let directory = directory(test);
    Some(compile("cc", &directory, "program", sources, &[&["-g"], options].concat()))
}

#[test]
fn memcheck_reports_nothing_of_a_ring() {
    let Some(program) = for_valgrind("tools-memcheck", &["tools_memory.c"], &[]) else { return };
    is_quiet(&valgrind(&program, &[], &[]), "memcheck");
}

#[test]
fn memcheck_reports_errors_of_the_program() {
    let Some(program) = for_valgrind("tools-memcheck-errors", &["tools_memory.c"], &[]) else { return };
    let errors = [
        ("overflow", "Invalid read"),
        ("undefined", "uninitialised"),
        ("lost", "definitely lost"),
        // These the kernel's ring hides.
        ("freed-read", "points to unaddressable"),
        ("freed-write", "points to unaddressable"),
    ];
    for (error, report) in errors {
        let output = valgrind(&program, &[], &[error]);
        assert_eq!(output.status.code(), Some(REPORTED), "{error}: {}", stderr(&output));
        assert!(stderr(&output).contains(report), "{error}: {}", stderr(&output));
    }
}

/// Rewritten call sites, in the program's libraries and in one that is loaded later.
#[test]
fn memcheck_reports_nothing_of_rewritten_sites() {
    let Some(program) = for_valgrind("tools-memcheck-sites", &["later.c"], &[]) else { return };
    let directory = program.parent().expect("a directory");
    let library = compile("cc", directory, "liblater.so", &["liblater.c"], &["-shared", "-fPIC"]);
    let output = valgrind(&program, &[], &[library.to_str().expect("UTF-8")]);
    is_quiet(&output, "memcheck");
    assert_eq!(stdout(&output), "engine\n");
}

/// Runs gdb, attached, with these commands on a program; `None` where gdb debugs none.
fn gdb(commands: &[&str], program: &Path, arguments: &[&str]) -> Option<String> {
    let run = |gdb: &mut Command, commands: &[&str]| {
        let commands = commands.iter().flat_map(|command| ["-ex", command]);
        finish(gdb.args(BASE).args(commands).arg("--args").arg(program).args(arguments))
    };
    let plain = Command::new("gdb").arg("--version").output().map(|_| run(&mut Command::new("gdb"), &["starti", "kill"]));
    if !plain.is_ok_and(|output| stdout(&output).contains("stopped")) {
        eprintln!("skipped: gdb (a package of that name) starts no program here");
        return None;
    }
    let cache = program.with_extension("cache");
    let output = run(uringlet(&cache).arg("gdb").env("BLOCK_IO_URING", "1"), commands);
    Some(stdout(&output) + &stderr(&output))
}

fn contains_all(text: &str, wanted: &[&str]) {
    let missing: Vec<_> = wanted.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in:\n{text}");
}

/// A process that waits in the engine is attached to, and stays as it was.
#[test]
fn gdb_shows_the_programs_frames_through_an_engine_stack() {
    let directory = directory("tools-gdb");
    let program = compile("cc", &directory, "waiter", &["tools_waiter.c"], &["-g"]);
    if gdb(&["starti", "kill"], &program, &[]).is_none() {
        return;
    }
    let mut waiter = uringlet(&directory.join("cache"));
    waiter.arg(&program).arg("20000").env("BLOCK_IO_URING", "1").stdout(Stdio::piped());
    let mut waiter = waiter.spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(waiter.stdout.as_mut().expect("piped")).read_line(&mut line).expect("its output");
    std::thread::sleep(Duration::from_millis(500));
    let pid = waiter.id().to_string();
    let shown = finish(Command::new("gdb").args(BASE).args(["-p", &pid, "-ex", "backtrace", "-ex", "info threads"]));
    let is_alive = waiter.try_wait().is_ok_and(|status| status.is_none());
    waiter.kill().and_then(|()| waiter.wait()).expect("its end");
    if stderr(&shown).contains("Operation not permitted") {
        return eprintln!("skipped: this process may not attach to another");
    }
    contains_all(&stdout(&shown), &["uringlet_attach::dispatch::dispatch", "waits_in_the_engine", "main (", "* 1"]);
    assert!(is_alive, "it has ended: {line}");
}

#[test]
fn gdb_follows_a_child_that_uses_the_ring() {
    let directory = directory("tools-gdb-fork");
    let program = compile("cc", &directory, "waiter", &["tools_waiter.c"], &["-g"]);
    let commands = ["set follow-fork-mode child", "break in_the_child", "run", "backtrace", "continue"];
    let Some(shown) = gdb(&commands, &program, &["fork"]) else { return };
    contains_all(&shown, &["in_the_child", "main", "exited normally"]);
}

/// gdb keeps a breakpoint in the function of the dynamic linker that the engine uses, too.
#[test]
fn a_library_that_is_loaded_under_gdb_is_rewritten() {
    let directory = directory("tools-gdb-later");
    let program = compile("cc", &directory, "later", &["later.c"], &["-g"]);
    let library = compile("cc", &directory, "liblater.so", &["liblater.c"], &["-shared", "-fPIC"]);
    let Some(shown) = gdb(&["run"], &program, &[library.to_str().expect("UTF-8")]) else { return };
    contains_all(&shown, &["engine\n", "exited normally"]);
}

/// The program and its core are all that gdb needs: the core says where a static PIE was.
#[test]
fn the_core_of_a_static_program_has_its_frames() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        eprintln!("skipped: cores go elsewhere than into the folder: {pattern}");
        return;
    }
    for options in [["-static", "-g", "-O0"], ["-static-pie", "-g", "-O0"]] {
        let directory = directory(&format!("tools-core{}", options[0]));
        let program = compile("cc", &directory, "tools_core", &["tools_core.c"], &options);
        let cache = directory.join("cache");
        let output = finish(uringlet(&cache).arg("--").arg(&program).current_dir(&directory));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6), "{}", stderr(&output));
        let core = std::fs::read_dir(&directory).expect("the folder").flatten().map(|entry| entry.path());
        let core = core.into_iter().find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core")));
        let Some(core) = core else {
            eprintln!("skipped: a limit allows no core here");
            return;
        };
        let frames = Command::new("gdb").args(BASE).args(["-ex", "bt"]).arg(&program).arg(core).output();
        let Ok(frames) = frames else {
            eprintln!("skipped: there is no gdb (a package of that name)");
            return;
        };
        let frames = stdout(&frames);
        assert!(frames.contains("fails (depth=3)") && frames.contains("main () at"), "{frames}");
    }
}
