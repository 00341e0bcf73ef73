//! x86-64, System V ABI.

mod relocation;
mod weak;

pub(crate) use relocation::is_got_relocation;
pub(crate) use weak::address_of_weak;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
