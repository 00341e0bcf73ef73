//! Writing into a program's code. As a rule while no thread can be executing there: in the
//! constructor, and for an object that has just been mapped.

use alloc::vec::Vec;

use uringlet_sys::linux::general::{PROT_EXEC, PROT_READ, PROT_WRITE};
use uringlet_sys::proc_mem::ProcMem;
use uringlet_sys::{mm, valgrind};

use crate::arch::{PAGE, PATCH_BYTES};
use crate::convert::address;

const PAGE_BYTES: u64 = PAGE as u64;
const WRITABLE: u32 = PROT_READ | PROT_WRITE;
const EXECUTABLE: u32 = PROT_READ | PROT_EXEC;

/// New bytes for one address.
pub(super) struct Patch {
    pub(super) at: u64,
    pub(super) bytes: [u8; PATCH_BYTES],
}

/// Applies all patches of one object. `patches` is sorted. False: the system forbids it, nothing is
/// changed.
pub(super) fn apply(patches: &[Patch]) -> bool {
    apply_with(patches, WRITABLE)
}

/// The same while other threads may be executing there: the code stays executable, and each patch
/// is one store.
pub(super) fn apply_to_running(patches: &[Patch]) -> bool {
    apply_with(patches, WRITABLE | PROT_EXEC)
}

/// Applies the patches with the pages' protection as given meanwhile.
fn apply_with(patches: &[Patch], protection: u32) -> bool {
    let pages = pages(patches);
    // Code that is made writable may not become code again: a filter can deny just that.
    let stays_code = pages.iter().all(|&(start, len)| protect(start, len, EXECUTABLE));
    if stays_code && pages.iter().all(|&(start, len)| protect(start, len, protection)) {
        patches.iter().for_each(write);
        forget_translations(patches);
        return pages.iter().all(|&(start, len)| protect(start, len, EXECUTABLE));
    }
    for &(start, len) in &pages {
        protect(start, len, EXECUTABLE);
    }
    write_by_kernel(patches)
}

/// Writes a patch with one store, if it lies in a cache line that also holds what is stored again.
fn write(patch: &Patch) {
    const CACHE_LINE: u64 = 64;
    let is_one_store = patch.at % CACHE_LINE + size_of::<u64>() as u64 <= CACHE_LINE;
    // SAFETY: the plan's bytes were compared with what is here, and the pages are writable.
    unsafe {
        if is_one_store {
            let mut bytes = (patch.at as *const [u8; size_of::<u64>()]).read();
            bytes[..PATCH_BYTES].copy_from_slice(&patch.bytes);
            (patch.at as *mut u64).write_unaligned(u64::from_ne_bytes(bytes));
        } else {
            core::ptr::copy_nonoverlapping(patch.bytes.as_ptr(), patch.at as *mut u8, patch.bytes.len());
        }
    }
}

/// The pages to be written as (start, length), adjacent ones merged: this takes fewer calls, and a
/// patch may cross a page border.
fn pages(patches: &[Patch]) -> Vec<(u64, u64)> {
    let mut pages: Vec<(u64, u64)> = Vec::new();
    for patch in patches {
        let start = patch.at & !(PAGE_BYTES - 1);
        let end = (patch.at + patch.bytes.len() as u64).next_multiple_of(PAGE_BYTES);
        match pages.last_mut() {
            Some((first, len)) if start <= *first + *len => *len = (*len).max(end - *first),
            _ => pages.push((start, end - start)),
        }
    }
    pages
}

fn protect(start: u64, len: u64, protection: u32) -> bool {
    // SAFETY: pages of a loaded object's code, where no thread is executing (see above).
    unsafe { mm::protect(address(start), address(len), protection) }.is_ok()
}

/// Where text may not be made writable, the kernel may still write it on our behalf. The first
/// patch decides: if it works for one address, it works for all.
fn write_by_kernel(patches: &[Patch]) -> bool {
    let Ok(memory) = ProcMem::open() else { return false };
    // SAFETY: as in `apply`.
    let is_done = patches.iter().all(|patch| unsafe { memory.write(address(patch.at), &patch.bytes) });
    forget_translations(patches);
    is_done
}

/// Tells valgrind, which may have translated what was there before.
fn forget_translations(patches: &[Patch]) {
    for patch in patches {
        let at = address(patch.at);
        valgrind::discard_translations(at..at + patch.bytes.len());
    }
}
