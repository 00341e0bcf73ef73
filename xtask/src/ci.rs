//! `xtask ci`: everything that must hold before a change lands, stage by stage, with counts at the
//! end.

use crate::libtest::tally_of;
use crate::report::{self, StageRow};
use crate::test_counts::{Failure, TestCounts};
use crate::{
    apt, build, conformance, containers, count, deb, docs, fsx, fuzz, harmless, lint, oracle, paths, programs, publish, stream, tidy,
    torture, ublk,
};
use anyhow::bail;
use std::ffi::OsString;
use std::process::Command;
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask ci [--full] [--list] [STAGE...]

Runs all stages, or the named ones, and goes on after a failure. --full adds the slow ones. The end names what
failed, with the last lines of its output. Exit status 0 only if all passed.";

struct CiStage {
    name: &'static str,
    about: &'static str,
    is_slow: bool,
    /// An error counts as one failure.
    run: fn() -> anyhow::Result<TestCounts>,
}

const STAGES: &[CiStage] = &[
    CiStage {
        name: "fmt",
        about: "rustfmt has nothing to change",
        is_slow: false,
        run: || stream::cargo(&["fmt", "--all", "--check"], &[]),
    },
    CiStage { name: "tidy", about: "lengths, unsafe, layers, circles, names, prose", is_slow: false, run: || tidy::main(vec![]) },
    CiStage {
        name: "clippy",
        about: "no warning in any target, and no more casts than listed",
        is_slow: false,
        run: || lint::main(vec![]),
    },
    CiStage { name: "doc", about: "documentation without warnings", is_slow: false, run: doc },
    CiStage { name: "build", about: "the release", is_slow: false, run: || build::main(vec![]) },
    CiStage { name: "deb", about: "the Debian package: contents, lintian", is_slow: false, run: || deb::main(vec![]) },
    CiStage { name: "docs", about: "links and commands of the documents", is_slow: false, run: || docs::main(vec!["--run".into()]) },
    CiStage { name: "count", about: "instructions of the hottest calls", is_slow: false, run: || count::main(vec![]) },
    CiStage { name: "test", about: "unit and integration tests", is_slow: false, run: test },
    CiStage { name: "loom", about: "the engine's protocols, model-checked", is_slow: false, run: loom },
    CiStage { name: "shuttle", about: "whole pools, in orders picked at random", is_slow: false, run: shuttle },
    CiStage { name: "conformance", about: "liburing's own tests", is_slow: false, run: || conformance::main(vec![]) },
    CiStage { name: "programs", about: "other people's programs", is_slow: false, run: || programs::main(vec![]) },
    CiStage { name: "containers", about: "programs in OCI containers", is_slow: false, run: || containers::main(vec![]) },
    CiStage {
        name: "containers-all",
        about: "programs in OCI containers, each way in with each combination of rights",
        is_slow: true,
        run: || containers::main(vec!["--whole".into()]),
    },
    CiStage {
        name: "harmless",
        about: "programs do what they do without uringlet, a few",
        is_slow: false,
        run: || harmless::main(vec!["--short".into()]),
    },
    CiStage { name: "ublk", about: "other people's clients on ublk devices", is_slow: false, run: || ublk::main(vec![]) },
    CiStage { name: "fsx", about: "random file operations, two million", is_slow: false, run: || fsx::main(vec!["--ops=2000000".into()]) },
    CiStage {
        name: "fsx-long",
        about: "random file operations, ten million",
        is_slow: true,
        run: || fsx::main(vec!["--seed=1001".into()]),
    },
    CiStage {
        name: "fuzz",
        about: "random SQEs, calls and overwritten rings, about a minute each; the same ones each time",
        is_slow: false,
        run: || fuzz::main(vec!["--first=1000001".into(), "--cases=8000".into()]),
    },
    CiStage {
        name: "fuzz-long",
        about: "random SQEs, calls and overwritten rings, an hour each",
        is_slow: true,
        run: || fuzz::main(vec!["--minutes=60".into()]),
    },
    CiStage { name: "torture", about: "threads of changing identities, a minute", is_slow: false, run: || torture::main(vec![]) },
    CiStage {
        name: "torture-long",
        about: "threads of changing identities, an hour",
        is_slow: true,
        run: || torture::main(vec!["--minutes=60".into(), "--seed=1000001".into()]),
    },
    CiStage {
        name: "harmless-all",
        about: "programs do what they do without uringlet, all",
        is_slow: true,
        run: || harmless::main(vec![]),
    },
    CiStage {
        name: "deb-roots",
        about: "the Debian package in fresh roots of Debian 12 and testing",
        is_slow: true,
        run: || deb::main(vec!["--only-roots".into()]),
    },
    CiStage { name: "publish", about: "the crates of programs, as crates.io gets them", is_slow: true, run: || publish::main(vec![]) },
    CiStage {
        name: "runtimes",
        about: "monoio, compio, glommio, rustix with the embedded engine; its own build",
        is_slow: true,
        run: || programs::main(vec!["runtimes".into(), "own-build".into()]),
    },
    CiStage {
        name: "programs-named",
        about: "tokio-uring's own tests, Python, counters read by Prometheus' parser, PostgreSQL under power cuts",
        is_slow: true,
        run: || programs::main(vec!["tokio-uring".into(), "python".into(), "openmetrics".into(), "postgres".into()]),
    },
    CiStage {
        name: "newest",
        about: "programs of Debian testing: PostgreSQL 18 with its own tests, MariaDB 11.8, QEMU 11",
        is_slow: true,
        run: || programs::main(vec!["--newest".into()]),
    },
    CiStage { name: "gvisor", about: "programs inside gVisor", is_slow: true, run: || programs::main(vec!["gvisor".into()]) },
    CiStage { name: "rublk", about: "other people's ublk servers", is_slow: true, run: || ublk::main(vec!["rublk".into()]) },
    CiStage { name: "oracle", about: "what the real ublk_drv answers", is_slow: true, run: || oracle::main(vec![]) },
    CiStage {
        name: "conformance-new",
        about: "the tests of Debian testing's liburing",
        is_slow: true,
        run: || conformance::main(vec!["--liburing=2.15".into()]),
    },
    CiStage {
        name: "baseline",
        about: "liburing's tests on the kernel's ring",
        is_slow: true,
        run: || conformance::main(vec!["--native".into()]),
    },
    CiStage {
        name: "baseline-new",
        about: "the tests of Debian testing's liburing on the kernel's ring",
        is_slow: true,
        run: || conformance::main(vec!["--liburing=2.15".into(), "--native".into()]),
    },
];

/// Runs the wanted stages and sums up.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let Some(stages) = parse(args)? else { return Ok(TestCounts::default()) };
    apt::ensure_installed(&["build-essential", "git"])?;
    let begun = Instant::now();
    let mut rows = Vec::new();
    let mut total = TestCounts::default();
    for stage in &stages {
        println!("\n== {}: {}", stage.name, stage.about);
        let started = Instant::now();
        let counts = (stage.run)().unwrap_or_else(|error| {
            let why = format!("{error:#}");
            println!("{why}");
            TestCounts::failure(Failure::new("the stage itself", "could not be done", &why))
        });
        total.add(counts.clone());
        rows.push(StageRow { stage: stage.name, counts, took: started.elapsed() });
    }
    print!("{}", report::render(&rows, begun.elapsed()));
    Ok(total)
}

fn parse(args: Vec<OsString>) -> anyhow::Result<Option<Vec<&'static CiStage>>> {
    use lexopt::prelude::*;
    let mut is_full = false;
    let mut names = Vec::new();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') | Long("list") => {
                println!("{USAGE}\n");
                STAGES.iter().for_each(|s| println!("  {:<14} {}{}", s.name, s.about, if s.is_slow { " (--full)" } else { "" }));
                return Ok(None);
            }
            Long("full") => is_full = true,
            Value(name) => names.push(name.string()?),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    if let Some(unknown) = names.iter().find(|name| STAGES.iter().all(|stage| stage.name != **name)) {
        bail!("there is no stage `{unknown}`\n{USAGE}");
    }
    let is_wanted =
        |stage: &&CiStage| if names.is_empty() { is_full || !stage.is_slow } else { names.iter().any(|name| name == stage.name) };
    Ok(Some(STAGES.iter().filter(is_wanted).collect()))
}

fn doc() -> anyhow::Result<TestCounts> {
    // The crates refuse to be built for unwinding, and rustdoc does not read the profile's panic
    // mode.
    let flags = [("RUSTDOCFLAGS", "-D warnings -C panic=abort")];
    stream::cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"], &flags)
}

/// Packages that tests compare with, compile with and run.
const TEST_PACKAGES: &[&str] =
    &["liburing2", "liburing-dev", "musl-tools", "pkg-config", "fio", "qemu-utils", "xfsprogs", "btrfs-progs", "clang", "gdb", "valgrind"];

/// Runs all tests.
fn test() -> anyhow::Result<TestCounts> {
    apt::ensure_installed(TEST_PACKAGES)?;
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--no-fail-fast"]);
    tally_of(command)
}

/// Runs the models. They are built for a modelled kernel, in a build directory of their own.
pub(crate) fn loom() -> anyhow::Result<TestCounts> {
    models("loom", "--cfg loom", &["-p", "uringlet-sys", "-p", "uringlet-core", "-p", "uringlet-ublk", "model::"])
}

/// Runs the models of pools, and whole pools, in random schedules.
pub(crate) fn shuttle() -> anyhow::Result<TestCounts> {
    models("shuttle", "--cfg loom --cfg shuttle", &["-p", "uringlet-core", "--", "io_wq::model", "uringlet::model"])
}

fn models(folder: &str, flags: &str, args: &[&str]) -> anyhow::Result<TestCounts> {
    let mut command = Command::new("cargo");
    command
        .args(["test", "--release", "--lib"])
        .args(args)
        .env("RUSTFLAGS", flags)
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_TARGET_DIR", paths::target().join(folder));
    tally_of(command)
}
