//! Evidence that bytes are code: the number of a system call that is copied from a register, into
//! which a constant has been loaded before.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};

/// No system call has a higher number.
const NUMBERS: u64 = 1024;

/// Whether the last register that is copied to `eax` before the `syscall` at `ip` is loaded with a
/// number anywhere in this code, which lies at `start`.
pub(crate) fn copies_a_number(code: &[u8], start: u64, ip: u64) -> bool {
    let insns = || Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter();
    let copied = insns().take_while(|insn| insn.ip() < ip).filter_map(|insn| copy_to_eax(&insn)).last();
    copied.is_some_and(|register| insns().any(|insn| loads_number(&insn, register)))
}

fn copy_to_eax(insn: &Instruction) -> Option<Register> {
    let is_copy = matches!(insn.code(), Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64);
    let is_to_eax = insn.op0_register().full_register() == Register::RAX;
    (is_copy && is_to_eax && insn.op1_register() != Register::None).then(|| insn.op1_register().full_register())
}

fn loads_number(insn: &Instruction, register: Register) -> bool {
    let is_load = matches!(insn.code(), Code::Mov_r32_imm32 | Code::Mov_rm64_imm32);
    is_load && insn.op0_register().full_register() == register && insn.immediate(1) < NUMBERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_followed_through_a_register() {
        // mov $60, %edx; xor %edi, %edi; mov %edx, %eax; syscall
        let code = [0xba, 60, 0, 0, 0, 0x31, 0xff, 0x89, 0xd0, 0x0f, 5];
        assert!(copies_a_number(&code, 0x1000, 0x1009));
        // Copied from %ecx.
        let code = [0xba, 60, 0, 0, 0, 0x31, 0xff, 0x89, 0xc8, 0x0f, 5];
        assert!(!copies_a_number(&code, 0x1000, 0x1009));
        // No number.
        let code = [0xba, 60, 0, 1, 0, 0x31, 0xff, 0x89, 0xd0, 0x0f, 5];
        assert!(!copies_a_number(&code, 0x1000, 0x1009));
    }
}
