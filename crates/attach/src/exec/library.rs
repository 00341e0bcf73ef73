//! Where this object lies: in a file, or behind a descriptor.
//!
//! `uringlet::init` hands the object over as `/proc/self/fd/N`. A program may close N, or let
//! execve(2) close it: Python's `subprocess` closes all descriptors of a child. So the file stays
//! mapped, and where a child would not find it a file with the same content takes its place. Where
//! N is another file by then it stays that.

use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use uringlet_core::ENGINE;
use uringlet_sys::exec_file::{self, ExecPath};
use uringlet_sys::io::FileStat;
use uringlet_sys::linux::general::{MAP_PRIVATE, PROT_READ};
use uringlet_sys::sealed_file::{self, SealedContent};
use uringlet_sys::{UserPtr, io, mm};

const DESCRIPTORS: &[u8] = b"/proc/self/fd/";

/// Address and length of this object's path, with a NUL behind: stored once, at the start.
static PATH: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The descriptor's number; -1: the object lies in a file.
static NUMBER: AtomicI32 = AtomicI32::new(-1);

/// Device and inode of the descriptor's file.
static FILE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Address and length of that file's mapping; 0: there is none.
static CONTENT: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

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
        keep_content(number, stat.size);
        NUMBER.store(number, Ordering::Relaxed);
    }
    // Kept for the life of the process.
    let path: &[u8] = [path, b"\0"].concat().leak();
    PATH[1].store(path.len(), Ordering::Relaxed);
    PATH[0].store(path.as_ptr() as usize, Ordering::Release);
}

/// Maps the file. Its pages are in memory anyway, and a mapping alone reads none.
fn keep_content(number: i32, size: u64) {
    let Ok(len) = usize::try_from(size) else { return };
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let Ok(at) = (unsafe { mm::map(0, len, PROT_READ, MAP_PRIVATE, number, 0) }) else { return };
    CONTENT[0].store(at, Ordering::Relaxed);
    CONTENT[1].store(len, Ordering::Relaxed);
}

/// The content of the descriptor's file.
fn content() -> Option<SealedContent> {
    let [at, len] = [0, 1].map(|word: usize| CONTENT[word].load(Ordering::Relaxed));
    // SAFETY: mapped by `keep_content` and never unmapped; the file is sealed.
    (at != 0).then(|| unsafe { SealedContent::mapped(at, len) }).flatten()
}

fn descriptor(path: &[u8]) -> Option<i32> {
    core::str::from_utf8(path.strip_prefix(DESCRIPTORS)?).ok()?.parse().ok()
}

/// The program makes a ring: from now on it cannot close the object's descriptor.
pub(crate) fn keep_descriptor() {
    let number = NUMBER.load(Ordering::Relaxed);
    if number >= 0 && !ENGINE.is_internal(number) && io::fstat(number).is_ok_and(|stat| is_object(number, stat)) {
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

/// The file at the path that [`library_path`] gave, for a child. `None`: a child does not find the
/// object there.
///
/// A vfork child has its parent's memory and descriptors of its own: nothing is stored here.
pub(super) fn library_file(path: &'static [u8]) -> Option<FileStat> {
    let number = NUMBER.load(Ordering::Relaxed);
    if number >= 0 && !is_for_children(number) {
        return None;
    }
    ExecPath::at(UserPtr::new(path.as_ptr().expose_provenance())).stat().ok()
}

/// Whether the number is of the object's file and stays open over execve(2), maybe only now.
fn is_for_children(number: i32) -> bool {
    let is_there = match io::fstat(number) {
        Ok(stat) => is_object(number, stat),
        Err(_) => content().is_some_and(|content| sealed_file::restore(c"liburinglet.so", content, number).is_ok()),
    };
    is_there && exec_file::stays_open(number)
}

/// Whether the number's file is the one that the object was loaded from, or one with its content.
fn is_object(number: i32, stat: FileStat) -> bool {
    let is_same = [stat.dev, stat.ino] == [0, 1].map(|word: usize| FILE[word].load(Ordering::Relaxed));
    is_same || content().is_some_and(|content| content.is_of(number))
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
