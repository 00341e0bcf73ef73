//! Where this object lies: in a file, or behind a descriptor.
//!
//! `uringlet::init` hands the object over as `/proc/self/fd/N`. A child finds it there only while N
//! is that descriptor and is not closed by execve(2).

use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use uringlet_core::ENGINE;
use uringlet_sys::exec_file::{self, ExecPath};
use uringlet_sys::io::FileStat;
use uringlet_sys::{UserPtr, io};

const DESCRIPTORS: &[u8] = b"/proc/self/fd/";

/// Address and length of this object's path, with a NUL behind: stored once, at the start.
static PATH: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The descriptor's number; -1: the object lies in a file.
static NUMBER: AtomicI32 = AtomicI32::new(-1);

/// Device and inode of the descriptor's file.
static FILE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// The path that LD_PRELOAD shall contain. A relative one means something else in a child: then
/// children are not attached.
pub(crate) fn set_library_path(path: &[u8]) {
    if !path.starts_with(b"/") {
        return;
    }
    if let Some(number) = descriptor(path)
        && let Ok(stat) = io::fstat(number)
    {
        FILE[0].store(stat.dev, Ordering::Relaxed);
        FILE[1].store(stat.ino, Ordering::Relaxed);
        NUMBER.store(number, Ordering::Relaxed);
    }
    // Kept for the life of the process.
    let path: &[u8] = [path, b"\0"].concat().leak();
    PATH[1].store(path.len(), Ordering::Relaxed);
    PATH[0].store(path.as_ptr() as usize, Ordering::Release);
}

fn descriptor(path: &[u8]) -> Option<i32> {
    core::str::from_utf8(path.strip_prefix(DESCRIPTORS)?).ok()?.parse().ok()
}

/// The program makes a ring: from now on it cannot close the object's descriptor.
pub(crate) fn keep_descriptor() {
    let number = NUMBER.load(Ordering::Relaxed);
    if number >= 0 && !ENGINE.is_internal(number) && is_same(io::fstat(number).ok()) {
        ENGINE.keep_number(number);
    }
}

/// Whether a child may find the object gone, because the descriptor was closed meanwhile.
pub(crate) fn is_behind_descriptor() -> bool {
    NUMBER.load(Ordering::Relaxed) >= 0
}

/// The path with its NUL.
pub(super) fn library_path() -> Option<&'static [u8]> {
    let at = PATH[0].load(Ordering::Acquire);
    // SAFETY: the pair was stored once, from a slice that lives as long as the process.
    (at != 0).then(|| unsafe { core::slice::from_raw_parts(at as *const u8, PATH[1].load(Ordering::Relaxed)) })
}

/// The file at the path that [`library_path`] gave. `None`: a child does not find the object there.
pub(super) fn library_file(path: &'static [u8]) -> Option<FileStat> {
    let found = ExecPath::at(UserPtr::new(path.as_ptr().expose_provenance())).stat().ok();
    let number = NUMBER.load(Ordering::Relaxed);
    if number < 0 {
        return found;
    }
    found.filter(|_| is_same(found) && !exec_file::is_closed_by_exec(number))
}

/// Whether it is the file that the object was loaded from.
fn is_same(found: Option<FileStat>) -> bool {
    found.is_some_and(|stat| [stat.dev, stat.ino] == [0, 1].map(|word: usize| FILE[word].load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_of_a_descriptor_has_a_number() {
        assert_eq!(descriptor(b"/proc/self/fd/900"), Some(900));
        assert_eq!(descriptor(b"/proc/self/fd/"), None);
        assert_eq!(descriptor(b"/usr/lib/uringlet/liburinglet.so"), None);
    }
}
