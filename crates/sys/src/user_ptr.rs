//! The types that describe memory of the program without touching it.

/// An address in the program's memory.
///
/// The engine does not dereference it but passes it to system calls; the kernel answers `EFAULT`
/// for a bad one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct UserPtr(usize);

impl UserPtr {
    /// The null address.
    pub const NULL: Self = Self(0);

    /// An address as a register carries it.
    #[inline]
    #[must_use]
    pub const fn new(addr: usize) -> Self {
        Self(addr)
    }

    /// An address as the ABI's structures carry it.
    #[inline]
    #[must_use]
    pub const fn at(addr: u64) -> Self {
        Self(addr as usize)
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn addr(self) -> usize {
        self.0
    }

    /// Whether this is address 0.
    #[inline]
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on (wrapping: the kernel checks the result).
    #[inline]
    #[must_use]
    pub const fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

/// Plain data: any bytes are a valid value, and there is no padding.
///
/// # Safety
/// The type has no padding, references or invalid bit patterns.
pub unsafe trait Pod: Copy {}
