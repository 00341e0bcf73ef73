//! The engine's heap: dlmalloc on mappings of the engine's own, so that libc's allocator, TLS and
//! brk stay unused.

use crate::arch::PAGE_SIZE;
use crate::linux::general::MREMAP_MAYMOVE;
use crate::lock::Mutex;
use crate::mm;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use dlmalloc::Dlmalloc;
use syscalls::{Sysno, syscall};

/// The source of dlmalloc's memory.
#[derive(Debug)]
struct Pages;

// SAFETY: memory comes from fresh private mappings, which overlap nothing.
unsafe impl dlmalloc::Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        mm::map_anonymous(size, 0).map_or((ptr::null_mut(), 0, 0), |addr| (addr as *mut u8, size, 0))
    }

    fn remap(&self, ptr: *mut u8, oldsize: usize, newsize: usize, can_move: bool) -> *mut u8 {
        let flags = if can_move { MREMAP_MAYMOVE } else { 0 };
        // SAFETY: dlmalloc passes a mapping that `alloc` made.
        unsafe { syscall!(Sysno::mremap, ptr, oldsize, newsize, flags) }.map_or(ptr::null_mut(), |addr| addr as *mut u8)
    }

    fn free_part(&self, ptr: *mut u8, oldsize: usize, newsize: usize) -> bool {
        // SAFETY: dlmalloc passes the unused tail of a mapping that `alloc` made.
        unsafe { mm::unmap(ptr.wrapping_add(newsize) as usize, oldsize - newsize) }.is_ok()
    }

    fn free(&self, ptr: *mut u8, size: usize) -> bool {
        // SAFETY: dlmalloc passes an unused mapping that `alloc` made.
        unsafe { mm::unmap(ptr as usize, size) }.is_ok()
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE_SIZE
    }
}

/// The global allocator of a libc-free object.
pub struct Heap(Mutex<Dlmalloc<Pages>>);

impl Heap {
    /// An empty heap.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Dlmalloc::new_with_allocator(Pages)))
    }

    /// Before fork(2): no thread is in the heap until [`release`](Self::unlock_after_fork).
    pub fn lock_for_fork(&self) {
        self.0.lock_for_fork();
    }

    /// Unlocks the heap after fork(2), in parent and child.
    pub fn unlock_after_fork(&self) {
        self.0.unlock_after_fork();
    }
}

impl Default for Heap {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Heap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Heap")
    }
}

// SAFETY: dlmalloc returns blocks of the size and alignment asked for, each to one owner; the lock
// serialises it.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout's size is not zero by GlobalAlloc's contract.
        unsafe { self.0.lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { self.0.lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from this heap with this layout by GlobalAlloc's contract.
        unsafe { self.0.lock().free(ptr, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`.
        unsafe { self.0.lock().realloc(ptr, layout.size(), layout.align(), new_size) }
    }
}
