//! One of several futexes to wait on.

use crate::linux::general::{FUTEX2_PRIVATE, FUTEX2_SIZE_U32, futex_waitv};

/// `struct futex_waitv`: a 32-bit futex and the value that it must hold.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct FutexWaitv(futex_waitv);

impl FutexWaitv {
    pub(super) const fn new(addr: usize, value: u32, is_private: bool) -> Self {
        let private = if is_private { FUTEX2_PRIVATE } else { 0 };
        Self(futex_waitv { val: value as u64, uaddr: addr as u64, flags: FUTEX2_SIZE_U32 | private, __reserved: 0 })
    }

    pub(super) const fn addr(self) -> usize {
        self.0.uaddr as usize
    }

    pub(super) const fn value(self) -> u64 {
        self.0.val
    }

    #[cfg(not(loom))]
    pub(super) const fn is_private(self) -> bool {
        self.0.flags & FUTEX2_PRIVATE != 0
    }
}
