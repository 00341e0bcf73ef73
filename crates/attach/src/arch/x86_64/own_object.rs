//! Where this object is, also in a static program, which has no list of objects.

use core::arch::asm;
use core::ops::Range;

/// From its lowest mapped address to its highest.
pub(crate) fn own_span() -> Range<u64> {
    let (start, end);
    // SAFETY: two addresses that the linker has made. Hidden: a program has symbols of these names.
    unsafe {
        asm!(
            ".hidden __ehdr_start",
            ".hidden _end",
            "lea {start}, [rip + __ehdr_start]",
            "lea {end}, [rip + _end]",
            start = out(reg) start,
            end = out(reg) end,
            options(nomem, nostack, preserves_flags)
        );
    }
    start..end
}
