//! One function's instructions, and what each means for rewriting.

use alloc::vec::Vec;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::rewrite::Relocation;

/// What an instruction leaves in `eax`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EaxEffect {
    Untouched,
    Constant(u32),
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Insn {
    pub(super) ip: u64,
    pub(super) len: u8,
    pub(super) relocation: Relocation,
    pub(super) eax: EaxEffect,
    pub(super) is_syscall: bool,
    /// Control does not reach the next instruction.
    pub(super) ends: bool,
}

impl Insn {
    pub(super) fn end(&self) -> u64 {
        self.ip + u64::from(self.len)
    }
}

/// A function, decoded.
#[derive(Debug)]
pub(crate) struct DecodedFunction {
    pub(super) insns: Vec<Insn>,
    /// The targets of its own jumps, sorted.
    targets: Vec<u64>,
    /// It jumps to computed addresses: any of its instructions may be a target.
    pub(super) has_computed_jumps: bool,
}

impl DecodedFunction {
    /// Decodes `bytes`, which lie at `ip`.
    pub(crate) fn decode(bytes: &[u8], ip: u64) -> Self {
        let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
        let mut info = InstructionInfoFactory::new();
        let mut function = Self { insns: Vec::new(), targets: Vec::new(), has_computed_jumps: false };
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            function.add(&decoder, &mut info, &instruction);
        }
        function.targets.sort_unstable();
        function
    }

    fn add(&mut self, decoder: &Decoder<'_>, info: &mut InstructionInfoFactory, instruction: &Instruction) {
        let flow = instruction.flow_control();
        if matches!(flow, FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch) && is_near(instruction) {
            self.targets.push(instruction.near_branch_target());
        }
        self.has_computed_jumps |= flow == FlowControl::IndirectBranch;
        self.insns.push(Insn {
            ip: instruction.ip(),
            len: instruction.len() as u8,
            relocation: relocation(decoder, instruction),
            eax: eax_effect(info, instruction),
            is_syscall: instruction.mnemonic() == Mnemonic::Syscall,
            ends: matches!(
                flow,
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception
            ),
        });
    }

    /// The index of the `syscall` instruction at `ip`, if there is one.
    pub(super) fn syscall_at(&self, ip: u64) -> Option<usize> {
        let index = self.insns.binary_search_by_key(&ip, |insn| insn.ip).ok()?;
        self.insns[index].is_syscall.then_some(index)
    }

    /// Whether a jump of this function lands strictly inside the range.
    pub(super) fn is_target_inside(&self, start: u64, end: u64) -> bool {
        let first = self.targets.partition_point(|&target| target <= start);
        self.targets.get(first).is_some_and(|&target| target < end)
    }
}

fn is_near(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

fn relocation(decoder: &Decoder<'_>, instruction: &Instruction) -> Relocation {
    match instruction.flow_control() {
        FlowControl::Next if instruction.is_ip_rel_memory_operand() => {
            let offsets = decoder.get_constant_offsets(instruction);
            if offsets.displacement_size() == 4 { Relocation::Displacement(offsets.displacement_offset() as u8) } else { Relocation::Never }
        }
        FlowControl::Next | FlowControl::Return => Relocation::None,
        FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => Relocation::Jump,
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Relocation::Jump,
        _ => Relocation::Never,
    }
}

fn eax_effect(info: &mut InstructionInfoFactory, instruction: &Instruction) -> EaxEffect {
    match instruction.code() {
        Code::Mov_r32_imm32 if instruction.op0_register() == Register::EAX => return EaxEffect::Constant(instruction.immediate32()),
        Code::Mov_rm64_imm32 if instruction.op0_register() == Register::RAX => {
            return EaxEffect::Constant(instruction.immediate32to64() as u32);
        }
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32
            if instruction.op0_register() == Register::EAX && instruction.op1_register() == Register::EAX =>
        {
            return EaxEffect::Constant(0);
        }
        // A call leaves its result there.
        _ if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) => return EaxEffect::Unknown,
        _ => {}
    }
    let is_write = |access| matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    let used = info.info(instruction).used_registers();
    let writes_rax = used.iter().any(|r| r.register().full_register() == Register::RAX && is_write(r.access()));
    if writes_rax { EaxEffect::Unknown } else { EaxEffect::Untouched }
}
