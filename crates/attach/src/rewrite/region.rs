//! Memory for trampolines, within reach of the object they serve.

use core::ops::Range;

use syscalls::{Sysno, raw};

use super::trampoline::HEADER_BYTES;
use crate::dispatch::INTERCEPTED;

pub(super) const PAGE: u64 = 4096;
const READ_WRITE: usize = 3;
const READ_EXECUTE: usize = 5;
/// A four-byte displacement, with room to spare for the region itself.
const REACH: u64 = (1 << 31) - (1 << 20);

/// A mapping that starts with the header and is filled once.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) start: u64,
    len: u64,
}

impl Region {
    /// A writable region with room for `bytes` of trampolines, from which all of `span` can be reached. Its header leads to `entry`.
    pub(super) fn near(span: &Range<u64>, bytes: u64, entry: usize) -> Option<Self> {
        let len = (HEADER_BYTES + bytes).next_multiple_of(PAGE);
        let lowest = span.end.saturating_sub(REACH).max(1 << 16);
        let highest = span.start.saturating_add(REACH).saturating_sub(len);
        // Downwards first: above the program's own image its heap grows.
        let below = core::iter::successors(Some(PAGE), |step| Some(step * 2)).map(|step| span.start.checked_sub(len + step));
        let below = below.map_while(|at| at.filter(|&at| at >= lowest));
        let above = core::iter::successors(Some(1 << 24), |step| Some(step * 2)).map(|step| span.end.checked_add(step));
        let above = above.map_while(|at| at.filter(|&at| at <= highest));
        below.chain(above).find_map(|at| Self::map(at & !(PAGE - 1), len, lowest..highest, entry))
    }

    fn map(at: u64, len: u64, allowed: Range<u64>, entry: usize) -> Option<Self> {
        // MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE; a kernel that does not know the last takes the address as a wish.
        const FLAGS: usize = 0x02 | 0x20 | 0x10_0000;
        // SAFETY: a new anonymous mapping that replaces nothing.
        let got = unsafe { raw::syscall6(Sysno::mmap as usize, at as usize, len as usize, READ_WRITE, FLAGS, usize::MAX, 0) } as u64;
        if got > u64::MAX - PAGE {
            return None;
        }
        let region = Self { start: got, len };
        if allowed.contains(&got) {
            region.write(got, &(INTERCEPTED.as_ptr() as u64).to_le_bytes());
            region.write(got + 8, &entry.to_le_bytes());
            return Some(region);
        }
        region.unmap();
        None
    }

    /// Where the first trampoline goes.
    pub(super) fn first(&self) -> u64 {
        self.start + HEADER_BYTES
    }

    /// Fills in bytes. Only before [`seal`](Self::seal).
    pub(super) fn write(&self, at: u64, bytes: &[u8]) {
        assert!(at >= self.start && at + bytes.len() as u64 <= self.start + self.len, "a trampoline leaves its region");
        // SAFETY: inside our own writable mapping, which nobody uses yet.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    }

    /// From here on it is code. False: the system forbids it.
    pub(super) fn seal(&self) -> bool {
        // SAFETY: our own mapping.
        unsafe { raw::syscall3(Sysno::mprotect as usize, self.start as usize, self.len as usize, READ_EXECUTE) == 0 }
    }

    pub(super) fn unmap(&self) {
        // SAFETY: our own mapping; callers know that no code jumps there.
        unsafe { raw::syscall2(Sysno::munmap as usize, self.start as usize, self.len as usize) };
    }
}
