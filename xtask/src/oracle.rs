//! `xtask oracle`: asks the real `ublk_drv`, in a virtual machine, for the answers that our driver
//! is tested against.
//!
//! QEMU boots Debian's kernel (emulated, so KVM is not needed) with busybox, the driver's module
//! and the probe of crates/cli/tests. Its output is compared with the file that the test uses.

use crate::job::{self, Ending, Job};
use crate::test_counts::{Failure, TestCounts};
use crate::{apt, paths};
use anyhow::{Context, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const USAGE: &str = "\
usage: cargo xtask oracle [--update]

Boots Debian's Linux 6.12 in QEMU, runs crates/cli/tests/c/ublk_probe.c on its ublk_drv, and compares the answers with ublk_probe.expected beside it.
  --update   write that file anew";

const PACKAGES: &[&str] = &["build-essential", "qemu-system-x86", "busybox-static", "cpio", "xz-utils"];
/// The unsigned kernel image; it is only unpacked.
const KERNEL: &str = "^linux-image-6[.]12[.].*-cloud-amd64-unsigned$";
const MODULE: &str = "kernel/drivers/block/ublk_drv.ko.xz";
/// Emulation takes seconds on an idle machine, minutes on a busy one.
const LIMIT: Duration = Duration::from_secs(600);
const BEGIN: &str = "PROBE BEGINS";
const END: &str = "PROBE ENDS ";

const INIT: &str = "\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox insmod /ublk_drv.ko
echo 1 > /proc/sys/kernel/printk
echo PROBE BEGINS
/probe
echo PROBE ENDS $?
/bin/busybox poweroff -f
";

/// Compares the answers, or writes them to the file.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    use lexopt::prelude::*;
    let mut updates = false;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(TestCounts::default());
            }
            Long("update") => updates = true,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    if let Err(error) = apt::ensure_installed(PACKAGES) {
        println!("skipped: {error:#}");
        return Ok(TestCounts { skipped: 1, ..TestCounts::default() });
    }
    let answers = ask(&paths::cache().join("oracle"))?;
    let file = paths::root().join("crates/cli/tests/c/ublk_probe.expected");
    if updates {
        fs::write(&file, &answers).with_context(|| format!("writing {}", file.display()))?;
    }
    let expected = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    Ok(compare(&answers, &expected))
}

/// One case a line.
fn compare(answers: &str, expected: &str) -> TestCounts {
    let mut counts = TestCounts::default();
    let (answers, expected): (Vec<_>, Vec<_>) = (answers.lines().collect(), expected.lines().collect());
    for line in 0..answers.len().max(expected.len()) {
        let (answer, expected) = (answers.get(line).copied(), expected.get(line).copied());
        counts.add(if answer == expected {
            TestCounts::PASSED
        } else {
            let what = format!("line {}", line + 1);
            TestCounts::failure(Failure::new(
                what,
                "another answer",
                &format!("{}\nexpected:\n{}", answer.unwrap_or(""), expected.unwrap_or("")),
            ))
        });
    }
    counts.failures.iter().for_each(|failure| println!("{}: {}", failure.item, failure.output.join(" | ")));
    println!("ublk_drv: {counts}");
    counts
}

/// The probe's output on the real driver.
fn ask(cache: &Path) -> anyhow::Result<String> {
    let kernel = cache.join("kernel");
    if find(&kernel.join("boot"), "vmlinuz-").is_err() {
        apt::unpack_newest(KERNEL, &kernel)?;
    }
    let image = find(&kernel.join("boot"), "vmlinuz-")?;
    let modules = find(&kernel.join("lib/modules"), "6.12")?;
    let initrd = pack(cache, &modules.join(MODULE))?;
    let log = cache.join("console.log");
    let mut argv: Vec<OsString> =
        ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "512", "-nographic", "-no-reboot"]
            .map(OsString::from)
            .to_vec();
    argv.extend(["-kernel".into(), image.into(), "-initrd".into(), initrd.into()]);
    argv.extend(["-append".into(), "console=ttyS0 quiet loglevel=1 panic=-1".into()]);
    println!("booting it");
    let outcome = job::run(&Job { argv, env: vec![], cwd: cache.to_path_buf(), log: log.clone(), timeout: LIMIT })?;
    let console = String::from_utf8_lossy(&fs::read(&log)?).replace('\r', "");
    ensure!(outcome.ending == Ending::Exited(0), "the machine ended otherwise than by itself ({:?}): {}", outcome.ending, log.display());
    between(&console).with_context(|| format!("the probe did not come to its end: {}", log.display()))
}

/// The probe's output, if it succeeded.
fn between(console: &str) -> Option<String> {
    let (_, rest) = console.split_once(&format!("{BEGIN}\n"))?;
    let (answers, end) = rest.split_once(END)?;
    end.starts_with("0\n").then(|| answers.to_owned())
}

/// The entry of a folder whose name has this prefix.
fn find(dir: &Path, prefix: &str) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(dir).with_context(|| format!("looking into {}", dir.display()))?;
    let found = entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    Ok(found.with_context(|| format!("no {prefix}* in {}", dir.display()))?.path())
}

/// The initial file system: init, busybox, the module, the probe.
fn pack(cache: &Path, module: &Path) -> anyhow::Result<PathBuf> {
    let root = cache.join("root");
    paths::fresh_dir(&root)?;
    for dir in ["bin", "dev", "proc"] {
        fs::create_dir(root.join(dir))?;
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).context("busybox-static has no /bin/busybox")?;
    fs::write(root.join("init"), INIT)?;
    let source = paths::root().join("crates/cli/tests/c/ublk_probe.c");
    let script = format!(
        "set -e; chmod +x init; xz -dc '{}' > ublk_drv.ko; cc -static -O2 -D_GNU_SOURCE -w -pthread -o probe '{}'; find . | cpio -o -H newc --quiet > ../initrd",
        module.display(),
        source.display()
    );
    let out = Command::new("sh").args(["-c", &script]).current_dir(&root).output().context("starting sh")?;
    ensure!(out.status.success(), "packing the initial file system: {}", String::from_utf8_lossy(&out.stderr));
    Ok(cache.join("initrd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_is_found_on_the_console() {
        let console = "BIOS\nPROBE BEGINS\n# a\nEND => 1\nPROBE ENDS 0\n[ 1.0] down\n";
        assert_eq!(between(console).as_deref(), Some("# a\nEND => 1\n"));
        assert_eq!(between(&console.replace("ENDS 0", "ENDS 1")), None);
        assert_eq!(between("PROBE BEGINS\n# a\n"), None);
    }

    #[test]
    fn each_line_is_a_case() {
        assert_eq!(compare("a\nb\n", "a\nb\n").passed, 2);
        let counts = compare("a\nb\nc\n", "a\nx\n");
        assert_eq!((counts.passed, counts.failed), (1, 2));
    }
}
