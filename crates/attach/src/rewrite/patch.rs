//! Writing into a program's code. Only while no thread can be executing there: in the constructor, and for an object that has just been mapped.

use alloc::vec::Vec;
use core::ffi::CStr;

use syscalls::{Sysno, raw};

use super::region::PAGE;

const READ_WRITE: usize = 3;
const READ_EXECUTE: usize = 5;

/// Bytes for one place.
pub(super) struct Change {
    pub(super) at: u64,
    pub(super) bytes: [u8; 5],
}

/// Makes all changes of one object. `changes` is sorted. False: the system forbids it, nothing is changed.
pub(super) fn apply(changes: &[Change]) -> bool {
    let pages = pages(changes);
    if pages.iter().all(|&(start, len)| protect(start, len, READ_WRITE)) {
        for change in changes {
            // SAFETY: the plan's bytes were compared with what is here, and the pages are writable.
            unsafe { core::ptr::copy_nonoverlapping(change.bytes.as_ptr(), change.at as *mut u8, change.bytes.len()) };
        }
        return pages.iter().all(|&(start, len)| protect(start, len, READ_EXECUTE));
    }
    for &(start, len) in &pages {
        protect(start, len, READ_EXECUTE);
    }
    through_proc(changes)
}

/// The pages to be written, neighbours together: fewer calls, and a change may cross a border.
fn pages(changes: &[Change]) -> Vec<(u64, u64)> {
    let mut pages: Vec<(u64, u64)> = Vec::new();
    for change in changes {
        let start = change.at & !(PAGE - 1);
        let end = (change.at + change.bytes.len() as u64).next_multiple_of(PAGE);
        match pages.last_mut() {
            Some((first, len)) if start <= *first + *len => *len = (*len).max(end - *first),
            _ => pages.push((start, end - start)),
        }
    }
    pages
}

fn protect(start: u64, len: u64, protection: usize) -> bool {
    // SAFETY: pages of a loaded object's code; see the module's condition.
    unsafe { raw::syscall3(Sysno::mprotect as usize, start as usize, len as usize, protection) == 0 }
}

/// Where text may not be made writable, the kernel may still write it on our behalf.
fn through_proc(changes: &[Change]) -> bool {
    const O_RDWR_CLOEXEC: usize = 2 | 0o2_000_000;
    const PATH: &CStr = c"/proc/self/mem";
    // SAFETY: open(2) of a constant name, pwrite64(2) from live arrays, close(2) of our own descriptor.
    unsafe {
        let fd = raw::syscall3(Sysno::open as usize, PATH.as_ptr() as usize, O_RDWR_CLOEXEC, 0);
        if fd > i32::MAX as usize {
            return false;
        }
        let write = |c: &Change| {
            raw::syscall4(Sysno::pwrite64 as usize, fd, c.bytes.as_ptr() as usize, c.bytes.len(), c.at as usize) == c.bytes.len()
        };
        // The first one decides: what works for one place works for all.
        let written = changes.iter().all(write);
        raw::syscall1(Sysno::close as usize, fd);
        written
    }
}
