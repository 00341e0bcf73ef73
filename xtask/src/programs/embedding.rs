//! Programs that embed the crate `uringlet` (`conformance/embedding`), where the kernel's ring is
//! blocked and nothing starts them but themselves.

use super::program_cases::{ALL_WELL, Isolation, ProgramCases};
use crate::rust_target::{self, MUSL};
use crate::{build, paths, stream};
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is built: a package, one of its programs, and its features.
pub(super) type EmbeddingProgram = (&'static str, &'static str, &'static str);

const RING: EmbeddingProgram = ("embedding-ring", "embedding-ring", "");
const BEFORE_MAIN: EmbeddingProgram = ("embedding-before-main", "embedding-before-main", "");
const TOKIO_URING: EmbeddingProgram = ("embedding-runtimes", "tokio-uring", "tokio-uring");
const OTHER_RUNTIMES: [EmbeddingProgram; 4] = [
    ("embedding-runtimes", "monoio", "monoio"),
    ("embedding-runtimes", "compio", "compio"),
    ("embedding-runtimes", "glommio", "glommio"),
    ("embedding-runtimes", "rustix", "rustix"),
];

/// The crate, and what is run on each change.
pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let object = object(cases)?;
    check_ring(cases, "", &compile(RING, &object, &[])?);
    match rust_target::ensure(MUSL) {
        Ok(()) => check_ring(cases, "musl: ", &compile(RING, &object, &["--target", MUSL])?),
        Err(why) => cases.skip("linked statically with musl", &format!("{why:#}")),
    }
    let program = compile(BEFORE_MAIN, &object, &[])?;
    prints(cases, "before main", &[&program], ALL_WELL);
    let program = compile(TOKIO_URING, &object, &[])?;
    needs_init(cases, "tokio-uring", &program);
    Ok(())
}

/// The other runtimes.
pub(super) fn check_runtimes(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let object = object(cases)?;
    for runtime in OTHER_RUNTIMES {
        let program = compile(runtime, &object, &[])?;
        needs_init(cases, runtime.1, &program);
    }
    Ok(())
}

/// The crate's own build of the object, as a user's program has it.
pub(super) fn check_own_build(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let program = compile(BEFORE_MAIN, Path::new(""), &[])?;
    prints(cases, "the object is built with the program", &[&program], ALL_WELL);
    Ok(())
}

/// The object of this release.
pub(super) fn object(cases: &ProgramCases) -> anyhow::Result<PathBuf> {
    let release = paths::target().join("release/uringlet");
    build::embedded_object(cases.uringlet().unwrap_or(&release))
}

/// Builds a program that embeds `object` and returns its path. An empty path: the crate builds it.
pub(super) fn compile((package, program, features): EmbeddingProgram, object: &Path, options: &[&str]) -> anyhow::Result<String> {
    let built = &[&["--package", package, "--bin", program, "--features", features], options].concat();
    let target = options.last().copied().unwrap_or_default();
    build_in_workspace(built, object, &Path::new(target).join("release").join(program))
}

/// Builds one of the workspace's libraries: `file` is its name. Returns its path.
pub(super) fn compile_library(package: &str, file: &str, object: &Path) -> anyhow::Result<String> {
    build_in_workspace(&["--package", package, "--lib"], object, &Path::new("release").join(file))
}

fn build_in_workspace(options: &[&str], object: &Path, product: &Path) -> anyhow::Result<String> {
    let folder = paths::cache().join("embedding");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--quiet"]).args(options);
    cargo.arg("--target-dir").arg(&folder).arg("--manifest-path");
    cargo.arg(paths::root().join("conformance/embedding/Cargo.toml")).env(build::OBJECT, object);
    let built = stream::run(cargo, |_| ())?;
    ensure!(built.is_good(), "{} does not build:\n{}", product.display(), built.output());
    folder.join(product).to_str().map(str::to_owned).context("the cache's path is not UTF-8")
}

/// A program that prints [`ALL_WELL`] with its ring, and fails if it is left to the kernel.
fn needs_init(cases: &mut ProgramCases, what: &str, program: &str) {
    for &isolation in cases.isolations() {
        cases.needs_uringlet(isolation, &["env", "URINGLET=kernel", program]);
    }
    prints(cases, what, &[program], ALL_WELL);
}

/// The output of a program that runs without `uringlet run`.
pub(super) fn prints(cases: &mut ProgramCases, what: &str, argv: &[&str], expected: &str) {
    for &isolation in cases.isolations() {
        let expected = if cases.is_native() { expected.replace("Engine: engine", "Kernel: kernel") } else { expected.to_owned() };
        cases.case(&format!("{} {what}", isolation.option()), |cases| {
            let output = cases.run_bare(isolation, argv)?.ok()?;
            ensure!(output.trim_end().ends_with(&expected), "{output}");
            Ok(())
        });
    }
}

fn check_ring(cases: &mut ProgramCases, kind: &str, program: &str) {
    let mut run = |what: &str, arguments: &[&str], expected: &str| {
        let argv = [&[program], arguments].concat();
        prints(cases, &format!("{kind}{what}"), &argv, expected);
    };
    run("a ring of the io-uring crate, with mimalloc", &[], "Engine: engine");
    run("init twice", &["twice"], "Engine: engine");
    run("all descriptors closed before init", &["close-first"], "Engine: engine");
    run("the program executes itself, all descriptors closed", &["exec"], "Engine: engine");
    run("a child", &["child", program], "Engine: engine\nchild: exit status: 0");
    run("a script's children", &["child", "sh", "-c", "exec \"$0\"", program], "Engine: engine\nchild: exit status: 0");
    run("a child that inherits no descriptor", &["child-of-closed", program], "Engine: engine\nchild: exit status: 0");
    run("a child whose descriptors are closed by execve", &["child-close-on-exec", program], "Engine: engine\nchild: exit status: 0");
    let python = ["child", "/usr/bin/python3", "-c", "import subprocess, sys; subprocess.run(sys.argv[1:], check=True)", program];
    run("a child of Python's subprocess, which closes all descriptors", &python, "Engine: engine\nchild: exit status: 0");
    let twice = format!("import subprocess; [subprocess.run(['{program}'], close_fds=True, check=True) for _ in range(3)]");
    run("three of them", &["child", "/usr/bin/python3", "-c", &twice], "Engine: engine\nEngine: engine\nchild: exit status: 0");
    let spawn = "import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_CLOSE, n) for n in range(3, 1024)]); sys.exit(os.waitpid(pid, 0)[1])";
    run(
        "a child of posix_spawn that closes them",
        &["child", "/usr/bin/python3", "-c", spawn, program],
        "Engine: engine\nchild: exit status: 0",
    );
    if cases.is_native() {
        return;
    }
    for &isolation in cases.isolations() {
        cases.case(&format!("{} {kind}init with threads: an error, and the program goes on", isolation.option()), |cases| {
            let output = cases.run_bare(isolation, &[program, "threads"])?.ok()?;
            ensure!(output.contains("error: other threads run already"), "{output}");
            Ok(())
        });
    }
    cases.case(&format!("{kind}exit status and panics"), |cases| {
        for (mode, status) in [("exit", 7), ("panic", 101)] {
            let ran = cases.run_bare(Isolation::Docker, &[program, mode])?;
            ensure!(ran.ending == crate::job::Ending::Exited(status), "{mode}: {:?}\n{}", ran.ending, ran.tail());
        }
        Ok(())
    });
    cases.case(&format!("{kind}name, arguments, environment, descriptors are as without"), |cases| sees_itself(cases, program));
}

/// The same answers where the ring works and where it is blocked.
fn sees_itself(cases: &ProgramCases, program: &str) -> anyhow::Result<()> {
    let script = format!("STARTED=$$ exec -a other {program} self \"$(printf 'a\\377b')\" '' 'c d' 5</dev/null");
    let argv = ["bash", "-c", &script];
    let answers = |output: String| {
        output.lines().filter(|line| !line.ends_with(": engine") && !line.ends_with(": kernel")).collect::<Vec<_>>().join("\n")
    };
    let plain = answers(cases.run_outside(&argv)?.ok()?);
    let blocked = answers(cases.run_bare(Isolation::Docker, &argv)?.ok()?);
    ensure!(plain.lines().count() == 6, "it says:\n{plain}");
    ensure!(plain == blocked, "plain:\n{plain}\nblocked:\n{blocked}");
    Ok(())
}
