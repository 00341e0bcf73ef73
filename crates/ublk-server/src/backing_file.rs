//! Files and block devices as backing stores: at most one writer at a time.
//!
//! The locks are those that QEMU takes on its images, so a virtual machine's disk is refused here,
//! and ours there. A process holds a lock on byte 100 + N for each use N that it makes of the file,
//! and on 200 + N for each use that it forbids to others. All locks are shared and belong to the
//! open file description: they end with the process, however it ends. Each process sets its own
//! first and then looks for those of others, so of two at least one sees the other.
//!
//! A block device that is written is also claimed with `O_EXCL`, as mount(8) claims it.

use anyhow::{Context, bail};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use uringlet_sys::Errno;
use uringlet_sys::range_lock::{self, LockKind};
use uringlet_ublk::frontend::SECTOR;

/// The first byte of the uses that a process makes, and of those that it forbids.
const USED: u64 = 100;
const FORBIDDEN: u64 = 200;
/// Uses: reading consistent data, writing, changing the size.
const READ: u64 = 0;
const WRITE: u64 = 1;
const RESIZE: u64 = 3;

/// How long the lock of a process that has just been killed is waited for.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Opens and locks a file or block device. Its size is in whole sectors; `None`: it has none, as
/// `/dev/full`.
///
/// # Errors
/// Those of open(2); it is in use.
pub fn open(path: &Path, is_read_only: bool) -> anyhow::Result<(File, Option<u64>)> {
    let is_disk = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let claim = if is_disk && !is_read_only { OFlags::EXCL.bits() } else { 0 };
    let mut file = match File::options().read(true).write(!is_read_only).custom_flags(claim.cast_signed()).open(path) {
        Err(error) if is_disk && error.kind() == std::io::ErrorKind::ResourceBusy => {
            bail!("{} is in use: it is mounted, or part of another device", path.display())
        }
        opened => opened.with_context(|| format!("opening {}", path.display()))?,
    };
    let is_file = file.metadata()?.is_file();
    if is_file || is_disk {
        lock(&file, path, is_read_only)?;
    }
    let size = file.seek(SeekFrom::End(0))? / SECTOR * SECTOR;
    Ok((file, (size > 0 || is_file).then_some(size)))
}

fn lock(file: &File, path: &Path, is_read_only: bool) -> anyhow::Result<()> {
    let uses: &[u64] = if is_read_only { &[READ] } else { &[READ, WRITE] };
    let start = Instant::now();
    loop {
        match try_lock(file.as_raw_fd(), uses, &[WRITE, RESIZE]) {
            Ok(true) => return Ok(()),
            Ok(false) if start.elapsed() < RELEASE_TIMEOUT => std::thread::sleep(POLL_INTERVAL),
            Ok(false) => {
                let holder = holder(file).map_or_else(|| "another process".to_owned(), |(pid, name)| format!("process {pid} ({name})"));
                bail!("{} is in use by {holder}: writes of two servers would destroy what is in it", path.display());
            }
            Err(errno) => {
                eprintln!("uringlet ublk: {} cannot be locked ({errno}): let nothing else use it", path.display());
                return Ok(());
            }
        }
    }
}

/// Whether no other process excludes these uses.
fn try_lock(fd: i32, uses: &[u64], forbidden: &[u64]) -> Result<bool, Errno> {
    let own = || uses.iter().map(|it| USED + it).chain(forbidden.iter().map(|it| FORBIDDEN + it));
    own().try_for_each(|byte| range_lock::lock(fd, LockKind::Shared, byte, 1))?;
    let mut others = uses.iter().map(|it| FORBIDDEN + it).chain(forbidden.iter().map(|it| USED + it));
    let is_free = others.try_fold(true, |is_free, byte| Ok(is_free && !range_lock::is_excluded(fd, LockKind::Exclusive, byte, 1)?))?;
    if !is_free {
        own().try_for_each(|byte| range_lock::unlock(fd, byte, 1))?;
    }
    Ok(is_free)
}

/// A process that holds such a lock on the file, and its name: among those that this user may look
/// at. The kernel does not name the holder of a lock of this kind.
fn holder(file: &File) -> Option<(u32, String)> {
    let inode = format!(":{} ", file.metadata().ok()?.ino());
    let holds = |text: &str| text.lines().any(|line| line.starts_with("lock:") && line.contains("OFDLCK") && line.contains(&inode));
    let pids = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.filter(|&pid| pid != std::process::id()).find(|pid| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        descriptors.into_iter().any(|entry| std::fs::read_to_string(entry.path()).is_ok_and(|text| holds(&text)))
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_writer_or_any_number_of_readers() {
        let path = std::env::temp_dir().join(format!("uringlet-backing-{}", std::process::id()));
        std::fs::write(&path, [0; 1000]).unwrap();
        let (writer, size) = open(&path, false).unwrap();
        assert_eq!(size, Some(512));
        for is_read_only in [false, true] {
            let refused = open(&path, is_read_only).unwrap_err().to_string();
            assert!(refused.contains(" is in use by "), "{refused}");
        }
        drop(writer);
        let readers = [open(&path, true).unwrap(), open(&path, true).unwrap()];
        assert!(open(&path, false).is_err());
        drop(readers);
        assert!(open(&path, false).is_ok());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(open(Path::new("/dev/full"), false).unwrap().1, None);
    }
}
