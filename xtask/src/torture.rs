//! `xtask torture`: threads of changing identities on one pool of files, on the engine in each mode
//! and on the kernel's ring.
//!
//! The program is `conformance/torture`; on the engine it runs under a filter that kills at a real
//! io_uring call.

use crate::test_counts::TestCounts;
use crate::{build, modes, paths, stream};
use anyhow::{Context, bail, ensure};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask torture [--minutes N] [--seed N] [--lives N] [--mode MODE]... [--native] [--jobs N] [--dir DIR]

Runs processes whose threads change identities, fork, close, replace numbers and cancel, for N minutes
(1), a share of them in each mode (adaptive, uringlet, workers) and on the kernel's ring. Each access is
compared with a plain one by the same thread; each byte and each CQE is accounted for.
  --mode MODE   only this mode; again for more modes
  --native      only the kernel's ring: do the checks themselves hold?
  --dir DIR     where the files are (the directory for temporary files); all users must reach it
  --seed N, --lives N, --jobs N   as `cargo run -p torture -- --help` says";

/// The modes of `uringlet run`, and each mode's percentage of the time; the rest is the kernel's.
const MODES: &[(&str, f64)] = &[("adaptive", 55.0), ("uringlet", 20.0), ("workers", 15.0)];
const NATIVE_SHARE: f64 = 10.0;
/// Exit status of the program if it gets no ring.
const NO_RING: i32 = 77;

#[derive(Debug)]
struct TortureOptions {
    minutes: f64,
    modes: Vec<&'static str>,
    is_native: bool,
    dir: PathBuf,
    /// Further arguments for the program.
    rest: Vec<OsString>,
}

/// Runs all shares, or the wanted ones.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let Some(options) = parse(args)? else {
        println!("{USAGE}");
        return Ok(TestCounts::default());
    };
    stream::sh("cargo", &["build", "--release", "--quiet", "-p", "torture"])?;
    let program = paths::target().join("release/torture");
    let uringlet = if options.is_native { None } else { Some(build::uringlet()?) };
    let wanted = |mode: &str| options.modes.is_empty() || options.modes.contains(&mode);
    let modes: Vec<_> = MODES.iter().filter(|(mode, _)| uringlet.is_some() && wanted(mode)).collect();
    let native = if options.modes.is_empty() { NATIVE_SHARE } else { 0.0 };
    let total = native + modes.iter().map(|(_, share)| share).sum::<f64>();
    let mut counts = TestCounts::default();
    for (mode, share) in modes {
        counts.add(play(&options, &program, uringlet.as_deref().map(|uringlet| (uringlet, *mode)), share / total)?);
    }
    if native > 0.0 {
        counts.add(play(&options, &program, None, native / total)?);
    }
    println!("{counts}");
    Ok(counts)
}

fn parse(args: Vec<OsString>) -> anyhow::Result<Option<TortureOptions>> {
    use lexopt::prelude::*;
    let mut parsed = TortureOptions { minutes: 1.0, modes: Vec::new(), is_native: false, dir: std::env::temp_dir(), rest: Vec::new() };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("minutes") => parsed.minutes = parser.value()?.parse()?,
            Long("mode") => parsed.modes.push(modes::named(MODES, &parser.value()?.string()?, USAGE)?),
            Long("native") => parsed.is_native = true,
            Long("dir") => parsed.dir = parser.value()?.into(),
            Long("seed") => parsed.rest.extend(["--seed".into(), parser.value()?]),
            Long("lives") => parsed.rest.extend(["--lives".into(), parser.value()?]),
            Long("jobs") => parsed.rest.extend(["--jobs".into(), parser.value()?]),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    ensure!(!parsed.is_native || parsed.modes.is_empty(), "--native and --mode exclude each other");
    Ok(Some(parsed))
}

/// A directory that all users can reach, removed at the end.
fn scratch(options: &TortureOptions) -> anyhow::Result<PathBuf> {
    let dir = options.dir.join(format!("torture-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// Runs one share, in a mode of the engine or on the kernel's ring.
fn play(options: &TortureOptions, program: &Path, on: Option<(&Path, &str)>, share: f64) -> anyhow::Result<TestCounts> {
    let dir = scratch(options)?;
    // By its link: a stage before may have built the program anew, so that its name is of another.
    let mut command = Command::new("/proc/self/exe");
    command.arg("sandbox");
    if let Some((uringlet, mode)) = on {
        command.args(["--kill", "--"]).arg(uringlet).args(["run", &format!("--mode={mode}")]);
    }
    command.arg("--").arg(program).args(["--minutes", &format!("{:.3}", options.minutes * share), "--dir"]).arg(&dir).args(&options.rest);
    let name = on.map_or("the kernel's ring".to_owned(), |(_, mode)| format!("mode {mode}"));
    println!("torture: {name}");
    let finished = stream::run(command, |_| ())?;
    let counts = match finished.code() {
        Some(0) => TestCounts::PASSED,
        Some(NO_RING) if on.is_none() => {
            println!("torture: skipped: this kernel gives no ring");
            TestCounts { skipped: 1, ..TestCounts::default() }
        }
        _ => TestCounts::failure(finished.failure(&name)),
    };
    if counts.is_good() {
        fs::remove_dir_all(&dir)?;
    } else {
        println!("torture: the files are in {}", dir.display());
    }
    Ok(counts)
}
