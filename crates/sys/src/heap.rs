//! The engine's heap: dlmalloc on mappings of the engine's own, so that libc's allocator, TLS and
//! brk stay unused. Where no mapping can be had, it goes on with the [`reserve`].

use crate::arch::PAGE_SIZE;
use crate::linux::general::{MAP_NORESERVE, MREMAP_MAYMOVE};
use crate::lock::Mutex;
use crate::mm;
use crate::reserve;
use crate::static_ref::StaticRef;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use dlmalloc::Dlmalloc;
use syscalls::{Errno, Sysno, syscall};

/// The source of dlmalloc's memory.
#[derive(Debug)]
struct Pages;

// SAFETY: memory comes from fresh private mappings, which overlap nothing.
unsafe impl dlmalloc::Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mapped = if ARENA.is_used() { ARENA.take(size) } else { mm::map_anonymous(size, 0) };
        mapped.ok().or_else(|| reserve::take(size)).map_or((ptr::null_mut(), 0, 0), |addr| (addr as *mut u8, size, 0))
    }

    fn remap(&self, ptr: *mut u8, oldsize: usize, newsize: usize, can_move: bool) -> *mut u8 {
        if ARENA.is_used() {
            return ptr::null_mut();
        }
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

/// Where a heap lies that replaces one that cannot be used any more ([`recover_in_copy`]): all else
/// is of the old one, and is never freed.
#[derive(Debug)]
struct Arena {
    start: AtomicUsize,
    /// The first address that was never used; written under the heap's lock.
    next: AtomicUsize,
}

static ARENA: Arena = Arena { start: AtomicUsize::new(0), next: AtomicUsize::new(0) };

impl Arena {
    /// Address space, each part of which is used once.
    const BYTES: usize = 1 << 34;

    #[inline]
    fn is_used(&self) -> bool {
        self.start.load(Relaxed) != 0
    }

    /// Whether the block is of a heap before this one.
    #[inline]
    fn is_of_old_heap(&self, block: *mut u8) -> bool {
        let start = self.start.load(Relaxed);
        start != 0 && block.addr().wrapping_sub(start) >= Self::BYTES
    }

    fn reserve(&self) -> Result<(), Errno> {
        let start = mm::map_anonymous(Self::BYTES, MAP_NORESERVE)?;
        self.next.store(start, Relaxed);
        self.start.store(start, Relaxed);
        Ok(())
    }

    fn take(&self, size: usize) -> Result<usize, Errno> {
        let at = self.next.load(Relaxed);
        if size > self.start.load(Relaxed) + Self::BYTES - at {
            return Err(Errno::ENOMEM);
        }
        self.next.store(at + size, Relaxed);
        Ok(at)
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

/// The heap of this object, if [registered](Heap::register).
static REGISTERED: StaticRef<Heap> = StaticRef::new();

impl Heap {
    /// Makes it the one that [`recover_in_copy`] is about.
    pub fn register(&'static self) {
        REGISTERED.set(self);
    }
}

/// In a copy of a process that nobody has claimed yet: makes the heap usable. If a thread that the
/// copy does not have was inside, a new heap takes its place.
///
/// # Errors
/// `ENOMEM`: there is no room for a new one.
pub fn recover_in_copy() -> Result<(), Errno> {
    let mut result = Ok(());
    if let Some(heap) = REGISTERED.get() {
        heap.0.recover_in_copy(|_torn| {
            result = ARENA.reserve();
            Dlmalloc::new_with_allocator(Pages)
        });
    }
    result
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
        reserve::note_block(layout.size());
        // SAFETY: the layout's size is not zero by GlobalAlloc's contract.
        unsafe { self.0.lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        reserve::note_block(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { self.0.lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if ARENA.is_of_old_heap(ptr) {
            return;
        }
        // SAFETY: `ptr` came from this heap with this layout by GlobalAlloc's contract.
        unsafe { self.0.lock().free(ptr, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        reserve::note_block(new_size);
        let mut heap = self.0.lock();
        // SAFETY: as in `dealloc`; both blocks are at least as long as what is copied.
        unsafe {
            if !ARENA.is_of_old_heap(ptr) {
                return heap.realloc(ptr, layout.size(), layout.align(), new_size);
            }
            let new = heap.malloc(new_size, layout.align());
            if !new.is_null() {
                ptr::copy_nonoverlapping(ptr, new, layout.size().min(new_size));
            }
            new
        }
    }
}
