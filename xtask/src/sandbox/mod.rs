//! `xtask sandbox`: runs a program where the kernel's io_uring cannot be reached.
//!
//! Two filters:
//! - `--docker` is the environment of our users: io_uring and many other calls answer EPERM.
//! - `--kill` blocks io_uring only: the first real call kills with SIGSYS, so a program that
//!   survives used no kernel ring.
//!
//! Filters and dropped rights are inherited over fork and exec and cannot be undone, so they hold
//! for whole process trees.

pub(crate) mod docker;
mod filter;
mod privilege;

use crate::test_counts::TestCounts;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask sandbox [--docker | --kill] [--uid N] [--die-with-parent] -- PROGRAM ARGS

  --docker           the filter and the capabilities of a Docker container: io_uring_* answer EPERM
  --kill             a real io_uring_* call kills the process (SIGSYS), all else is allowed
  --uid N            run as user and group N, with no other groups (needs root)
  --die-with-parent  SIGKILL the program when the thread that started the sandbox ends

With neither filter the program runs unfiltered. Exit status: the program's; 126 or 127 when it cannot be run or found.";

/// The system calls that are blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SandboxFilter {
    None,
    Docker,
    Kill,
}

#[derive(Debug)]
struct SandboxOptions {
    filter: SandboxFilter,
    uid: Option<u32>,
    die_with_parent: bool,
    program: OsString,
    args: Vec<OsString>,
}

/// Becomes the sandboxed program. If it cannot be run, exits as a shell would.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let Some(options) = parse(args)? else {
        println!("{USAGE}");
        return Ok(TestCounts::default());
    };
    // Privileges are dropped first: a stricter filter might not allow it.
    if options.filter == SandboxFilter::Docker && rustix::process::geteuid().is_root() {
        privilege::keep_docker_capabilities().context("dropping the capabilities that a container lacks")?;
    }
    if let Some(uid) = options.uid {
        privilege::become_user(uid).with_context(|| format!("becoming user {uid} (this needs root)"))?;
    }
    if options.die_with_parent {
        // After the change of user: the kernel clears the death signal when credentials change.
        privilege::die_with_parent()?;
    }
    match options.filter {
        SandboxFilter::None => {}
        SandboxFilter::Docker => docker::filters()?.iter().try_for_each(filter::install)?,
        SandboxFilter::Kill => filter::install(&filter::killing_io_uring()?)?,
    }
    let error = Command::new(&options.program).args(&options.args).exec();
    eprintln!("xtask sandbox: cannot run {}: {error}", options.program.display());
    std::process::exit(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

fn parse(args: Vec<OsString>) -> anyhow::Result<Option<SandboxOptions>> {
    use lexopt::prelude::*;
    let mut filter = SandboxFilter::None;
    let mut uid = None;
    let mut die_with_parent = false;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("docker") | Long("kill") if filter != SandboxFilter::None => {
                bail!("--docker and --kill exclude each other")
            }
            Long("docker") => filter = SandboxFilter::Docker,
            Long("kill") => filter = SandboxFilter::Kill,
            Long("uid") => uid = Some(parser.value()?.parse()?),
            Long("die-with-parent") => die_with_parent = true,
            Value(program) => {
                let args = parser.raw_args()?.collect();
                return Ok(Some(SandboxOptions { filter, uid, die_with_parent, program, args }));
            }
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    bail!("no program given\n{USAGE}")
}
