//! Conversions between registers, addresses and C's integers.

use core::ffi::c_int;

/// A value that a system call or C function takes in one register.
pub(crate) trait Register {
    /// The register's content: signed integers are sign-extended.
    fn reg(self) -> usize;
}

impl Register for usize {
    fn reg(self) -> usize {
        self
    }
}

impl Register for u32 {
    fn reg(self) -> usize {
        self as usize
    }
}

impl Register for i32 {
    fn reg(self) -> usize {
        (self as isize).cast_unsigned()
    }
}

impl Register for u64 {
    fn reg(self) -> usize {
        address(self)
    }
}

impl Register for i64 {
    fn reg(self) -> usize {
        address(self.cast_unsigned())
    }
}

impl<T> Register for *const T {
    fn reg(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Register for *mut T {
    fn reg(self) -> usize {
        self.expose_provenance()
    }
}

/// The `unsigned int` in a register: its low half.
pub(crate) fn low_u32(register: usize) -> u32 {
    register as u32
}

/// The `int` in a register.
pub(crate) fn low_i32(register: usize) -> i32 {
    low_u32(register).cast_signed()
}

/// A result as the `int` that C sees.
pub(crate) fn int(result: isize) -> c_int {
    low_i32(result.cast_unsigned())
}

/// A 64-bit address as a pointer-sized number: this crate is for 64-bit targets only.
pub(crate) fn address(address: u64) -> usize {
    const { assert!(size_of::<usize>() == size_of::<u64>()) };
    address as usize
}

/// A count for a report.
pub(crate) fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}
