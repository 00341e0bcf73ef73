//! Where computed jumps take their targets from. Compilers know two ways, and both leave the
//! targets in the object, so that they can be listed:
//!
//! | way | code |
//! |---|---|
//! | a stored address (tables without PIC, tail calls through pointers, labels as values) | `jmp *table(,%i,8)`, `mov (…),%r; jmp *%r` |
//! | a table of offsets from its own beginning (tables with PIC) | `lea table(%rip),%b; movslq (%b,%i,4),%r; add %b,%r; jmp *%r` |

use alloc::vec::Vec;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register};

/// So many instructions before a jump are looked at.
const LOOK_BACK: usize = 64;

/// Where a jump takes its target from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JumpSource {
    /// An address that is stored or loaded somewhere in the object.
    Stored,
    /// A table of offsets.
    Offsets,
    Unknown,
}

/// The addresses at which tables of offsets may lie, by which the computed jumps of this code go:
/// those that it loads. `code` lies at `start`; `is_target` says where its direct jumps lead.
/// `None`: some jump takes its target from elsewhere.
pub(crate) fn offset_tables(code: &[u8], start: u64, is_target: impl Fn(u64) -> bool) -> Option<Vec<u64>> {
    let insns: Vec<Instruction> = Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter().collect();
    let mut search = SourceSearch { info: InstructionInfoFactory::new(), is_target };
    let mut has_offsets = false;
    for (at, jump) in insns.iter().enumerate().filter(|(_, insn)| insn.flow_control() == FlowControl::IndirectBranch) {
        match search.source(&insns[at.saturating_sub(LOOK_BACK)..=at], jump, start) {
            JumpSource::Stored => {}
            JumpSource::Offsets => has_offsets = true,
            JumpSource::Unknown => return None,
        }
    }
    let loaded = insns.iter().filter(|insn| has_offsets && insn.code() == Code::Lea_r64_m && insn.is_ip_rel_memory_operand());
    Some(loaded.map(Instruction::ip_rel_memory_address).collect())
}

struct SourceSearch<F> {
    info: InstructionInfoFactory,
    is_target: F,
}

impl<F: Fn(u64) -> bool> SourceSearch<F> {
    /// The source of the last of these instructions, of a function that starts at `start`.
    fn source(&mut self, insns: &[Instruction], jump: &Instruction, start: u64) -> JumpSource {
        match (jump.code(), jump.op0_kind()) {
            (Code::Jmp_rm64, OpKind::Memory) => JumpSource::Stored,
            (Code::Jmp_rm64, OpKind::Register) => self.source_of(insns, jump.op0_register(), start),
            _ => JumpSource::Unknown,
        }
    }

    /// Where the last instruction's register has its value from.
    fn source_of(&mut self, insns: &[Instruction], register: Register, start: u64) -> JumpSource {
        let Some(at) = self.last_write(insns, register) else {
            let is_argument = insns.first().is_some_and(|first| first.ip() == start) && self.is_straight(insns);
            return if is_argument { JumpSource::Stored } else { JumpSource::Unknown };
        };
        if !self.is_straight(&insns[at..]) {
            return JumpSource::Unknown;
        }
        let write = &insns[at];
        match (write.code(), write.op1_kind()) {
            (Code::Mov_r64_rm64, OpKind::Memory)
            | (Code::Lea_r64_m | Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32, _) => {
                if write.code() == Code::Lea_r64_m && !write.is_ip_rel_memory_operand() { JumpSource::Unknown } else { JumpSource::Stored }
            }
            (Code::Mov_r64_rm64 | Code::Mov_rm64_r64, OpKind::Register) => self.source_of(&insns[..=at], write.op1_register(), start),
            (Code::Add_r64_rm64 | Code::Add_rm64_r64, OpKind::Register) => {
                let (sum, other) = (write.op0_register(), write.op1_register());
                let is_sum = self.is_offset(&insns[..=at], sum, other) || self.is_offset(&insns[..=at], other, sum);
                if is_sum { JumpSource::Offsets } else { JumpSource::Unknown }
            }
            _ => JumpSource::Unknown,
        }
    }

    /// Whether `register` holds an entry of a table of four-byte offsets at `table`, where the last
    /// of these instructions is.
    fn is_offset(&mut self, insns: &[Instruction], register: Register, table: Register) -> bool {
        self.last_write(insns, register).is_some_and(|at| {
            let load = &insns[at];
            load.code() == Code::Movsxd_r64_rm32
                && load.op1_kind() == OpKind::Memory
                && load.memory_base() == table
                && load.memory_index_scale() == 4
                && self.is_straight(&insns[at..])
        })
    }

    /// The last instruction before the last one that changes the register.
    fn last_write(&mut self, insns: &[Instruction], register: Register) -> Option<usize> {
        let (_, before) = insns.split_last()?;
        before.iter().rposition(|insn| {
            let is_call = matches!(insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
            let used = self.info.info(insn).used_registers();
            is_call || used.iter().any(|used| used.register().full_register() == register && used.access() != OpAccess::Read)
        })
    }

    /// Whether control gets from the first to the last of these instructions in one way only.
    fn is_straight(&self, insns: &[Instruction]) -> bool {
        let leaves = |insn: &Instruction| {
            matches!(
                insn.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception
            )
        };
        let Some((_, behind)) = insns.split_first() else { return true };
        let before_last = &insns[..insns.len() - 1];
        !before_last.iter().any(leaves) && !behind.iter().any(|insn| (self.is_target)(insn.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(code: &[u8]) -> Option<Vec<u64>> {
        offset_tables(code, 0x1000, |_| false)
    }

    /// `lea 0x1000(%rip), %rdx; movslq (%rdx,%rax,4), %rax; add %rdx, %rax; jmp *%rax`
    const PIC: [u8; 16] = [0x48, 0x8d, 0x15, 0, 0x10, 0, 0, 0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0];

    #[test]
    fn table_of_offsets_is_named() {
        assert_eq!(tables(&PIC), Some(vec![0x2007]));
        // notrack jmp
        let notrack = [&PIC[..14], &[0x3e, 0xff, 0xe0]].concat();
        assert_eq!(tables(&notrack), Some(vec![0x2007]));
    }

    #[test]
    fn stored_address_needs_no_table() {
        // jmp *0x1000240(,%rdx,8)
        assert_eq!(tables(&[0xff, 0x24, 0xd5, 0x40, 2, 0, 1]), Some(vec![]));
        // mov 0x70(%rcx), %rcx; pop %rbp; jmp *%rcx
        assert_eq!(tables(&[0x48, 0x8b, 0x49, 0x70, 0x5d, 0xff, 0xe1]), Some(vec![]));
        // mov %rdi, %rax; jmp *%rax
        assert_eq!(tables(&[0x48, 0x89, 0xf8, 0xff, 0xe0]), Some(vec![]));
    }

    #[test]
    fn computed_target_is_unknown() {
        // shl $4, %rax; add %rdx, %rax; jmp *%rax
        assert_eq!(tables(&[0x48, 0xc1, 0xe0, 4, 0x48, 0x01, 0xd0, 0xff, 0xe0]), None);
        // lea (%rdx,%rax), %rax; jmp *%rax
        assert_eq!(tables(&[0x48, 0x8d, 0x04, 0x02, 0xff, 0xe0]), None);
        // The offset is from another base: movslq (%rcx,%rax,4), %rax.
        let mut other = PIC;
        other[10] = 0x81;
        assert_eq!(tables(&other), None);
        // call; jmp *%rax
        assert_eq!(tables(&[0xe8, 0, 0, 0, 0, 0xff, 0xe0]), None);
    }

    #[test]
    fn target_between_load_and_jump_makes_the_source_unknown() {
        assert_eq!(offset_tables(&PIC, 0x1000, |ip| ip == 0x100e), None);
        assert_eq!(offset_tables(&PIC, 0x1000, |ip| ip == 0x100b), None);
        assert_eq!(offset_tables(&PIC, 0x1000, |ip| ip == 0x1007), Some(vec![0x2007]));
    }
}
