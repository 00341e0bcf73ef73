//! One function's instructions, and what each means for rewriting.

use alloc::vec;
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
    pub(super) is_pop: bool,
    /// Where it jumps, if that is in the instruction.
    target: Option<u64>,
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
    /// The targets of its own jumps, and of those of the code around it, sorted.
    targets: Vec<u64>,
    /// It jumps to computed addresses that are not listed: any of its instructions may be a target.
    has_computed_jumps: bool,
    /// The number that the last instruction has pushed, while decoding.
    pushed: Option<u32>,
}

impl DecodedFunction {
    /// Decodes `bytes`, which lie at `ip`.
    pub(crate) fn decode(bytes: &[u8], ip: u64) -> Self {
        let mut function = Self { insns: Vec::new(), targets: Vec::new(), has_computed_jumps: false, pushed: None };
        let mut info = InstructionInfoFactory::new();
        for_each_insn(bytes, ip, |decoder, instruction| function.add(decoder, &mut info, instruction));
        function.targets.extend(function.insns.iter().filter_map(|insn| insn.target));
        function.targets.sort_unstable();
        function
    }

    /// The jumps of this code at `ip`, which is not the function's, may lead into it as well.
    pub(crate) fn add_jumps_of(&mut self, bytes: &[u8], ip: u64) {
        for_each_insn(bytes, ip, |_, instruction| self.targets.extend(target(instruction)));
        self.targets.sort_unstable();
    }

    /// Whether any of its instructions may be the target of a computed jump.
    pub(crate) fn has_computed_jumps(&self) -> bool {
        self.has_computed_jumps
    }

    /// Whether a known jump leads there.
    pub(crate) fn is_target(&self, ip: u64) -> bool {
        self.targets.binary_search(&ip).is_ok()
    }

    /// All targets of its computed jumps are among these.
    pub(crate) fn set_computed_targets(&mut self, targets: impl Iterator<Item = u64>) {
        self.targets.extend(targets);
        self.targets.sort_unstable();
        self.has_computed_jumps = false;
    }

    /// Whether control gets from one of `roots` to the instruction at `ip`, by direct jumps alone.
    pub(crate) fn is_reached(&self, roots: impl Iterator<Item = u64>, ip: u64) -> bool {
        let mut is_visited = vec![false; self.insns.len()];
        let mut starts: Vec<usize> = roots.filter_map(|root| self.index_of(root)).collect();
        while let Some(start) = starts.pop() {
            for (insn, is_visited) in self.insns[start..].iter().zip(&mut is_visited[start..]) {
                if insn.ip == ip {
                    return true;
                }
                if core::mem::replace(is_visited, true) {
                    break;
                }
                starts.extend(insn.target.and_then(|target| self.index_of(target)));
                if insn.ends {
                    break;
                }
            }
        }
        false
    }

    fn index_of(&self, ip: u64) -> Option<usize> {
        self.insns.binary_search_by_key(&ip, |insn| insn.ip).ok()
    }

    fn add(&mut self, decoder: &Decoder<'_>, info: &mut InstructionInfoFactory, instruction: &Instruction) {
        let flow = instruction.flow_control();
        self.has_computed_jumps |= flow == FlowControl::IndirectBranch;
        let eax = match eax_effect(info, instruction) {
            EaxEffect::Unknown if instruction.code() == Code::Pop_r64 => self.pushed.map_or(EaxEffect::Unknown, EaxEffect::Constant),
            effect => effect,
        };
        self.pushed = (instruction.code() == Code::Pushq_imm8).then(|| u32::from(instruction.immediate8()));
        self.insns.push(Insn {
            ip: instruction.ip(),
            len: instruction.len() as u8,
            relocation: relocation(decoder, instruction),
            eax,
            is_syscall: instruction.mnemonic() == Mnemonic::Syscall,
            is_pop: instruction.mnemonic() == Mnemonic::Pop,
            target: target(instruction),
            ends: matches!(
                flow,
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception
            ),
        });
    }

    /// The index of the `syscall` instruction at `ip`, if there is one.
    pub(super) fn syscall_at(&self, ip: u64) -> Option<usize> {
        let index = self.index_of(ip)?;
        self.insns[index].is_syscall.then_some(index)
    }

    /// Whether a known jump lands strictly inside the range.
    pub(super) fn is_target_inside(&self, start: u64, end: u64) -> bool {
        let first = self.targets.partition_point(|&target| target <= start);
        self.targets.get(first).is_some_and(|&target| target < end)
    }
}

fn for_each_insn(bytes: &[u8], ip: u64, mut found: impl FnMut(&Decoder<'_>, &Instruction)) {
    let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        found(&decoder, &instruction);
    }
}

/// Where the instruction jumps, if that is in it.
fn target(instruction: &Instruction) -> Option<u64> {
    let is_jump = matches!(instruction.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch);
    let is_near = matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
    (is_jump && is_near).then(|| instruction.near_branch_target())
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
