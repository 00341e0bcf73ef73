//! gVisor: programs inside `runsc`, a kernel in user space that has no io_uring and a vDSO, a /proc
//! and a ptrace of its own.

use super::program_cases::{ProgramCases, ProgramRun};
use crate::job::Ending;
use crate::{fio, paths};
use anyhow::{Context, ensure};
use std::path::Path;
use std::process::{Command, Output};

/// gVisor's branch for Go modules has no names for its releases.
const RUNSC: &str = "gvisor.dev/gvisor/runsc@v0.0.0-20260905035102-160fafc42237";
/// Where Go's own packages put it.
const GO: [&str; 2] = ["go", "/usr/local/go/bin/go"];
/// The user that programs run as beside root.
const ORDINARY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

const FIO_JOBS: &[(&str, &[&str])] = &[
    ("buffered, depth 1", &["--iodepth=1"]),
    ("buffered, depth 32", &["--iodepth=32"]),
    ("O_DIRECT, registered files, fixed buffers", &["--registerfiles=1", "--fixedbufs=1", "--direct=1", "--iodepth=32"]),
    ("sqthread_poll", &["--sqthread_poll=1", "--iodepth=32"]),
    ("force_async=4", &["--force_async=4", "--iodepth=32"]),
    ("two processes, fsync=16", &["--numjobs=2", "--fsync=16", "--iodepth=32"]),
];

/// A program of `conformance/gvisor`: how it is built, `-o` and its file apart.
struct BuiltProgram {
    name: &'static str,
    compiler: &'static [&'static str],
    source: &'static str,
    libraries: &'static [&'static str],
}

const fn c(name: &'static str, compiler: &'static [&'static str]) -> BuiltProgram {
    BuiltProgram { name, compiler, source: "ring.c", libraries: &["-luring"] }
}

const fn go(name: &'static str, compiler: &'static [&'static str]) -> BuiltProgram {
    BuiltProgram { name, compiler, source: "ring.go", libraries: &[] }
}

const BUILT: &[BuiltProgram] = &[
    c("c-dynamic", &["cc", "-O2", "-pthread"]),
    c("c-static", &["cc", "-O2", "-pthread", "-static"]),
    c("c-static-pie", &["cc", "-O2", "-pthread", "-static-pie"]),
    go("go", &["go", "build"]),
    go("go-cgo", &["go", "build", "-ldflags=-linkmode=external"]),
];

/// `runsc`, and how programs start inside.
struct Sandbox {
    runsc: String,
    uringlet: String,
}

impl Sandbox {
    /// The command inside. Two descriptors of one file would overwrite each other's output there.
    fn argv<S: AsRef<str>>(&self, command: &[S]) -> Vec<String> {
        let shell = ["bash", "-o", "pipefail", "-c", "\"$0\" \"$@\" 2>&1 | cat"];
        let runsc = [&self.runsc, "--network=none", "--ignore-cgroups", "do"];
        let command = command.iter().map(|word| word.as_ref().to_owned());
        shell.into_iter().chain(runsc).map(str::to_owned).chain(command).collect()
    }

    fn run<S: AsRef<str>>(&self, cases: &ProgramCases, user: &[&str], command: &[S]) -> anyhow::Result<ProgramRun> {
        let attached = [&self.uringlet, "run", "--require", "--"];
        let words = user.iter().copied().chain(attached).chain(command.iter().map(AsRef::as_ref));
        cases.run_outside(&self.argv(&words.collect::<Vec<_>>()))
    }
}

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let mut open = cases.in_public_folder()?;
    match prepare(&open) {
        Ok(sandbox) => check_inside(&mut open, &sandbox)?,
        Err(why) => open.skip("inside runsc", &format!("{why:#}")),
    }
    cases.include(open)
}

/// Builds `runsc` once and starts it.
fn prepare(cases: &ProgramCases) -> anyhow::Result<Sandbox> {
    let uringlet = cases.uringlet().context("gVisor has no ring of its own to compare with")?;
    ensure!(rustix::process::geteuid().is_root(), "runsc is started as root");
    let bin = paths::cache().join("gvisor");
    let runsc = bin.join("runsc");
    if !runsc.exists() {
        println!("building runsc, which takes minutes");
        // The C library's dynamic linker would be missing in runsc's own sandbox.
        finished(Command::new(find_go()?).args(["install", RUNSC]).env("GOBIN", &bin).env("CGO_ENABLED", "0"))?;
    }
    let sandbox = Sandbox { runsc: text(&runsc)?, uringlet: text(uringlet)? };
    let started = cases.run_outside(&sandbox.argv(&["true"]))?;
    ensure!(started.ending == Ending::Exited(0), "runsc does not start here: {}", started.tail());
    Ok(sandbox)
}

fn check_inside(cases: &mut ProgramCases, sandbox: &Sandbox) -> anyhow::Result<()> {
    cases.case("fio without uringlet: fails", |cases| {
        let run = cases.run_outside(&sandbox.argv(&fio::command("io_uring", fio::VERIFIED)))?;
        ensure!(run.output.contains("your kernel doesn't support io_uring"), "it found a ring:\n{}", run.tail());
        Ok(())
    });
    for (who, user) in [("", &[][..]), ("as user, ", &ORDINARY)] {
        for (name, options) in FIO_JOBS {
            let options: Vec<&str> = fio::VERIFIED.iter().chain(*options).copied().collect();
            let argv = fio::command("io_uring", &options);
            cases.case(&format!("fio {who}{name}"), |cases| {
                let report = fio::parse(&sandbox.run(cases, user, &argv)?.ok()?)?;
                ensure!(report.written_kib > 0 && report.read_kib > report.written_kib, "not read back: {report:?}");
                Ok(())
            });
        }
    }
    for program in BUILT {
        check_built(cases, sandbox, program)?;
    }
    Ok(())
}

fn check_built(cases: &mut ProgramCases, sandbox: &Sandbox, program: &BuiltProgram) -> anyhow::Result<()> {
    let built = text(&cases.dir().join(program.name))?;
    if let Err(why) = build(program, &built) {
        cases.skip(program.name, &format!("{why:#}"));
        return Ok(());
    }
    for (who, user) in [("", &[][..]), ("as user, ", &ORDINARY)] {
        cases.case(&format!("{who}{}: files, waits, children", program.name), |cases| {
            let output = sandbox.run(cases, user, &[&built, "/tmp"])?.ok()?;
            ensure!(output.trim().ends_with("all well"), "{output}");
            Ok(())
        });
    }
    Ok(())
}

fn build(program: &BuiltProgram, built: &str) -> anyhow::Result<()> {
    let compiler = if program.compiler[0] == "go" { find_go()? } else { program.compiler[0] };
    let cgo = if program.name == "go" { "0" } else { "1" };
    let mut command = Command::new(compiler);
    command.args(&program.compiler[1..]).args(["-o", built]).env("CGO_ENABLED", cgo);
    command.arg(paths::root().join("conformance/gvisor").join(program.source)).args(program.libraries);
    finished(&mut command).map(drop)
}

/// A Go that works; Debian 12's own is too old for gVisor.
fn find_go() -> anyhow::Result<&'static str> {
    let works = |go: &&&str| Command::new(go).arg("version").output().is_ok_and(|out| out.status.success());
    GO.iter().find(works).copied().context("there is no Go compiler")
}

fn finished(command: &mut Command) -> anyhow::Result<Output> {
    let out = command.output().with_context(|| format!("starting {command:?}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    let last = said.lines().last().unwrap_or_default();
    ensure!(out.status.success(), "{} ended with {}: {last}", command.get_program().display(), out.status);
    Ok(out)
}

fn text(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).context("a path is not UTF-8")
}
