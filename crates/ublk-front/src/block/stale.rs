//! Remains of a killed process.
//!
//! Usually there are none: the guard removes the node, and the kernel unbinds the loop device with
//! its last user. But a mounted filesystem is such a user, and a guard may be killed too.
//!
//! The backing file of such a loop device has no path: it is the root of a filesystem that is
//! mounted nowhere. Its process is dead if the kernel finds no FUSE server to ask for the file's
//! attributes.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat};
use rustix::mount::UnmountFlags;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;
use uringlet_sys::{Errno, loop_device};

pub(super) const LOOP_MAJOR: u32 = 7;
/// A process that does not answer for this long is stopped, and counts as alive.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The owner of a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopOwner {
    /// No process, or a foreign one.
    Foreign,
    Alive,
    Dead,
}

/// The owner of `device`, loop device `number`.
fn owner(number: u32, device: &OwnedFd) -> LoopOwner {
    let file = std::fs::read(format!("/sys/block/loop{number}/loop/backing_file")).unwrap_or_default();
    if file != b"/\n" {
        return LoopOwner::Foreign;
    }
    let Ok(asked) = rustix::io::dup(device) else { return LoopOwner::Foreign };
    let (sender, answer) = channel();
    let asking = std::thread::Builder::new().name("ublk-stale".into()).spawn(move || {
        // An error means that the receiver's time-out expired.
        let _ = sender.send(loop_device::is_answered(asked.as_raw_fd()));
    });
    match asking.ok().and_then(|_| answer.recv_timeout(PROBE_TIMEOUT).ok()) {
        Some(Err(Errno::ENOTCONN)) => LoopOwner::Dead,
        Some(Err(_)) => LoopOwner::Foreign,
        Some(Ok(())) | None => LoopOwner::Alive,
    }
}

/// Whether a loop device's node belongs to a live process.
pub(super) fn is_alive(node: &Path) -> bool {
    let Ok(device) = rustix::fs::open(node, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return false };
    rustix::fs::fstat(&device).is_ok_and(|stat| owner(rustix::fs::minor(stat.st_rdev), &device) == LoopOwner::Alive)
}

/// See [`super::BlockFrontEnd::clean`].
pub(super) fn clean(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let bound = entries.filter(|entry| entry.path().join("loop").exists());
    let numbers = bound.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok());
    let mut done: Vec<String> = numbers.filter_map(|number| clean_one(dir, number)).collect();
    // Without a guard a node stays, and may later name a foreign loop device.
    let is_left = |node: &PathBuf| is_loop(node) && !is_alive(node) && std::fs::remove_file(node).is_ok();
    done.extend(nodes(dir).filter(is_left).map(|node| format!("{} is removed: its process was killed", node.display())));
    done
}

pub(super) fn is_loop(node: &Path) -> bool {
    std::fs::symlink_metadata(node).is_ok_and(|found| found.file_type().is_block_device() && rustix::fs::major(found.rdev()) == LOOP_MAJOR)
}

fn clean_one(dir: &Path, number: u32) -> Option<String> {
    let rdev = makedev(LOOP_MAJOR, number);
    let device = open(dir, number, rdev).filter(|device| owner(number, device) == LoopOwner::Dead)?;
    let nodes = nodes_of(dir, rdev);
    let mut done = Vec::new();
    // A guard may have removed the node already.
    let is_node = |source: &Path| {
        let is_node_name = source.parent() == Some(dir) && is_node_name(source.file_name());
        is_node_name && (nodes.iter().any(|node| node == source) || std::fs::symlink_metadata(source).is_err())
    };
    for mount_point in mounts_of(&mounts(), rdev, is_node) {
        if rustix::mount::unmount(&mount_point, UnmountFlags::DETACH).is_ok() {
            done.push(format!("{} is unmounted", mount_point.display()));
        }
    }
    for node in nodes {
        if std::fs::remove_file(&node).is_ok() {
            done.push(format!("{} is removed", node.display()));
        }
    }
    // It unbinds itself with its last user, which the mount may have been.
    let _ = loop_device::unbind(device.as_raw_fd());
    done.push(format!("loop device {number} is unbound"));
    Some(format!("cleaned up after a killed process: {}", done.join(", ")))
}

/// Opens a loop device through a temporary node, as it may have no other.
fn open(dir: &Path, number: u32, rdev: u64) -> Option<OwnedFd> {
    let node = dir.join(format!("ublk-loop{number}.{}", std::process::id()));
    mknodat(CWD, &node, FileType::BlockDevice, Mode::from_raw_mode(0o600), rdev).ok()?;
    let opened = rustix::fs::open(&node, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let _ = std::fs::remove_file(&node);
    opened.ok()
}

/// This front end's nodes of a loop device.
fn nodes_of(dir: &Path, rdev: u64) -> Vec<PathBuf> {
    nodes(dir).filter(|path| is_loop(path) && std::fs::symlink_metadata(path).is_ok_and(|found| found.rdev() == rdev)).collect()
}

/// All files with the name of a node.
fn nodes(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| is_node_name(Some(&entry.file_name()))).map(|entry| entry.path())
}

/// Not nodes under construction, whose names continue after the number.
fn is_node_name(name: Option<&OsStr>) -> bool {
    let digits = name.and_then(|name| name.as_bytes().strip_prefix(b"ublkb"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

fn mounts() -> Vec<u8> {
    std::fs::read("/proc/self/mountinfo").unwrap_or_default()
}

/// Whether a filesystem on the device is mounted in this mount namespace.
pub(super) fn is_mounted(rdev: u64, node: &Path) -> bool {
    !mounts_of(&mounts(), rdev, |source| source == node).is_empty()
}

/// Where a device is mounted, the latest mount first. Filesystems with device numbers of their own
/// (btrfs) are found by their source.
fn mounts_of(mountinfo: &[u8], rdev: u64, is_node: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let number = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let mut mount_points = Vec::new();
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        // After a number of optional fields: a dash, the filesystem's type, its source.
        let dash = fields.iter().position(|field| *field == b"-");
        let source = dash.and_then(|dash| fields.get(dash + 2));
        let (Some(device), Some(mount_point), Some(source)) = (fields.get(2), fields.get(4), source) else { continue };
        if *device == number.as_bytes() || (device.starts_with(b"0:") && is_node(Path::new(OsStr::from_bytes(source)))) {
            mount_points.push(PathBuf::from(std::ffi::OsString::from_vec(unescaped(mount_point))));
        }
    }
    mount_points.reverse();
    mount_points
}

/// Decodes mountinfo's escapes: a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) => {
                bytes.push(digits.iter().fold(0_u8, |byte, digit| byte.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_device_number_and_by_source() {
        let info = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            30 22 7:3 / /mnt/a\\040b rw shared:5 master:1 - ext4 /dev/other rw\n\
            31 30 0:44 /sub /mnt/c rw - btrfs /dev/ublkb5 rw\n\
            32 22 7:33 / /mnt/d rw - ext4 /dev/ublkb5 rw\nrubbish";
        let found = mounts_of(info, makedev(7, 3), |source| source == Path::new("/dev/ublkb5"));
        assert_eq!(found, [Path::new("/mnt/c"), Path::new("/mnt/a b")]);
        assert_eq!(unescaped(b"\\134\\9 x\\01"), b"\\\\9 x\\01");
    }
}
