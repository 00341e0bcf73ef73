//! The block device: filesystems, fio, a killed server.

use super::server::{self, BlockProcess};
use crate::programs::program_cases::ProgramCases;
use anyhow::ensure;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A device number that nothing else uses.
const NUMBER: u32 = 4_000_000;
/// Longest cleanup on a healthy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Makes a filesystem, fills, checks, trims and checks it again; `$1` the node, `$2` a directory,
/// `$3` the type.
const FILESYSTEM: &str = r#"
mkfs.$3 $(test $3 = ext4 && echo -q || echo "-q -f") "$1"
mkdir -p "$2"
mount "$1" "$2"
trap 'umount "$2"' EXIT
cp -r /usr/share/doc "$2/doc" 2>/dev/null || cp -r /etc "$2/doc"
dd if=/dev/urandom of="$2/random" bs=1M count=40 conv=fsync status=none
sums() { (cd "$2" && find . -type f -print0 | sort -z | xargs -0 sha1sum | sha1sum); }
before=$(sums "$@")
rm -r "$2/doc"
cp "$2/random" "$2/again"
rm "$2/again"
fstrim "$2"
one=$(sums "$@")
umount "$2"
case $3 in
ext4) e2fsck -fn "$1" ;;
xfs) xfs_repair -n "$1" ;;
esac
mount "$1" "$2"
two=$(sums "$@")
test "$one" = "$two"
test "$before" != "$two"
"#;

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    if let Some(why) = missing() {
        cases.skip("block device", &why);
        return Ok(());
    }
    let program = server::build("block_ram")?;
    let block_process = BlockProcess::start(&program, NUMBER)?;
    for kind in ["ext4", "xfs"] {
        cases.case(&format!("{kind}: mkfs, mount, copy, fstrim, fsck"), |cases| {
            cases.run_outside(&["sh", "-euc", FILESYSTEM, "sh", &block_process.node, "mnt", kind])?.ok().map(drop)
        });
    }
    cases.case("fio verify, direct", |cases| fio(cases, &block_process.node));
    cases.case("blkdiscard, then zeroes", |cases| discard(cases, &block_process.node));
    cases.case("terminated, the node goes", |_| block_process.end("TERM"));
    cases.case("killed under a mounted ext4: EIO, unmounted, nothing left", |cases| killed_under_mount(cases, &program));
    Ok(())
}

pub(super) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    let absent = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|path| std::fs::File::options().read(true).open(path).is_err());
    absent.map(|path| format!("cannot open {path}"))
}

fn fio(cases: &ProgramCases, node: &str) -> anyhow::Result<()> {
    let filename = format!("--filename={node}");
    let common = ["fio", "--name=verify", &filename, "--direct=1", "--ioengine=libaio", "--rw=randrw", "--bsrange=512-1m"];
    let verify = ["--iodepth=16", "--size=64M", "--verify=crc32c", "--verify_fatal=1", "--end_fsync=1", "--allow_mounted_write=0"];
    cases.run_outside(&[&common[..], &verify].concat())?.ok().map(drop)
}

fn discard(cases: &ProgramCases, node: &str) -> anyhow::Result<()> {
    let script = r#"
dd if=/dev/urandom of="$1" bs=1M count=8 oflag=direct status=none
blkdiscard -o 1048576 -l 2097152 "$1"
blkdiscard -z -o 4194304 -l 1048576 "$1"
head -c 2097152 /dev/zero >zeroes
dd if="$1" bs=1M skip=1 count=2 iflag=direct status=none | cmp - zeroes
dd if="$1" bs=1M skip=4 count=1 iflag=direct status=none | cmp -n 1048576 - zeroes
! dd if="$1" bs=1M count=1 iflag=direct status=none | cmp -s -n 1048576 - zeroes
"#;
    cases.run_outside(&["sh", "-euc", script, "sh", node])?.ok().map(drop)
}

fn killed_under_mount(cases: &ProgramCases, program: &Path) -> anyhow::Result<()> {
    let block_process = BlockProcess::start(program, NUMBER + 1)?;
    let node = block_process.node.clone();
    let prepare = r#"mkfs.ext4 -q "$1" && mkdir -p mnt && mount "$1" mnt && dd if=/dev/zero of=mnt/file bs=1M count=20 status=none"#;
    cases.run_outside(&["sh", "-euc", prepare, "sh", &node])?.ok()?;
    let number = rustix::fs::minor(std::fs::metadata(&node)?.rdev());
    let bound = format!("/sys/block/loop{number}/loop");
    ensure!(Path::new(&bound).exists(), "there is no {bound}");
    block_process.end("KILL")?;
    // Dirty data is lost, and no write waits for the device.
    let after = r#"! dd if=/dev/zero of=mnt/more bs=1M count=8 conv=fsync status=none; umount mnt"#;
    cases.run_outside(&["sh", "-uc", after])?.ok()?;
    let start = Instant::now();
    while Path::new(&bound).exists() {
        ensure!(start.elapsed() < TIMEOUT, "the loop device is still bound");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
