//! Relocation types of the ELF supplement for x86-64.

const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

/// Whether a relocation of this type stores the address of a symbol, unchanged, in a slot of the
/// global offset table.
pub(crate) fn is_got_relocation(kind: u32) -> bool {
    matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)
}
