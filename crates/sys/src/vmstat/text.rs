//! Reading and parsing the small text files of /proc and /sys.

use crate::UserPtr;
use crate::io;
use crate::linux::general::AT_FDCWD;
use syscalls::Errno;

/// Finds the values of lines `NAME VALUE`. A last line without a newline may be truncated and is
/// ignored.
pub(super) fn pick(text: &[u8], wanted: &mut [(&[u8], &mut u64)]) {
    for line in text.split_inclusive(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\n")) {
        let Some(space) = line.iter().position(|&byte| byte == b' ') else { continue };
        let (name, value) = (&line[..space], &line[space + 1..]);
        if let Some((_, slot)) = wanted.iter_mut().find(|(wanted, _)| *wanted == name)
            && let Some(value) = number(value)
        {
            **slot = value;
        }
    }
}

pub(super) fn number(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.trim_ascii().parse().ok()
}

pub(super) fn open(path: &[u8]) -> Result<i32, Errno> {
    debug_assert_eq!(path.last(), Some(&0));
    io::openat(AT_FDCWD, io::ptr_of_slice(path), io::O_RDONLY | io::O_CLOEXEC, 0).map(|fd| fd as i32)
}

pub(super) fn read_at_start(fd: i32, text: &mut [u8]) -> Result<usize, Errno> {
    io::pread(fd, UserPtr::new(text.as_mut_ptr() as usize), text.len(), 0)
}

/// Reads a small file and closes it. `path` ends with a NUL.
pub(super) fn read_file<'a>(path: &[u8], text: &'a mut [u8]) -> Option<&'a [u8]> {
    let fd = open(path).ok()?;
    let n = read_at_start(fd, text);
    let _ = io::close(fd);
    n.ok().map(|n| &text[..n])
}
