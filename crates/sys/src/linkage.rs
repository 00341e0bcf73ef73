//! Whether an executable has a dynamic linker that preloads. Pure, but for the reading.

use crate::arch;
use crate::linux::elf_uapi::{DT_FLAGS_1, DT_NULL, ET_DYN, ET_EXEC, PT_DYNAMIC, PT_INTERP, PT_LOAD, elf64_hdr, elf64_phdr};

/// `e_machine` of this processor's executables.
pub const ELF_MACHINE: u16 = arch::ELF_MACHINE;

/// What an executable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// It has a dynamic linker, or is one.
    Dynamic,
    /// No dynamic linker loads it.
    Static,
    /// For another processor, or for another mode of this one. The kernel may have a way to run it.
    Foreign,
    /// Truncated or damaged.
    Odd,
}

/// Reads into a buffer from an offset of the file on: the number of bytes.
pub type Reader<'a> = &'a dyn Fn(&mut [u8], u64) -> usize;

/// Class and byte order: 64 bits, little-endian.
const NATIVE: [u8; 2] = [2, 1];
/// In `DT_FLAGS_1`: an executable, not a library.
const DF_1_PIE: u64 = 0x0800_0000;
/// Bytes of a tag and its value.
const DYNAMIC_ENTRY_BYTES: usize = 16;
/// Files with more program headers are left alone.
const MAX_HEADERS: usize = 32;
/// Files with a longer dynamic section count as dynamic.
const MAX_DYNAMIC: usize = 128;

/// Examines the file that begins with `head`.
#[must_use]
pub fn linkage(head: &[u8], file_bytes: u64, read: Reader<'_>) -> Linkage {
    if is_foreign(head) {
        return Linkage::Foreign;
    }
    look(head, file_bytes, read).unwrap_or(Linkage::Odd)
}

/// Whether the header is one of another class, byte order or machine.
fn is_foreign(head: &[u8]) -> bool {
    let is_known = matches!(head, [0x7f, b'E', b'L', b'F', 1 | 2, 1 | 2, 1, ..]);
    let machine = half(head, core::mem::offset_of!(elf64_hdr, e_machine));
    is_known && machine.is_some_and(|machine| machine != ELF_MACHINE || head[4..6] != NATIVE)
}

fn look(head: &[u8], file_bytes: u64, read: Reader<'_>) -> Option<Linkage> {
    let is_ours = head.get(4..6)? == NATIVE && half(head, core::mem::offset_of!(elf64_hdr, e_machine))? == ELF_MACHINE;
    let kind = u32::from(half(head, core::mem::offset_of!(elf64_hdr, e_type))?);
    let entry_bytes = usize::from(half(head, core::mem::offset_of!(elf64_hdr, e_phentsize))?);
    let count = usize::from(half(head, core::mem::offset_of!(elf64_hdr, e_phnum))?);
    if !is_ours || ![ET_EXEC, ET_DYN].contains(&kind) || entry_bytes != size_of::<elf64_phdr>() || count > MAX_HEADERS {
        return None;
    }
    let mut table = [0; MAX_HEADERS * size_of::<elf64_phdr>()];
    let table = &mut table[..count * entry_bytes];
    let at = word(head, core::mem::offset_of!(elf64_hdr, e_phoff))?;
    let is_in_head = usize::try_from(at).ok().and_then(|at| head.get(at..at.checked_add(table.len())?));
    match is_in_head {
        Some(bytes) => table.copy_from_slice(bytes),
        None if read(table, at) < table.len() => return None,
        None => {}
    }
    let mut is_loaded = false;
    let mut dynamic = None;
    for header in table.chunks_exact(entry_bytes) {
        let (offset, len) = extent(header)?;
        match u32::from_le_bytes(header.get(..4)?.try_into().ok()?) {
            PT_INTERP => return Some(Linkage::Dynamic),
            PT_LOAD if offset.checked_add(len)? > file_bytes => return None,
            PT_LOAD => is_loaded = true,
            PT_DYNAMIC => dynamic = Some((offset, len)),
            _ => {}
        }
    }
    if !is_loaded {
        return None;
    }
    // Without an interpreter: a static program, or an object that is executed itself, as the
    // dynamic linker is.
    let is_program = kind == ET_EXEC || dynamic.is_some_and(|(offset, len)| is_position_independent_program(offset, len, read));
    Some(if is_program { Linkage::Static } else { Linkage::Dynamic })
}

/// Whether the dynamic section says that this is an executable and no library.
fn is_position_independent_program(offset: u64, len: u64, read: Reader<'_>) -> bool {
    let mut section = [0; MAX_DYNAMIC * DYNAMIC_ENTRY_BYTES];
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(section.len());
    let len = read(&mut section[..len], offset).min(len);
    let entries = section[..len].chunks_exact(DYNAMIC_ENTRY_BYTES).map(|entry| (word(entry, 0), word(entry, 8)));
    let mut entries = entries.take_while(|&(tag, _)| tag != Some(u64::from(DT_NULL)));
    entries.any(|(tag, value)| tag == Some(u64::from(DT_FLAGS_1)) && value.is_some_and(|flags| flags & DF_1_PIE != 0))
}

/// Where a program header's bytes lie in the file, and how many.
fn extent(header: &[u8]) -> Option<(u64, u64)> {
    Some((word(header, core::mem::offset_of!(elf64_phdr, p_offset))?, word(header, core::mem::offset_of!(elf64_phdr, p_filesz))?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
