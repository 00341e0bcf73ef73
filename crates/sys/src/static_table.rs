//! An append-only table of values that live as long as the process. Reads take no lock.

use alloc::boxed::Box;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

const CHUNK: usize = 64;
const CHUNKS: usize = 1024;

/// Up to 65,536 entries, each set once.
pub struct StaticTable<T: 'static> {
    chunks: [AtomicPtr<[AtomicPtr<T>; CHUNK]>; CHUNKS],
}

impl<T: Sync> StaticTable<T> {
    /// Most entries.
    pub const CAPACITY: usize = CHUNK * CHUNKS;

    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS] }
    }

    /// Entry `index`, if set.
    #[inline]
    pub fn get(&'static self, index: u32) -> Option<&'static T> {
        let index = index as usize;
        let chunk = self.chunks.get(index / CHUNK)?.load(Acquire);
        // SAFETY: a chunk is leaked before it is published and never freed; so is each entry.
        unsafe { chunk.as_ref().and_then(|chunk| chunk[index % CHUNK].load(Acquire).as_ref()) }
    }

    /// Sets entry `index`. `None` if it is beyond the capacity. The caller sets each entry once,
    /// one thread at a time.
    pub fn set(&'static self, index: u32, value: Box<T>) -> Option<&'static T> {
        let index = index as usize;
        let slot = self.chunks.get(index / CHUNK)?;
        if slot.load(Acquire).is_null() {
            let fresh = Box::into_raw(Box::new([const { AtomicPtr::new(ptr::null_mut()) }; CHUNK]));
            if slot.compare_exchange(ptr::null_mut(), fresh, AcqRel, Acquire).is_err() {
                // SAFETY: another thread's chunk was first; ours was never shared.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        // SAFETY: not null by now, and leaked.
        let chunk = unsafe { &*slot.load(Acquire) };
        let value: &'static T = Box::leak(value);
        chunk[index % CHUNK].store(ptr::from_ref(value).cast_mut(), core::sync::atomic::Ordering::Release);
        Some(value)
    }
}

impl<T: Sync> Default for StaticTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> core::fmt::Debug for StaticTable<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("StaticTable")
    }
}
