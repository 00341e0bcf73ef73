//! `xtask fsx`: random file operations through the ring, in each mode of the engine, on the
//! kernel's ring, on other filesystems.
//!
//! The program is `conformance/fsx`; on the engine it runs under a filter that kills at a real
//! io_uring call.

use crate::test_counts::TestCounts;
use crate::{apt, build, modes, paths, stream};
use anyhow::{Context, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask fsx [--ops N] [--seed N] [--mode MODE]... [--native] [--jobs N] [--dir DIR]

Plays N operations (10,000,000), a share of them in each mode (adaptive, uringlet, workers); short shares on the kernel's ring and, as root, on xfs and btrfs
in loop images. Hours with --ops 1000000000.
  --mode MODE   only this mode, only on the checkout's filesystem; again for more modes
  --native      only the kernel's ring: do the checks themselves hold?
  --dir DIR     where the files are (the build directory)
  --seed N, --jobs N   as `cargo run -p fsx -- --help` says";

/// The modes of `uringlet run`, and each mode's percentage of the operations, by its speed.
const MODES: &[(&str, u64)] = &[("adaptive", 70), ("uringlet", 15), ("workers", 15)];
/// Percentage of the operations for each mode on a loop image, and for the kernel's ring.
const SHORT_SHARE: u64 = 1;
/// Filesystems: name, package, and the command that makes one.
const IMAGES: &[(&str, &str, &[&str])] = &[("xfs", "xfsprogs", &["mkfs.xfs", "-q"]), ("btrfs", "btrfs-progs", &["mkfs.btrfs", "-q"])];
const IMAGE_BYTES: u64 = 512 << 20;
/// Exit status of fsx if it gets no ring.
const NO_RING: i32 = 77;

#[derive(Debug)]
struct FsxOptions {
    ops: u64,
    modes: Vec<&'static str>,
    is_native: bool,
    dir: PathBuf,
    /// Further arguments for fsx.
    rest: Vec<OsString>,
}

/// The programs that are run.
#[derive(Debug)]
struct FsxPrograms {
    fsx: PathBuf,
    uringlet: Option<PathBuf>,
}

/// Runs all shares, or the wanted ones.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let Some(args) = parse(args)? else {
        println!("{USAGE}");
        return Ok(TestCounts::default());
    };
    crate::stream::sh("cargo", &["build", "--release", "--quiet", "-p", "fsx"])?;
    let uringlet = if args.is_native { None } else { Some(build::uringlet()?) };
    let programs = FsxPrograms { fsx: paths::target().join("release/fsx"), uringlet };
    let mut counts = TestCounts::default();
    if args.is_native {
        return play(&args, &programs, None, &[], args.ops);
    }
    let wanted = |mode: &str| args.modes.is_empty() || args.modes.contains(&mode);
    let total: u64 = MODES.iter().filter(|(mode, _)| wanted(mode)).map(|(_, share)| share).sum();
    for (mode, share) in MODES.iter().filter(|(mode, _)| wanted(mode)) {
        counts.add(play(&args, &programs, Some(mode), &[], args.ops * share / total)?);
    }
    if args.modes.is_empty() {
        let ops = args.ops * SHORT_SHARE / 100;
        counts.add(play(&args, &programs, None, &[], ops)?);
        for image in IMAGES {
            counts.add(on_image(&args, &programs, image, ops)?);
        }
    }
    println!("{counts}");
    Ok(counts)
}

fn parse(args: Vec<OsString>) -> anyhow::Result<Option<FsxOptions>> {
    use lexopt::prelude::*;
    let mut parsed = FsxOptions { ops: 10_000_000, modes: Vec::new(), is_native: false, dir: paths::target(), rest: Vec::new() };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("ops") => parsed.ops = parser.value()?.parse()?,
            Long("mode") => parsed.modes.push(modes::named(MODES, &parser.value()?.string()?, USAGE)?),
            Long("native") => parsed.is_native = true,
            Long("dir") => parsed.dir = parser.value()?.into(),
            Long("seed") => parsed.rest.extend(["--seed".into(), parser.value()?]),
            Long("jobs") => parsed.rest.extend(["--jobs".into(), parser.value()?]),
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    ensure!(!parsed.is_native || parsed.modes.is_empty(), "--native and --mode exclude each other");
    Ok(Some(parsed))
}

/// Runs one share in a mode of the engine, or on the kernel's ring; `launcher` may change its
/// folder.
fn play(args: &FsxOptions, programs: &FsxPrograms, mode: Option<&str>, launcher: &[OsString], ops: u64) -> anyhow::Result<TestCounts> {
    let (words, dir): (Vec<OsString>, _) = match launcher {
        [] => (vec![], args.dir.canonicalize().with_context(|| format!("finding {}", args.dir.display()))?),
        launcher => (launcher.to_vec(), PathBuf::from(".")),
    };
    let mut words = words;
    // Not `self`: that would be the launcher when it is used.
    words.extend([format!("/proc/{}/exe", std::process::id()), "sandbox".to_owned()].map(OsString::from));
    if let (Some(mode), Some(uringlet)) = (mode, &programs.uringlet) {
        words.extend(["--kill".into(), "--".into(), uringlet.into(), "run".into(), format!("--mode={mode}").into()]);
    }
    words.extend(["--".into(), programs.fsx.clone().into(), "--ops".into(), ops.to_string().into(), "--dir".into(), dir.into()]);
    words.extend(args.rest.iter().cloned());
    let name = mode.map_or("the kernel's ring".to_owned(), |mode| format!("mode {mode}"));
    let name = if launcher.is_empty() { name } else { format!("{name}, in a loop image") };
    println!("fsx: {name}");
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let finished = stream::run(command, |_| ())?;
    match finished.code() {
        Some(0) => Ok(TestCounts::PASSED),
        Some(NO_RING) if mode.is_none() => {
            println!("fsx: skipped: this kernel gives no ring");
            Ok(TestCounts { skipped: 1, ..TestCounts::default() })
        }
        _ => {
            println!("fsx: failed: {words:?}");
            Ok(TestCounts::failure(finished.failure(&name)))
        }
    }
}

/// Runs all modes on another filesystem, each with its own share.
fn on_image(args: &FsxOptions, programs: &FsxPrograms, image: &(&str, &str, &[&str]), ops: u64) -> anyhow::Result<TestCounts> {
    let (name, package, mkfs) = image;
    println!("fsx: on {name}");
    let skipped = |why: &str| {
        println!("fsx: skipped: {name}: {why}");
        Ok(TestCounts { skipped: 1, ..TestCounts::default() })
    };
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can mount an image");
    }
    apt::ensure_installed(&[package])?;
    let place = paths::cache().join("work").join(format!("fsx-{name}"));
    paths::fresh_dir(&place)?;
    let (file, folder) = (place.join("image"), place.join("mounted"));
    fs::create_dir(&folder)?;
    let mut counts = TestCounts::default();
    for mode in MODES.iter().map(|(mode, _)| Some(*mode)).chain([None]) {
        make_image(&file, mkfs)?;
        let launcher = mounted(&file, &folder);
        let (probe, args_of_probe) = launcher.split_first().context("a launcher has words")?;
        if !Command::new(probe).args(args_of_probe).arg("true").status().is_ok_and(|status| status.success()) {
            return skipped("it cannot be mounted here");
        }
        counts.add(play(args, programs, mode, &launcher, ops)?);
    }
    fs::remove_dir_all(place)?;
    Ok(counts)
}

fn make_image(file: &Path, mkfs: &[&str]) -> anyhow::Result<()> {
    let _ = fs::remove_file(file);
    fs::File::create(file)?.set_len(IMAGE_BYTES)?;
    let done = Command::new(mkfs[0]).args(&mkfs[1..]).arg(file).output().with_context(|| format!("starting {}", mkfs[0]))?;
    ensure!(done.status.success(), "{} ended with {}: {}", mkfs[0], done.status, String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// A launcher that runs a command inside the image. It mounts the image in its own mount namespace,
/// so nothing stays mounted however the command ends.
fn mounted(file: &Path, folder: &Path) -> Vec<OsString> {
    let script = "mount -o loop \"$1\" \"$2\" && cd \"$2\" && shift 2 && exec \"$@\"";
    let words = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"].map(OsString::from);
    words.into_iter().chain([file.into(), folder.into()]).collect()
}
