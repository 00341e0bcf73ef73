//! Tasks of the repository. `cargo xtask help` lists them.
#![forbid(unsafe_code)]

mod apt;
mod build;
mod ci;
mod conformance;
mod containers;
mod count;
mod deb;
mod debian_root;
mod demo;
mod docs;
mod fio;
mod fsx;
mod fuzz;
mod harmless;
mod job;
mod libtest;
mod lint;
mod modes;
mod oracle;
mod paths;
mod postgres;
mod programs;
mod publish;
mod report;
mod rust_target;
mod sandbox;
mod stream;
mod test_counts;
mod tidy;
mod torture;
mod ublk;

use std::ffi::OsString;
use std::process::ExitCode;
use test_counts::TestCounts;

/// A task: its name, its one-line help, and the function that takes the arguments after the name.
type Task = (&'static str, &'static str, fn(Vec<OsString>) -> anyhow::Result<TestCounts>);

const TASKS: &[Task] = &[
    ("ci", "everything that must hold before a change lands", ci::main),
    ("build", "the release, as `make install` takes it", build::main),
    ("deb", "the Debian package and a tarball, tried in fresh roots", deb::main),
    ("publish", "the crates that programs use, verified as crates.io gets them", publish::main),
    ("tidy", "style as a test: lengths, unsafe, layers, circles, names, prose", tidy::main),
    ("lint", "clippy without a warning, and no more casts than listed", lint::main),
    ("sandbox", "run a program where io_uring is blocked", sandbox::main),
    ("loom", "the engine's protocols, model-checked", |_| ci::loom()),
    ("shuttle", "whole pools, in orders picked at random", |_| ci::shuttle()),
    ("conformance", "liburing's own tests on the engine, compared with the manifest", conformance::main),
    ("programs", "fio, QEMU and others on the engine, inside the sandbox", programs::main),
    ("containers", "programs on the engine in OCI containers, with the filters of Docker and podman", containers::main),
    ("harmless", "programs under `uringlet run` do what they do without it", harmless::main),
    ("fsx", "random file operations in each mode, each byte checked", fsx::main),
    ("fuzz", "random SQEs, calls and overwritten rings, for a time", fuzz::main),
    ("torture", "threads of changing identities on one pool of files, each access and byte checked", torture::main),
    ("count", "instructions of the hottest calls, compared with those recorded", count::main),
    ("ublk", "other people's clients on the front ends of ublk devices", ublk::main),
    ("oracle", "ublk_drv in a virtual machine: does it still answer as our driver is tested to?", oracle::main),
    ("docs", "the documents as a book, its links and commands checked", docs::main),
    ("demo", "fio and PostgreSQL where io_uring is blocked: without uringlet, with it, and how fast", demo::main),
];

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let name = args.next().unwrap_or_default();
    let Some((_, _, task)) = TASKS.iter().find(|(known, _, _)| name == *known) else {
        return help(&name);
    };
    match task(args.collect()) {
        Ok(counts) if counts.is_good() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask {}: {error:#}", name.display());
            ExitCode::FAILURE
        }
    }
}

fn help(asked: &OsString) -> ExitCode {
    let wanted = asked.is_empty() || asked == "help" || asked == "--help" || asked == "-h";
    let mut text = String::new();
    if !wanted {
        text += &format!("xtask: there is no task `{}`\n", asked.display());
    }
    text += "usage: cargo xtask TASK [--help | ARGS]\n\n";
    for (name, about, _) in TASKS {
        text += &format!("  {name:<12} {about}\n");
    }
    if wanted {
        print!("{text}");
        ExitCode::SUCCESS
    } else {
        eprint!("{text}");
        ExitCode::from(2)
    }
}
