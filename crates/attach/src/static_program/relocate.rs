//! The dynamic linker's work for this object alone, when the kernel starts it as a program.

use uringlet_sys::linux::elf_uapi::{DT_NULL, DT_RELA, DT_RELASZ, DT_SYMTAB, elf64_rela, elf64_sym};

/// The word is the base plus the addend.
const RELATIVE: u64 = 8;
/// The word is the address of a symbol.
const GLOB_DAT: u64 = 6;

/// Relocates this object, which is loaded at `base` and whose dynamic section is at `dynamic`.
///
/// Runs before any address that the object stores is right. So it uses none: no table, no constant
/// by reference, no function of another object.
///
/// # Safety
/// Called once, by the object's entry point.
pub(crate) unsafe extern "C" fn relocate(base: usize, dynamic: *const [usize; 2]) {
    let (mut table, mut bytes, mut symbols) = (0, 0, 0);
    // SAFETY: the linker's own tables, by the addresses in the dynamic section.
    unsafe {
        let mut at = dynamic;
        loop {
            let [tag, value] = at.read();
            if tag == DT_NULL as usize {
                break;
            } else if tag == DT_RELA as usize {
                table = base + value;
            } else if tag == DT_RELASZ as usize {
                bytes = value;
            } else if tag == DT_SYMTAB as usize {
                symbols = base + value;
            }
            at = at.add(1);
        }
        let mut entry = table as *const elf64_rela;
        let end = (table + bytes) as *const elf64_rela;
        while entry < end {
            apply(base, &*entry, symbols as *const elf64_sym);
            entry = entry.add(1);
        }
    }
}

/// # Safety
/// As [`relocate()`].
#[inline(always)]
unsafe fn apply(base: usize, entry: &elf64_rela, symbols: *const elf64_sym) {
    let place = base.wrapping_add(crate::convert::address(entry.r_offset)) as *mut usize;
    let kind = entry.r_info & 0xffff_ffff;
    // SAFETY: see above.
    unsafe {
        if kind == RELATIVE {
            place.write(base.wrapping_add(crate::convert::address(entry.r_addend.cast_unsigned())));
        } else if kind == GLOB_DAT {
            // A libc's symbol: there is no libc. Or one of ours.
            let symbol = &*symbols.add((entry.r_info >> 32) as usize);
            place.write(if symbol.st_shndx == 0 { 0 } else { base.wrapping_add(crate::convert::address(symbol.st_value)) });
        }
    }
}
