//! Memory for trampolines, within reach of the object they serve.

use alloc::boxed::Box;
use core::ops::Range;

use uringlet_sys::linux::general::{MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use uringlet_sys::static_ref::StaticRef;
use uringlet_sys::{code_memory, mm};

use crate::arch::{BRANCH_REACH, PAGE};
use crate::convert::address;
use crate::intercepted::INTERCEPTED;

/// Every region starts with two addresses: the lookup table's, and that of the entry that its
/// trampolines jump to.
pub(crate) const HEADER_BYTES: u64 = 16;
/// Offset of the lookup table's address in a region.
pub(crate) const HEADER_TABLE: u64 = 0;
/// Offset of the entry's address in a region.
pub(crate) const HEADER_ENTRY: u64 = 8;

const PAGE_BYTES: u64 = PAGE as u64;

/// A region as unwinders find it, without a lock: they run in signal handlers.
#[derive(Debug)]
pub(crate) struct CodeRange {
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// Address of its `.eh_frame_hdr`.
    pub(crate) tables: usize,
    next: Option<&'static CodeRange>,
}

static NEWEST: StaticRef<CodeRange> = StaticRef::new();

/// The trampolines that an address lies in.
pub(crate) fn trampolines_at(address: usize) -> Option<&'static CodeRange> {
    core::iter::successors(NEWEST.get(), |code| code.next).find(|code| address.wrapping_sub(code.start) < code.len)
}

/// A mapping that starts with the header and is filled once.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) start: u64,
    len: u64,
}

impl Region {
    /// A writable region for `bytes` of trampolines, from which all of `span` can be reached. Its
    /// header leads to `entry`.
    pub(super) fn near(span: &Range<u64>, bytes: u64, entry: usize) -> Option<Self> {
        let len = (HEADER_BYTES + bytes).next_multiple_of(PAGE_BYTES);
        let lowest = span.end.saturating_sub(BRANCH_REACH).max(1 << 16);
        let highest = span.start.saturating_add(BRANCH_REACH).saturating_sub(len);
        // Downwards first: above the program's own image its heap grows.
        let below = core::iter::successors(Some(PAGE_BYTES), |step| Some(step * 2)).map(|step| span.start.checked_sub(len + step));
        let below = below.map_while(|at| at.filter(|&at| at >= lowest));
        let above = core::iter::successors(Some(1 << 24), |step| Some(step * 2)).map(|step| span.end.checked_add(step));
        let above = above.map_while(|at| at.filter(|&at| at <= highest));
        below.chain(above).find_map(|at| Self::map(at & !(PAGE_BYTES - 1), len, lowest..highest, entry))
    }

    fn map(at: u64, len: u64, allowed: Range<u64>, entry: usize) -> Option<Self> {
        const FLAGS: u32 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        const NO_FD: i32 = -1;
        // SAFETY: the mapping replaces nothing. A kernel before 4.17 takes the address as a hint.
        let start = unsafe { mm::map(address(at), address(len), PROT_READ | PROT_WRITE, FLAGS, NO_FD, 0) }.ok()? as u64;
        let region = Self { start, len };
        if allowed.contains(&start) {
            region.write(start + HEADER_TABLE, &INTERCEPTED.as_ptr().addr().to_le_bytes());
            region.write(start + HEADER_ENTRY, &entry.to_le_bytes());
            return Some(region);
        }
        region.unmap();
        None
    }

    /// Where the first trampoline goes.
    pub(super) fn first_trampoline(&self) -> u64 {
        self.start + HEADER_BYTES
    }

    /// Fills in bytes. Only before [`seal`](Self::seal).
    pub(super) fn write(&self, at: u64, bytes: &[u8]) {
        assert!(at >= self.start && at + bytes.len() as u64 <= self.start + self.len, "a trampoline leaves its region");
        // SAFETY: inside our own writable mapping, which nothing else uses yet.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    }

    /// Whether it holds these bytes behind its header.
    pub(super) fn holds(&self, bytes: &[u8]) -> bool {
        let room = address(self.len - HEADER_BYTES);
        // SAFETY: our own mapping, readable and complete.
        let held = unsafe { core::slice::from_raw_parts(self.first_trampoline() as *const u8, room) };
        held.starts_with(bytes)
    }

    /// Makes it known to unwinders, with the address of its unwind tables. It stays for good.
    pub(super) fn publish(&self, tables: u64) {
        let code = CodeRange { start: address(self.start), len: address(self.len), tables: address(tables), next: NEWEST.get() };
        // The caller is the only one that publishes: it holds the lock of the examined objects, or
        // is the constructor.
        NEWEST.set(Box::leak(Box::new(code)));
    }

    /// Makes it code. False: the system forbids it.
    pub(super) fn seal(&self) -> bool {
        // SAFETY: our own mapping, complete by now.
        unsafe { code_memory::make_code(address(self.start), address(self.len)) }.is_ok()
    }

    pub(super) fn unmap(&self) {
        // SAFETY: our own mapping; the caller knows that no code jumps there.
        let _ = unsafe { mm::unmap(address(self.start), address(self.len)) };
    }
}
