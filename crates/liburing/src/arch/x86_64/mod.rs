//! x86-64, System V ABI.

mod relocation;
mod syscall_entry;
mod weak;

pub(crate) use relocation::is_got_relocation;
pub(crate) use syscall_entry::syscall_entry;
pub(crate) use weak::address_of_weak;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
