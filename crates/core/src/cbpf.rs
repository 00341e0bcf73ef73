//! Classic BPF: the programs of `IORING_REGISTER_BPF_FILTER`, checked once and then interpreted.
//!
//! Source: Linux, Documentation/networking/filter.rst (the machine), and the subset that seccomp(2)
//! allows: loads of 32-bit words at fixed offsets, 16 words of memory, arithmetic, jumps forward.
//! A program that is accepted ends, and reads nothing else than its data.

use alloc::vec::Vec;
use uringlet_sys::Errno;

/// The most instructions of a program (`BPF_MAXINSNS`).
pub(crate) const MAX_INSTRUCTIONS: usize = 4096;
/// Words of memory (`BPF_MEMWORDS`).
const MEMORY: usize = 16;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

// Classes.
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MISC: u16 = 7;
// Modes of loads, all of words.
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
// Operations.
const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const XOR: u16 = 0xa0;
// Jumps.
const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;
// The second operand is the register X; otherwise the constant.
const X: u16 = 0x08;
/// A return of the accumulator.
const A: u16 = 0x10;
const TAX: u16 = 0x00;
const TXA: u16 = 0x80;

/// A program that may be run on data of `WORDS` 32-bit words.
#[derive(Debug)]
pub(crate) struct BpfProgram<const WORDS: usize>(Vec<Instruction>);

impl<const WORDS: usize> BpfProgram<WORDS> {
    /// Checks a program.
    ///
    /// # Errors
    /// `EINVAL`: it is empty or too long, may not end, divides by the constant 0, shifts a word
    /// out, reads memory that it has not written or data that is not there.
    pub(crate) fn new(code: Vec<Instruction>) -> Result<Self, Errno> {
        let is_accepted = !code.is_empty()
            && code.len() <= MAX_INSTRUCTIONS
            && code.last().is_some_and(|last| last.code == RET || last.code == RET | A)
            && code.iter().enumerate().all(|(at, instruction)| instruction.is_valid(code.len() - at - 1, WORDS))
            && reads_what_it_wrote(&code);
        if is_accepted { Ok(Self(code)) } else { Err(Errno::EINVAL) }
    }

    /// Its instructions.
    pub(crate) fn code(&self) -> &[Instruction] {
        &self.0
    }

    /// The value that the program returns.
    pub(crate) fn run(&self, data: &[u32; WORDS]) -> u32 {
        let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY]);
        let mut at = 0;
        while let Some(&Instruction { code, jt, jf, k }) = self.0.get(at) {
            at += 1;
            let slot = k as usize % MEMORY;
            let operand = if code & X != 0 { x } else { k };
            match code & 7 {
                LD => a = load(code, k, data, &memory),
                LDX => x = load(code, k, data, &memory),
                ST => memory[slot] = a,
                STX => memory[slot] = x,
                ALU => match calculate(code & 0xf0, a, operand) {
                    Some(result) => a = result,
                    // A division by 0 ends the program.
                    None => return 0,
                },
                JMP if code & 0xf0 == JA => at += k as usize,
                JMP => at += usize::from(if holds(code & 0xf0, a, operand) { jt } else { jf }),
                RET => return if code & A != 0 { a } else { k },
                _ if code & 0xf8 == TXA => a = x,
                _ => x = a,
            }
        }
        0
    }
}

impl Instruction {
    /// From its 8 bytes in memory, as a little-endian number.
    pub(crate) fn from_bits(bits: u64) -> Self {
        let [low, high, jt, jf, k @ ..] = bits.to_le_bytes();
        Self { code: u16::from_le_bytes([low, high]), jt, jf, k: u32::from_le_bytes(k) }
    }

    /// As [`from_bits`](Self::from_bits) has them.
    pub(crate) fn to_bits(self) -> u64 {
        let ([low, high], [a, b, c, d]) = (self.code.to_le_bytes(), self.k.to_le_bytes());
        u64::from_le_bytes([low, high, self.jt, self.jf, a, b, c, d])
    }

    /// `behind`: how many instructions follow it.
    fn is_valid(self, behind: usize, words: usize) -> bool {
        let Self { code, jt, jf, k } = self;
        match code & 7 {
            LD if code == LD | ABS => k.is_multiple_of(4) && (k as usize) < 4 * words,
            LD | LDX => match code & !7 {
                IMM | LEN => true,
                MEM => (k as usize) < MEMORY,
                _ => false,
            },
            ST | STX => code & !7 == 0 && (k as usize) < MEMORY,
            ALU if code == ALU | NEG => true,
            ALU => match code & !(7 | X) {
                ADD | SUB | MUL | OR | AND | XOR => true,
                DIV => code & X != 0 || k != 0,
                LSH | RSH => code & X != 0 || k < u32::BITS,
                _ => false,
            },
            JMP if code == JMP | JA => (k as usize) < behind,
            JMP => matches!(code & !(7 | X), JEQ | JGT | JGE | JSET) && usize::from(jt) < behind && usize::from(jf) < behind,
            RET => code == RET || code == RET | A,
            _ => code == MISC | TAX || code == MISC | TXA,
        }
    }
}

/// Whether no path reads a word of memory that it has not written.
fn reads_what_it_wrote(code: &[Instruction]) -> bool {
    // The words that every path to an instruction has written, a bit each. Jumps lead forward only.
    let mut written: Vec<u16> = alloc::vec![u16::MAX; code.len()];
    written[0] = 0;
    for (at, &Instruction { code: op, jt, jf, k }) in code.iter().enumerate() {
        let mut here = written[at];
        let slot = 1_u16.checked_shl(k).unwrap_or(0);
        let targets = match op & 7 {
            LD | LDX if op & !7 == MEM && here & slot == 0 => return false,
            ST | STX => {
                here |= slot;
                [0, 0]
            }
            JMP if op & 0xf0 == JA => [k as usize; 2],
            JMP => [usize::from(jt), usize::from(jf)],
            RET => continue,
            _ => [0, 0],
        };
        for target in targets {
            if let Some(there) = written.get_mut(at + 1 + target) {
                *there &= here;
            }
        }
    }
    true
}

fn load<const WORDS: usize>(code: u16, k: u32, data: &[u32; WORDS], memory: &[u32; MEMORY]) -> u32 {
    match code & !7 {
        ABS => data.get(k as usize / 4).copied().unwrap_or(0),
        MEM => memory[k as usize % MEMORY],
        LEN => u32::try_from(4 * WORDS).unwrap_or(u32::MAX),
        _ => k,
    }
}

fn calculate(operation: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        ADD => a.wrapping_add(operand),
        SUB => a.wrapping_sub(operand),
        MUL => a.wrapping_mul(operand),
        DIV => return a.checked_div(operand),
        OR => a | operand,
        AND => a & operand,
        XOR => a ^ operand,
        LSH => a.wrapping_shl(operand),
        RSH => a.wrapping_shr(operand),
        _ => a.wrapping_neg(),
    })
}

fn holds(condition: u16, a: u32, operand: u32) -> bool {
    match condition {
        JEQ => a == operand,
        JGT => a > operand,
        JGE => a >= operand,
        _ => a & operand != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const fn op(code: u16, k: u32) -> Instruction {
        Instruction { code, jt: 0, jf: 0, k }
    }

    const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
        Instruction { code: JMP | code, jt, jf, k }
    }

    fn run(code: &[Instruction]) -> u32 {
        BpfProgram::<4>::new(code.to_vec()).unwrap().run(&[10, 20, 30, 0x8000_0001])
    }

    fn is_refused(code: &[Instruction]) -> bool {
        BpfProgram::<4>::new(code.to_vec()).is_err()
    }

    #[test]
    fn a_program_calculates() {
        let first = [op(LD | ABS, 4), op(MISC | TAX, 0), op(LD | ABS, 0)];
        for (code, k, expected) in [
            (ALU | ADD | X, 0, 30),
            (ALU | SUB | X, 0, 10_u32.wrapping_sub(20)),
            (ALU | MUL | X, 0, 200),
            (ALU | DIV, 3, 3),
            (ALU | OR, 5, 15),
            (ALU | AND | X, 0, 0),
            (ALU | XOR, 3, 9),
            (ALU | LSH, 4, 160),
            (ALU | RSH, 1, 5),
            (ALU | NEG, 0, 10_u32.wrapping_neg()),
            (LD | LEN, 0, 16),
            (MISC | TXA, 0, 20),
        ] {
            assert_eq!(run(&[&first[..], &[op(code, k), op(RET | A, 0)]].concat()), expected, "{code:#x}");
        }
        // A shift by a register takes its low bits; a division by 0 ends the program.
        assert_eq!(run(&[op(LDX | IMM, 33), op(LD | IMM, 1), op(ALU | LSH | X, 0), op(RET | A, 0)]), 2);
        assert_eq!(run(&[op(LDX | IMM, 0), op(LD | IMM, 1), op(ALU | DIV | X, 0), op(RET, 7)]), 0);
    }

    #[test]
    fn a_program_jumps_and_remembers() {
        for (condition, k, is_taken) in
            [(JEQ, 10, true), (JEQ, 11, false), (JGT, 9, true), (JGT, 10, false), (JGE, 10, true), (JSET, 5, false), (JSET, 2, true)]
        {
            let code = [op(LD | ABS, 0), jump(condition, k, 0, 1), op(RET, 1), op(RET, 2)];
            assert_eq!(run(&code), if is_taken { 1 } else { 2 });
        }
        assert_eq!(run(&[op(JMP | JA, 1), op(RET, 1), op(RET, 2)]), 2);
        assert_eq!(
            run(&[op(LD | ABS, 12), op(ST, 15), op(LD | IMM, 0), op(LDX | MEM, 15), op(MISC | TXA, 0), op(RET | A, 0)]),
            0x8000_0001
        );
    }

    #[test]
    fn a_program_that_might_do_harm_is_refused() {
        let end = op(RET, 1);
        assert!(is_refused(&[]) && is_refused(&[op(LD | IMM, 1)]) && is_refused(&vec![end; MAX_INSTRUCTIONS + 1]));
        for wrong in [
            op(LD | ABS, 16),
            op(LD | ABS, 2),
            op(LD | ABS | X, 0),
            op(LD | 0x40, 0),
            op(LDX | ABS, 0),
            op(LD | MEM, 16),
            op(ST, 16),
            op(ST | IMM | X, 0),
            op(ALU | DIV, 0),
            op(ALU | LSH, 32),
            op(ALU | 0x90, 1),
            op(ALU | NEG | X, 0),
            op(JMP | JA, 1),
            jump(JEQ, 0, 1, 0),
            jump(JEQ, 0, 0, 1),
            jump(0x50, 0, 0, 0),
            op(RET | X, 0),
            op(MISC | 0x40, 0),
        ] {
            assert!(is_refused(&[wrong, end]), "{wrong:?}");
        }
        // Memory that is written on one of two paths.
        let code = [op(LD | ABS, 0), jump(JEQ, 1, 0, 1), op(ST, 3), op(LD | MEM, 3), op(RET | A, 0)];
        assert!(is_refused(&code));
    }
}
