//! Mapping a static executable into this process, as execve(2) would.

use uringlet_sys::Errno;
use uringlet_sys::linux::general::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_EXEC, PROT_GROWSDOWN, PROT_NONE, PROT_READ, PROT_WRITE,
};
use uringlet_sys::mm;

use super::image::{Image, Segment, page_start};
use crate::arch::PAGE;
use crate::convert::address;

const NO_FD: i32 = -1;
const RESERVE: u32 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

/// Maps the segments of the file `fd`. Returns what is added to their addresses.
///
/// # Errors
/// Those of mmap(2): `ENOMEM`, `EEXIST` if something of ours is there, `EPERM` below
/// `vm.mmap_min_addr`.
pub(super) fn map(image: &Image, fd: i32) -> Result<u64, Errno> {
    let base = reserve(image)?;
    for segment in &image.segments {
        map_segment(segment, base, fd)?;
    }
    Ok(base)
}

/// Address space for all segments: nothing else gets between them.
fn reserve(image: &Image) -> Result<u64, Errno> {
    let span = image.span();
    let len = address(span.end - span.start);
    if !image.is_relocatable {
        let wanted = address(span.start);
        // SAFETY: nothing is replaced.
        let at = unsafe { mm::map(wanted, len, PROT_NONE, RESERVE | MAP_FIXED_NOREPLACE, NO_FD, 0) }?;
        // Before Linux 4.17 the address is only a wish.
        return if at == wanted { Ok(0) } else { Err(Errno::EEXIST) };
    }
    let align = address(image.align);
    // The first address need not be a multiple.
    let head = address(span.start % image.align);
    let slack = align - PAGE + head;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let at = unsafe { mm::map(0, len.checked_add(slack).ok_or(Errno::ENOMEM)?, PROT_NONE, RESERVE, NO_FD, 0) }?;
    let start = at.next_multiple_of(align) + head;
    for unused in [at..start, start + len..at + len + slack] {
        if !unused.is_empty() {
            // SAFETY: a part of the new mapping that nothing uses.
            unsafe { mm::unmap(unused.start, unused.len()) }?;
        }
    }
    Ok((start as u64).wrapping_sub(span.start))
}

fn map_segment(segment: &Segment, base: u64, fd: i32) -> Result<(), Errno> {
    let start = page_start(segment.file.start);
    let file_pages = segment.file.end.next_multiple_of(PAGE as u64);
    let place = |at: u64| address(base.wrapping_add(at));
    let has_file = !segment.file.is_empty();
    if has_file {
        let (len, offset) = (address(segment.file.end - start), page_start(segment.offset));
        // SAFETY: inside the reserved space, which is the program's.
        unsafe { mm::map(place(start), len, segment.protection, MAP_PRIVATE | MAP_FIXED, fd, offset) }?;
        if segment.end > segment.file.end && segment.protection & PROT_WRITE != 0 {
            let zeros = address(file_pages.min(segment.end) - segment.file.end);
            // SAFETY: the rest of the last page, which is mapped writable.
            unsafe { core::ptr::write_bytes(place(segment.file.end) as *mut u8, 0, zeros) };
        }
    }
    let from = if has_file { file_pages } else { start };
    if segment.end > from {
        let len = address(segment.end - from);
        // SAFETY: as above.
        unsafe { mm::map(place(from), len, segment.protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, NO_FD, 0) }?;
    }
    Ok(())
}

/// Keeps mappings of the program out of the pages between the segments of this object, which the
/// kernel has loaded at `base` and leaves gaps in: `own_span` has none.
pub(super) fn close_gaps(image: &Image, base: u64) {
    for pair in image.segments.windows(2) {
        let [start, end] =
            [pair[0].end.next_multiple_of(PAGE as u64), page_start(pair[1].file.start)].map(|at| address(base.wrapping_add(at)));
        if start < end {
            // SAFETY: nothing is replaced. It fails where something of ours is there already.
            let _ = unsafe { mm::map(start, end - start, PROT_NONE, RESERVE | MAP_FIXED_NOREPLACE, NO_FD, 0) };
        }
    }
}

/// Makes the stack that `address` lies in executable, all of it and as it grows.
pub(super) fn make_stack_executable(stack: usize) {
    const CODE: u32 = PROT_READ | PROT_WRITE | PROT_EXEC;
    // SAFETY: nothing is taken from the stack. Where a filter denies it, the program dies at its
    // first instruction there, as without us.
    let _ = unsafe { mm::protect(stack & !(PAGE - 1), PAGE, CODE | PROT_GROWSDOWN) };
}
