//! What a process that was killed could not take along.
//!
//! A loop device has a name: there it says whose it is, by process, the time of its start, and its PID namespace. The process is dead
//! if that namespace is ours and nobody in it has that number since that time.
//!
//! Usually nothing is left: the guard removes the node, and the kernel unbinds the loop device with its last user. A mounted
//! filesystem is such a user, and a guard may be killed, too.

use super::disk::LOOP_MAJOR;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat};
use rustix::mount::UnmountFlags;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use uringlet_sys::loop_device;

/// A loop device's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    id: u32,
    pid: u32,
    /// Clock ticks between the machine's start and the process's.
    start: u64,
    /// Its PID namespace's inode.
    namespace: u64,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, pid, start, namespace } = self;
        write!(f, "ublk{id} {pid} {start} {namespace}")
    }
}

impl Label {
    /// Of this process. `None` where /proc does not tell.
    pub(super) fn own(id: u32) -> Option<Self> {
        let pid = std::process::id();
        Some(Self { id, pid, start: start_of(pid)?, namespace: namespace()? })
    }

    fn parse(name: &str) -> Option<Self> {
        let mut words = name.strip_prefix("ublk")?.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (id, pid, start, namespace) = (number()?, number()?, number()?, number()?);
        words.next().is_none().then_some(())?;
        Some(Self { id: id.try_into().ok()?, pid: pid.try_into().ok()?, start, namespace })
    }

    /// Whether its process is known to be dead.
    fn is_dead(self) -> bool {
        namespace() == Some(self.namespace) && start_of(self.pid) != Some(self.start)
    }
}

fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

/// When a process was started. `None`: there is none, or it has ended and waits for its parent to see it.
fn start_of(pid: u32) -> Option<u64> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// State and start of /proc/PID/stat; the name in front of them may have anything in it.
fn parse_stat(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let is_over = matches!(*fields.first()?, "Z" | "X");
    (!is_over).then_some(fields.get(19)?.parse().ok()?)
}

/// The label of a loop device that one of us has bound.
fn label(device: &OwnedFd) -> Option<Label> {
    let (name, len) = loop_device::name(device.as_raw_fd()).ok()?;
    Label::parse(std::str::from_utf8(&name[..len]).ok()?)
}

/// Whether the node is that of a process that lives, or may.
pub(super) fn is_alive(node: &Path) -> bool {
    let opened = rustix::fs::open(node, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.ok().as_ref().and_then(label).is_some_and(|label| !label.is_dead())
}

/// See [`super::BlockFrontEnd::clean`].
pub(super) fn clean(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let bound = entries.filter(|entry| entry.path().join("loop/backing_file").exists());
    let numbers = bound.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok());
    numbers.filter_map(|number| clean_one(dir, number)).collect()
}

fn clean_one(dir: &Path, number: u32) -> Option<String> {
    let rdev = makedev(LOOP_MAJOR, number);
    let device = open(dir, number, rdev)?;
    let label = label(&device).filter(|label| label.is_dead())?;
    let node = dir.join(format!("ublkb{}", label.id));
    let mut done = Vec::new();
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    for place in mounts_of(&mounts, rdev, &node) {
        if rustix::mount::unmount(&place, UnmountFlags::DETACH).is_ok() {
            done.push(format!("{} is unmounted", place.display()));
        }
    }
    // The last user may have gone with the mount.
    let _ = loop_device::unbind(device.as_raw_fd());
    done.push(format!("loop device {number} is free"));
    if std::fs::symlink_metadata(&node).is_ok_and(|found| found.rdev() == rdev) && std::fs::remove_file(&node).is_ok() {
        done.push(format!("{} is removed", node.display()));
    }
    Some(format!("process {} was killed and had device {}: {}", label.pid, label.id, done.join(", ")))
}

/// Opens a loop device through a node of our own: there need not be another.
fn open(dir: &Path, number: u32, rdev: u64) -> Option<OwnedFd> {
    let node = dir.join(format!("ublk-loop{number}.{}", std::process::id()));
    mknodat(CWD, &node, FileType::BlockDevice, Mode::from_raw_mode(0o600), rdev).ok()?;
    let opened = rustix::fs::open(&node, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let _ = std::fs::remove_file(&node);
    opened.ok()
}

/// Where a device is mounted, the latest mount first. Some filesystems (btrfs) have numbers of their own and only say the node.
fn mounts_of(mountinfo: &[u8], rdev: u64, node: &Path) -> Vec<PathBuf> {
    let number = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let mut places = Vec::new();
    for line in mountinfo.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        // Behind a number of optional fields: a dash, the filesystem's type, its source.
        let dash = fields.iter().position(|field| *field == b"-");
        let source = dash.and_then(|dash| fields.get(dash + 2));
        let (Some(device), Some(place), Some(source)) = (fields.get(2), fields.get(4), source) else { continue };
        if *device == number.as_bytes() || (device.starts_with(b"0:") && *source == node.as_os_str().as_bytes()) {
            places.push(PathBuf::from(std::ffi::OsString::from_vec(unescaped(place))));
        }
    }
    places.reverse();
    places
}

/// Blanks and the like stand there as a backslash and three octal digits.
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
    fn a_label_says_whether_its_process_lives() {
        let own = Label::own(7).unwrap();
        assert_eq!(Label::parse(&own.to_string()), Some(own));
        assert!(own.to_string().len() < 64);
        assert!(!own.is_dead());
        assert!(Label { start: own.start + 1, ..own }.is_dead(), "another one has the number now");
        assert!(!Label { start: own.start + 1, namespace: own.namespace + 1, ..own }.is_dead(), "a stranger's");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let started = start_of(child.id());
        child.wait().unwrap();
        assert!(Label { pid: child.id(), start: started.unwrap_or(1), ..own }.is_dead());
        for other in ["", "ublk7", "ublk7 1 2", "ublk7 1 2 3 4", "ublk-1 1 2 3", "image.iso", "ublk99999999999 1 2 3"] {
            assert_eq!(Label::parse(other), None, "{other}");
        }
    }

    #[test]
    fn names_of_processes_may_have_anything_in_them() {
        let numbers = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        assert_eq!(parse_stat(&format!("9 (a) Z (b) S {numbers}")), Some(777));
        assert_eq!(parse_stat(&format!("9 (S) Z {numbers}")), None);
        assert_eq!(parse_stat("9 (S) R 1 2"), None);
    }

    #[test]
    fn mounts_are_found_by_number_and_by_node() {
        let info = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            30 22 7:3 / /mnt/a\\040b rw shared:5 master:1 - ext4 /dev/other rw\n\
            31 30 0:44 /sub /mnt/c rw - btrfs /dev/ublkb5 rw\n\
            32 22 7:33 / /mnt/d rw - ext4 /dev/ublkb5 rw\nrubbish";
        let found = mounts_of(info, makedev(7, 3), Path::new("/dev/ublkb5"));
        assert_eq!(found, [Path::new("/mnt/c"), Path::new("/mnt/a b")]);
        assert_eq!(unescaped(b"\\134\\9 x\\01"), b"\\\\9 x\\01");
    }
}
