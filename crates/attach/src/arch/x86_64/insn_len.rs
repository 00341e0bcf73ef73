//! The length of an instruction, without the decoder: its tables take a millisecond to build, and
//! most objects have no system call. Enough to tell an instruction from bytes that look like one.

/// What follows an opcode.
#[derive(Clone, Copy)]
enum Operands {
    /// An immediate operand of so many bytes.
    Immediate(usize),
    /// ModRM with what belongs to it, then an immediate operand.
    ModRm(usize),
    /// As `ModRm`, but only the first two of the eight opcodes in ModRM have the immediate operand.
    Group3(usize),
}

/// The prefixes of an instruction, as far as they change its length.
struct Prefixes {
    len: usize,
    /// 66: operands of 16 bits.
    is_short: bool,
    /// 67: addresses of 32 bits.
    has_short_address: bool,
    /// REX.W: operands of 64 bits.
    is_long: bool,
}

fn prefixes(code: &[u8]) -> Option<Prefixes> {
    let mut found = Prefixes { len: 0, is_short: false, has_short_address: false, is_long: false };
    loop {
        match *code.get(found.len)? {
            0x66 => found.is_short = true,
            0x67 => found.has_short_address = true,
            0xf0 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 => {}
            rex @ 0x40..=0x4f => {
                found.is_long = rex & 8 != 0;
                found.len += 1;
                return Some(found);
            }
            _ => return Some(found),
        }
        found.len += 1;
    }
}

/// Whether an instruction of the function `code` begins at `at`. `None`: it contains one that is
/// not known here.
pub(crate) fn begins_insn(code: &[u8], at: usize) -> Option<bool> {
    let mut here = 0;
    while here < at {
        here += length(code.get(here..)?)?;
    }
    Some(here == at)
}

/// The length of the instruction that `code` begins with.
fn length(code: &[u8]) -> Option<usize> {
    let prefixes = prefixes(code)?;
    let rest = &code[prefixes.len..];
    let (opcode_len, operands) = match *rest {
        [0x0f, 0x38, ..] => (3, Operands::ModRm(0)),
        [0x0f, 0x3a, ..] => (3, Operands::ModRm(1)),
        [0x0f, opcode, ..] => (2, two_byte(opcode, &prefixes)?),
        [0xc5, _, opcode, ..] => (3, vector(1, opcode)?),
        [0xc4, map, _, opcode, ..] => (4, vector(map & 0x1f, opcode)?),
        [0x62, map, _, _, opcode, ..] => (5, vector(map & 7, opcode)?),
        [0x8f, extension, ..] if extension & 0x38 != 0 => return None,
        [opcode, ..] => (1, one_byte(opcode, &prefixes)?),
        [] => return None,
    };
    let operands_len = match operands {
        Operands::Immediate(bytes) => bytes,
        Operands::ModRm(bytes) => modrm(rest.get(opcode_len..)?)? + bytes,
        Operands::Group3(bytes) => {
            let has_immediate = rest.get(opcode_len)? & 0x30 == 0;
            modrm(&rest[opcode_len..])? + if has_immediate { bytes } else { 0 }
        }
    };
    Some(prefixes.len + opcode_len + operands_len)
}

/// ModRM, SIB and displacement.
fn modrm(code: &[u8]) -> Option<usize> {
    let modrm = *code.first()?;
    let (kind, register) = (modrm >> 6, modrm & 7);
    if kind == 3 {
        return Some(1);
    }
    let has_sib = register == 4;
    let base = if has_sib { *code.get(1)? & 7 } else { register };
    let displacement = match kind {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(1 + usize::from(has_sib) + displacement)
}

fn one_byte(opcode: u8, prefixes: &Prefixes) -> Option<Operands> {
    use Operands::{Group3, Immediate, ModRm};
    let word = if prefixes.is_short { 2 } else { 4 };
    Some(match opcode {
        // Eight groups of arithmetic.
        0x00..=0x3f => match opcode & 7 {
            0..=3 => ModRm(0),
            4 => Immediate(1),
            5 => Immediate(word),
            _ => return None,
        },
        0x63 | 0x84..=0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => ModRm(0),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => ModRm(1),
        0x69 | 0x81 | 0xc7 => ModRm(word),
        0x68 | 0xa9 => Immediate(word),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => Immediate(1),
        0xa0..=0xa3 => Immediate(if prefixes.has_short_address { 4 } else { 8 }),
        0xb8..=0xbf => Immediate(if prefixes.is_long { 8 } else { word }),
        0xc2 | 0xca => Immediate(2),
        0xc8 => Immediate(3),
        // Processors differ in what 66 means here.
        0xe8 | 0xe9 if !prefixes.is_short => Immediate(4),
        0xf6 => Group3(1),
        0xf7 => Group3(word),
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => Immediate(0),
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf | 0xd7 | 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => Immediate(0),
        _ => return None,
    })
}

fn two_byte(opcode: u8, prefixes: &Prefixes) -> Option<Operands> {
    use Operands::{Immediate, ModRm};
    Some(match opcode {
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x35 | 0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => Immediate(0),
        0x80..=0x8f if !prefixes.is_short => Immediate(4),
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => ModRm(1),
        0x00..=0x03 | 0x0d | 0x10..=0x23 | 0x28..=0x2f | 0x40..=0x6f | 0x74..=0x76 | 0x7c..=0x7f | 0x90..=0x9f => ModRm(0),
        0xa3 | 0xa5 | 0xab | 0xad..=0xb9 | 0xbb..=0xc1 | 0xc3 | 0xc7 | 0xd0..=0xff => ModRm(0),
        _ => return None,
    })
}

/// VEX and EVEX: `map` says which table the opcode is of.
fn vector(map: u8, opcode: u8) -> Option<Operands> {
    use Operands::{Immediate, ModRm};
    Some(match (map, opcode) {
        (1, 0x77) => Immediate(0),
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => ModRm(1),
        (1 | 2 | 5 | 6, _) => ModRm(0),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::weak_address;
    use crate::rewrite::loaded;
    use iced_x86::{Decoder, DecoderOptions};

    /// All code of the objects of this test: libc's vector functions as well.
    #[test]
    fn lengths_are_those_of_the_decoder() {
        let libc = weak_address!("__errno_location");
        let (mut known, mut unknown) = (0_u32, 0_u32);
        for object in loaded().iter().filter(|object| object.contains(libc) || object.name.is_empty()) {
            for segment in &object.executable {
                let code = object.bytes(segment.clone()).unwrap();
                let code = &code[..code.len().min(4 << 20)];
                let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
                while decoder.can_decode() {
                    let at = decoder.position();
                    let instruction = decoder.decode();
                    match length(&code[at..]) {
                        _ if instruction.is_invalid() => {}
                        Some(found) => {
                            known += 1;
                            assert_eq!(found, instruction.len(), "{:x?}", &code[at..(at + 15).min(code.len())]);
                        }
                        None => unknown += 1,
                    }
                }
            }
        }
        assert!(known > 100_000 && unknown < known / 1000, "{known} known, {unknown} unknown");
    }

    #[test]
    fn pair_inside_an_instruction_begins_none() {
        // mov $0x050f, %eax; syscall; ret
        let code = [0xb8, 0x0f, 0x05, 0, 0, 0x0f, 0x05, 0xc3];
        assert_eq!(begins_insn(&code, 1), Some(false));
        assert_eq!(begins_insn(&code, 5), Some(true));
    }
}
