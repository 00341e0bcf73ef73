//! Instruction bytes: how long the patched ones are, where jumps lead, and searches in code that
//! has not been decoded.

use core::arch::x86_64::{_mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
use core::ops::Range;

use crate::rewrite::Relocation;

/// `syscall`
pub(crate) const SYSCALL_INSN: [u8; 2] = [0x0f, 0x05];
/// Bytes of [`SYSCALL_INSN`].
pub(super) const SYSCALL_BYTES: u64 = SYSCALL_INSN.len() as u64;
/// Bytes of the jump that is written over a site: `jmp` with a four-byte displacement.
pub(crate) const PATCH_BYTES: usize = 5;
/// Bytes of that jump.
pub(super) const JUMP_BYTES: u64 = PATCH_BYTES as u64;
/// How far a four-byte displacement reaches, less a mebibyte for the trampolines themselves.
pub(crate) const BRANCH_REACH: u64 = (1 << 31) - (1 << 20);
/// How far a jump with a one-byte displacement leads, its own bytes included, and rounded up.
pub(crate) const SHORT_JUMP_REACH: u64 = 160;
/// Functions start at multiples of this.
const FUNCTION_ALIGN: u64 = 16;

/// Calls `found` with the offset of every `syscall` byte pair. Not every pair is an instruction.
pub(crate) fn for_each_syscall(bytes: &[u8], mut found: impl FnMut(usize)) {
    const LANES: usize = 16;
    let mut at = 0;
    // SAFETY: SSE2 is part of x86-64; both loads end within `bytes`.
    unsafe {
        let (first, second) = (_mm_set1_epi8(0x0f), _mm_set1_epi8(0x05));
        while at + LANES < bytes.len() {
            let here = _mm_loadu_si128(bytes.as_ptr().add(at).cast());
            let next = _mm_loadu_si128(bytes.as_ptr().add(at + 1).cast());
            let matches = _mm_and_si128(_mm_cmpeq_epi8(here, first), _mm_cmpeq_epi8(next, second));
            let mut mask = _mm_movemask_epi8(matches).cast_unsigned();
            while mask != 0 {
                found(at + mask.trailing_zeros() as usize);
                mask &= mask - 1;
            }
            at += LANES;
        }
    }
    for (i, pair) in bytes[at..].windows(2).enumerate() {
        if pair == SYSCALL_INSN {
            found(at + i);
        }
    }
}

/// What leads to a far target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FarTarget {
    Call,
    Jump,
}

/// Calls `found` with the target, if `wanted` contains it, of everything in `bytes` (which lie at
/// `start`) that looks like a direct jump or call with a four-byte displacement, at any alignment.
pub(crate) fn for_each_far_target(bytes: &[u8], start: u64, wanted: Range<u64>, mut found: impl FnMut(u64, FarTarget)) {
    for (at, window) in bytes.windows(5).enumerate() {
        // The last byte of the opcode, then the displacement.
        let is_jump = matches!(window[0], 0xe8 | 0xe9) || window[0] & 0xf0 == 0x80 && at > 0 && bytes[at - 1] == 0x0f;
        if !is_jump {
            continue;
        }
        let displacement = i32::from_le_bytes([window[1], window[2], window[3], window[4]]);
        let target = (start + at as u64 + 5).wrapping_add_signed(i64::from(displacement));
        if wanted.contains(&target) {
            found(target, if window[0] == 0xe8 { FarTarget::Call } else { FarTarget::Jump });
        }
    }
}

/// Calls `found` with the address of every word in memory that something in `bytes` (which lie at
/// `start`) seems to call or jump through: `call *word(%rip)`, `jmp *word(%rip)`.
pub(crate) fn for_each_called_word(bytes: &[u8], start: u64, mut found: impl FnMut(u64, FarTarget)) {
    for (at, window) in bytes.windows(6).enumerate() {
        let kind = match window[..2] {
            [0xff, 0x15] => FarTarget::Call,
            [0xff, 0x25] => FarTarget::Jump,
            _ => continue,
        };
        let displacement = i32::from_le_bytes([window[2], window[3], window[4], window[5]]);
        found((start + at as u64 + 6).wrapping_add_signed(i64::from(displacement)), kind);
    }
}

/// Calls `found` with the address, if `wanted` contains it, that anything in `bytes` (which lie at
/// `start`) seems to load: `lea` from the program counter, `mov` of a constant.
pub(crate) fn for_each_function_pointer(bytes: &[u8], start: u64, wanted: Range<u64>, mut found: impl FnMut(u64)) {
    for (at, window) in bytes.windows(7).enumerate() {
        let word = |from: usize| i32::from_le_bytes([window[from], window[from + 1], window[from + 2], window[from + 3]]);
        let pointer = match *window {
            // REX.W lea, with a displacement from the next instruction.
            [0x48 | 0x4c, 0x8d, modrm, ..] if modrm & 0xc7 == 5 => (start + at as u64 + 7).wrapping_add_signed(i64::from(word(3))),
            [0xb8..=0xbf, ..] => u64::from(word(1).cast_unsigned()),
            _ => continue,
        };
        if wanted.contains(&pointer) {
            found(pointer);
        }
    }
}

/// Calls `found` with every four bytes of code, as a number, that `wanted` contains: where programs
/// are not position independent, code holds addresses in this form.
pub(crate) fn for_each_constant(bytes: &[u8], wanted: Range<u64>, mut found: impl FnMut(u64)) {
    if wanted.start > u64::from(u32::MAX) {
        return;
    }
    for window in bytes.windows(4) {
        let constant = u64::from(u32::from_le_bytes([window[0], window[1], window[2], window[3]]));
        if wanted.contains(&constant) {
            found(constant);
        }
    }
}

/// The addresses of all direct calls of `function` in `bytes`, which lie at `start`.
pub(crate) fn calls_of(function: u64, bytes: &[u8], start: u64) -> impl Iterator<Item = u64> {
    let ips = bytes.windows(5).zip(start..);
    ips.filter(move |&(window, ip)| call(ip, function).is_some_and(|bytes| bytes == *window)).map(|(_, ip)| ip)
}

/// The bytes that call `to` from `from`. `None`: too far.
pub(crate) fn call(from: u64, to: u64) -> Option<[u8; PATCH_BYTES]> {
    let displacement = i32::try_from(to.wrapping_sub(from + JUMP_BYTES).cast_signed()).ok()?;
    let [a, b, c, d] = displacement.to_le_bytes();
    Some([0xe8, a, b, c, d])
}

/// The offset of the last instruction in `code` that loads a number into `eax` which is wanted.
pub(crate) fn find_number_load(code: &[u8], wanted: impl Fn(u32) -> bool) -> Option<usize> {
    let is_load = |window: &[u8]| match *window {
        [0xb8, a, b, c, d] => wanted(u32::from_le_bytes([a, b, c, d])),
        _ => false,
    };
    code.windows(5).rposition(is_load)
}

/// Where a direct jump at `ip` leads: short (`eb`, `7x`) or near (`e9`, `0f 8x`).
pub(super) fn jump_target(bytes: &[u8], ip: u64) -> Option<u64> {
    let end = ip.wrapping_add(bytes.len() as u64);
    let displacement = match *bytes {
        [0xeb | 0x70..=0x7f, d] => i64::from(d.cast_signed()),
        [0xe9, a, b, c, d] | [0x0f, 0x80..=0x8f, a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        _ => return None,
    };
    Some(end.wrapping_add_signed(displacement))
}

/// Whether an instruction with these bytes can be relocated that way.
pub(crate) fn is_relocatable(bytes: &[u8], relocation: Relocation) -> bool {
    match relocation {
        Relocation::None => !bytes.is_empty(),
        Relocation::Displacement(offset) => usize::from(offset) + 4 <= bytes.len(),
        Relocation::Jump => jump_target(bytes, 0).is_some(),
        Relocation::Never => false,
    }
}

/// Whether a function at `at` that begins with `code` does nothing and has room for the patch:
/// `endbr64` and `ret`, or `ret` and padding up to the next function.
pub(crate) fn is_empty_function(code: [u8; PATCH_BYTES], at: u64) -> bool {
    match code {
        [0xf3, 0x0f, 0x1e, 0xfa, 0xc3] => true,
        [0xc3, 0x66 | 0x2e | 0x90 | 0xcc, ..] | [0xc3, 0x0f, 0x1f, ..] => at % FUNCTION_ALIGN <= FUNCTION_ALIGN - JUMP_BYTES,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syscall_pair_is_found_at_every_alignment() {
        for len in 0..80 {
            for at in 0..len {
                let mut bytes = vec![0x0f; len];
                bytes[at] = 0x05;
                let mut found = Vec::new();
                for_each_syscall(&bytes, |offset| found.push(offset));
                assert_eq!(found, if at > 0 { vec![at - 1] } else { vec![] }, "length {len}");
            }
        }
    }

    #[test]
    fn far_jumps_and_calls_are_seen_at_any_alignment() {
        // call, jmp and jne, each to 0x1020.
        for (opcode, kind) in [(&[0xe8][..], FarTarget::Call), (&[0xe9], FarTarget::Jump), (&[0x0f, 0x85], FarTarget::Jump)] {
            for pad in 0..4 {
                let mut bytes = vec![0x90; pad];
                bytes.extend_from_slice(opcode);
                let end = 0x1000 + bytes.len() as i32 + 4;
                bytes.extend_from_slice(&(0x1020 - end).to_le_bytes());
                let mut found = Vec::new();
                for_each_far_target(&bytes, 0x1000, 0x1010..0x1030, |target, kind| found.push((target, kind)));
                assert_eq!(found, [(0x1020, kind)], "{opcode:x?} behind {pad}");
            }
        }
    }

    #[test]
    fn words_that_calls_and_jumps_go_through_are_seen() {
        let code = [0x90, 0xff, 0x15, 0x10, 0, 0, 0, 0xff, 0x25, 0xf0, 0xff, 0xff, 0xff, 0xff, 0x35, 1, 0, 0, 0];
        let mut found = Vec::new();
        for_each_called_word(&code, 0x1000, |word, kind| found.push((word, kind)));
        assert_eq!(found, [(0x1017, FarTarget::Call), (0xffd, FarTarget::Jump)]);
    }

    #[test]
    fn calls_are_found_at_every_alignment() {
        let call = call(0x1003, 0x2060).expect("in reach");
        let code = [&[0x90; 3][..], &call, &call, &[0xe8, 0, 0, 0]].concat();
        assert_eq!(calls_of(0x2060, &code, 0x1000).collect::<Vec<_>>(), [0x1003]);
        assert_eq!(calls_of(0x2065, &code, 0x1000).collect::<Vec<_>>(), [0x1008]);
        assert_eq!(calls_of(0x2060, &code[..7], 0x1000).count(), 0);
    }

    #[test]
    fn only_empty_function_with_room_is_accepted() {
        let glibc = [0xc3, 0x66, 0x66, 0x2e, 0x0f];
        assert!(is_empty_function(glibc, 0x2060));
        assert!(!is_empty_function(glibc, 0x206c), "the next function starts before the jump's end");
        let with_endbr = [0xf3, 0x0f, 0x1e, 0xfa, 0xc3];
        assert!(is_empty_function(with_endbr, 0x2060));
        let breakpoint = [0xcc, 0x66, 0x66, 0x2e, 0x0f];
        assert!(!is_empty_function(breakpoint, 0x2060));
        let code_behind = [0xc3, 0x31, 0xc0, 0xc3, 0x90];
        assert!(!is_empty_function(code_behind, 0x2060));
    }
}
