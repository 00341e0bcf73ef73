//! How writers notice that the tracer has died: it has a robust futex, which the kernel marks when
//! its thread ends, however that happens.

use crate::process::tid;
use crate::sync::AtomicU32;
use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;
use syscalls::{Sysno, raw_syscall};

/// `struct robust_list_head` with one entry. The kernel looks at it when the thread ends.
#[derive(Debug)]
#[repr(C)]
struct RobustList {
    /// The first entry.
    first: *const RobustEntry,
    /// Where an entry's futex is, bytes from the entry.
    futex_offset: isize,
    pending: usize,
    entry: RobustEntry,
}

/// `struct robust_list`
#[derive(Debug)]
#[repr(C)]
struct RobustEntry {
    /// The head, behind the last entry.
    next: *const RobustList,
}

/// The calling thread has the futex as long as it lives. It may not use robust mutexes of libc's.
#[derive(Debug)]
pub struct OwnerLock(());

impl OwnerLock {
    /// Leaks the list: the kernel has its address.
    pub(super) fn take(word: &AtomicU32) -> Self {
        let list = Box::leak(Box::new(RobustList {
            first: core::ptr::null(),
            futex_offset: 0,
            pending: 0,
            entry: RobustEntry { next: core::ptr::null() },
        }));
        list.first = &raw const list.entry;
        list.entry.next = core::ptr::from_ref(list);
        list.futex_offset = core::ptr::from_ref(word).addr().wrapping_sub((&raw const list.entry).addr()).cast_signed();
        word.store(tid(), Relaxed);
        // SAFETY: a list of the kernel's layout that is never freed; the futex is mapped as long
        // as the caller of `TraceBuffer::own` promises, and the kernel checks its address.
        unsafe { raw_syscall!(Sysno::set_robust_list, core::ptr::from_ref(list), 3 * size_of::<usize>()) };
        Self(())
    }
}
