//! Locks on ranges, between open file descriptions.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use uringlet_sys::Errno;
use uringlet_sys::range_lock::{LockKind, is_excluded, lock, unlock};

#[test]
fn locks_exclude_other_open_file_descriptions_until_they_are_closed() {
    let path = std::env::temp_dir().join(format!("uringlet-range-lock-{}", std::process::id()));
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let (one, two) = (open(), open());
    let (one_fd, two_fd) = (one.as_raw_fd(), two.as_raw_fd());
    lock(one_fd, LockKind::Exclusive, 5, 1).unwrap();
    lock(one_fd, LockKind::Shared, 8, 2).unwrap();
    assert_eq!(lock(two_fd, LockKind::Shared, 5, 1), Err(Errno::EAGAIN));
    assert_eq!(lock(two_fd, LockKind::Shared, 8, 1), Ok(()));
    assert_eq!(lock(two_fd, LockKind::Exclusive, 6, 1), Ok(()));
    let excluded = |fd, start| [LockKind::Shared, LockKind::Exclusive].map(|kind| is_excluded(fd, kind, start, 1).unwrap());
    assert_eq!((excluded(two_fd, 5), excluded(two_fd, 9), excluded(two_fd, 7)), ([true; 2], [false, true], [false; 2]));
    unlock(one_fd, 9, 1).unwrap();
    assert_eq!(excluded(two_fd, 9), [false; 2]);
    drop(one);
    assert_eq!(lock(two_fd, LockKind::Exclusive, 5, 1), Ok(()));
    std::fs::remove_file(&path).unwrap();
}
