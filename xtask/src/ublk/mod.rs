//! `xtask ublk`: independent clients and servers on ublk devices.

mod block;
mod broker;
mod nbd;
mod rublk;
mod server;

use crate::apt;
use crate::programs::program_cases::ProgramCases;
use crate::test_counts::TestCounts;
use anyhow::{bail, ensure};
use std::ffi::OsString;

const USAGE: &str = "\
usage: cargo xtask ublk [nbd] [block] [broker]
       cargo xtask ublk rublk

Runs nbdinfo, nbdcopy, nbdsh, qemu-img, qemu-io and fio on the NBD server, and filesystems and fio on the block device (as root,
with FUSE and loop devices), kills servers and the broker under them; or, which takes
long to build, runs rublk, its tests and those of libublk on the broker. Installs what is missing by package name (as root).";

/// Slow.
const SLOW: &str = "rublk";

/// A front end: its name, its packages, and its checks.
type FrontEndTests = (&'static str, &'static [&'static str], fn(&mut ProgramCases) -> anyhow::Result<()>);

const FRONT_ENDS: &[FrontEndTests] = &[
    ("nbd", &["libnbd-bin", "python3-libnbd", "qemu-utils", "fio"], nbd::check),
    ("block", &["e2fsprogs", "xfsprogs", "fio", "util-linux", "mount"], block::check),
    ("broker", &["libnbd-bin", "python3-libnbd", "qemu-utils", "e2fsprogs", "xfsprogs", "fio", "util-linux", "mount"], broker::check),
    // Only on request. Its build needs libclang.
    ("rublk", &["libclang-dev", "e2fsprogs", "util-linux", "mount"], rublk::check),
];

/// Runs the selected checks.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    use lexopt::prelude::*;
    let mut names = Vec::new();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(TestCounts::default());
            }
            Value(name) => names.push(name.string()?),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    for name in &names {
        ensure!(FRONT_ENDS.iter().any(|(known, ..)| known == name), "there is no front end `{name}`\n{USAGE}");
    }
    let mut counts = TestCounts::default();
    for (name, packages, check) in
        FRONT_ENDS.iter().filter(|(name, ..)| (names.is_empty() && *name != SLOW) || names.iter().any(|wanted| wanted == name))
    {
        let mut cases = ProgramCases::new(name, None)?;
        match apt::ensure_installed(packages) {
            Ok(()) => {
                println!("{name} with {}", apt::versions(packages)?.join(", "));
                check(&mut cases)?;
            }
            // Only root can install packages.
            Err(error) if !rustix::process::geteuid().is_root() => cases.skip("all of it", &format!("{error:#}")),
            Err(error) => return Err(error),
        }
        counts.add(cases.finish()?);
    }
    println!("{counts}");
    Ok(counts)
}
