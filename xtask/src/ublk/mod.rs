//! `xtask ublk`: clients that nobody here wrote, on the front ends of ublk devices.

mod nbd;
mod server;

use crate::apt;
use crate::programs::stage::Stage;
use crate::tally::Tally;
use anyhow::bail;
use std::ffi::OsString;

const USAGE: &str = "\
usage: cargo xtask ublk

Runs nbdinfo, nbdcopy, nbdsh, qemu-img, qemu-io and fio on the NBD server; installs what is missing by package name (as root).";

const PACKAGES: &[&str] = &["libnbd-bin", "python3-libnbd", "qemu-utils", "fio"];

/// Runs all and counts.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<Tally> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(args);
    if let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(Tally::default());
            }
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    apt::ensure_installed(PACKAGES)?;
    println!("with {}", apt::versions(PACKAGES)?.join(", "));
    let mut stage = Stage::new("nbd", None)?;
    nbd::check(&mut stage)?;
    let tally = stage.finish()?;
    println!("{tally}");
    Ok(tally)
}
