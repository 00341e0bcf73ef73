//! Deciding how one `syscall` instruction is rewritten. Pure: bytes in, plan out.
//!
//! | kind | overwritten                                   | needs                                                       |
//! |------|-----------------------------------------------|-------------------------------------------------------------|
//! | P1   | the instruction that loads the number, alone  | a constant number in five bytes or more                     |
//! | P0   | whole instructions before the `syscall`       | five bytes of them, and nobody jumps between them           |
//! | P2   | instructions before and the `syscall`         | the same, and nobody jumps to the `syscall` either          |
//! | P3   | the `syscall` and instructions behind it      | nobody jumps between them                                   |
//!
//! P1 is the safest: no jump can land inside one instruction, and who jumps straight to the `syscall` finds it in place. P0 leaves the `syscall` in place
//! too, which libc's thread cancellation counts on where it looks at the program counter.

use alloc::vec::Vec;

use super::disasm::{DecodedFunction, EaxEffect, Insn, Relocation};
use crate::dispatch::is_intercepted;

/// Bytes of a `jmp` with a four-byte displacement.
pub(super) const JUMP_BYTES: u64 = 5;
pub(super) const SYSCALL_BYTES: u64 = 2;
/// The number comes from a register: looked up each time.
pub(super) const ANY_NUMBER: u32 = u32::MAX;
/// The longest gap between number and `syscall` that is worth moving.
const MAX_GAP: u64 = 96;

const RING_NUMBERS: core::ops::RangeInclusive<u32> = 425..=427;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchKind {
    BeforeSyscall,
    NumberLoad,
    OverSyscall,
    AfterSyscall,
}

impl PatchKind {
    /// The original `syscall` instruction stays in place.
    pub(super) fn keeps_syscall(self) -> bool {
        matches!(self, Self::BeforeSyscall | Self::NumberLoad)
    }
}

/// An instruction that moves into the trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MovedInsn {
    pub(super) len: u8,
    pub(super) relocation: Relocation,
}

/// How one site is rewritten. Addresses are relative to the object's load address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PatchPlan {
    pub(super) kind: PatchKind,
    /// The system call's number, or [`ANY_NUMBER`].
    pub(super) nr: u32,
    pub(super) start: u64,
    /// Where the `syscall` is, from `start`.
    pub(super) syscall: u8,
    /// What is there now, from `start` to where the program goes on.
    pub(super) bytes: Vec<u8>,
    /// The instructions in `bytes`, without the `syscall`.
    pub(super) moved: Vec<MovedInsn>,
}

impl PatchPlan {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(super) fn is_ring(&self) -> bool {
        RING_NUMBERS.contains(&self.nr)
    }

    pub(super) fn is_generic(&self) -> bool {
        self.nr == ANY_NUMBER
    }

    /// Where a jump from elsewhere would break the plan: strictly between these.
    pub(super) fn window(&self) -> Option<(u64, u64)> {
        let from_syscall = self.start + u64::from(self.syscall);
        match self.kind {
            PatchKind::NumberLoad => None,
            PatchKind::BeforeSyscall => Some((self.start, from_syscall)),
            PatchKind::OverSyscall => Some((self.start, self.end())),
            PatchKind::AfterSyscall => Some((self.start, self.end())),
        }
    }
}

/// What a site is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SiteClass {
    Rewrite(PatchPlan),
    /// Its number is constant and none of ours.
    NotIntercepted,
    /// It might concern us and cannot be rewritten.
    Unpatchable,
}

/// What is known of a site's number.
struct Number {
    eax: EaxEffect,
    /// The instruction that loads it.
    loaded_at: usize,
    /// Some jump lands between there and the `syscall`.
    joined: bool,
}

/// Judges the `syscall` at `ip` of `function`, whose bytes are `code` from `start` on.
pub(super) fn classify(function: &DecodedFunction, code: &[u8], start: u64, ip: u64) -> Option<SiteClass> {
    let index = function.index_of(ip).filter(|&i| function.insns[i].is_syscall)?;
    let planner = SitePlanner { function, code, start, index };
    let number = planner.number();
    Some(match number.eax {
        EaxEffect::Constant(nr) if !number.joined && !is_intercepted(nr) => SiteClass::NotIntercepted,
        EaxEffect::Constant(nr) if !number.joined => {
            planner.constant(nr, number.loaded_at).map_or(SiteClass::Unpatchable, SiteClass::Rewrite)
        }
        // A path of its own brings another number: all of them go through the lookup, unless only the constant one can be had.
        EaxEffect::Constant(nr) => {
            let constant = || is_intercepted(nr).then(|| planner.constant(nr, number.loaded_at)).flatten();
            planner.generic().or_else(constant).map_or(SiteClass::Unpatchable, SiteClass::Rewrite)
        }
        _ => planner.generic().map_or(SiteClass::Unpatchable, SiteClass::Rewrite),
    })
}

/// P1 for the `syscall` at `ip`, if its number is a constant that `wanted` accepts, whatever path leads there.
pub(super) fn constant_site(
    function: &DecodedFunction,
    code: &[u8],
    start: u64,
    ip: u64,
    wanted: impl Fn(u32) -> bool,
) -> Option<PatchPlan> {
    let index = function.index_of(ip).filter(|&i| function.insns[i].is_syscall)?;
    let planner = SitePlanner { function, code, start, index };
    let number = planner.number();
    match number.eax {
        EaxEffect::Constant(nr) if wanted(nr) && !number.joined => planner.constant(nr, number.loaded_at),
        _ => None,
    }
}

struct SitePlanner<'a> {
    function: &'a DecodedFunction,
    code: &'a [u8],
    start: u64,
    index: usize,
}

impl SitePlanner<'_> {
    fn syscall(&self) -> &Insn {
        &self.function.insns[self.index]
    }

    /// Walks back to where `eax` is loaded.
    fn number(&self) -> Number {
        let insns = &self.function.insns;
        let ip = self.syscall().ip;
        for i in (0..self.index).rev() {
            let insn = &insns[i];
            let joined = self.function.is_target_inside(insn.ip, ip + 1);
            if insn.ends || ip - insn.ip > MAX_GAP {
                break;
            }
            if insn.eax != EaxEffect::Untouched {
                return Number { eax: insn.eax, loaded_at: i, joined };
            }
        }
        Number { eax: EaxEffect::Unknown, loaded_at: self.index, joined: false }
    }

    fn constant(&self, nr: u32, loaded_at: usize) -> Option<PatchPlan> {
        let loader = &self.function.insns[loaded_at];
        let moved = &self.function.insns[loaded_at..self.index];
        let gap = &moved[1..];
        let jumps_within = gap.iter().any(|i| i.relocation == Relocation::Jump && self.jumps_into(i, loader.ip, self.syscall().end()));
        let fits =
            u64::from(loader.len) >= JUMP_BYTES && gap.iter().all(|i| i.relocation != Relocation::Never && !i.is_syscall) && !jumps_within;
        if !fits {
            return self.generic().map(|plan| PatchPlan { nr, ..plan });
        }
        Some(self.plan(PatchKind::NumberLoad, nr, loaded_at, self.index))
    }

    /// Whether a jump leads to where the program must not come back to from the trampoline.
    fn jumps_into(&self, insn: &Insn, from: u64, to: u64) -> bool {
        let bytes = &self.code[(insn.ip - self.start) as usize..(insn.end() - self.start) as usize];
        jump_target(bytes, insn.ip).is_none_or(|target| target > from && target < to)
    }

    fn generic(&self) -> Option<PatchPlan> {
        self.before(PatchKind::BeforeSyscall, JUMP_BYTES)
            .or_else(|| self.before(PatchKind::OverSyscall, JUMP_BYTES - SYSCALL_BYTES))
            .or_else(|| self.behind())
    }

    /// P0 and P2: at least `wanted` bytes of instructions before the `syscall`.
    fn before(&self, kind: PatchKind, wanted: u64) -> Option<PatchPlan> {
        let ip = self.syscall().ip;
        let mut first = self.index;
        while ip - self.function.insns[first].ip < wanted {
            first = first.checked_sub(1)?;
            let insn = &self.function.insns[first];
            if insn.ends || insn.is_syscall || !matches!(insn.relocation, Relocation::None | Relocation::Displacement(_)) {
                return None;
            }
        }
        let plan = self.plan(kind, ANY_NUMBER, first, self.index);
        self.is_undisturbed(&plan, self.index - first > 1 || kind == PatchKind::OverSyscall).then_some(plan)
    }

    /// P3: the `syscall` and what follows.
    fn behind(&self) -> Option<PatchPlan> {
        let start = self.syscall().ip;
        let mut last = self.index;
        while self.function.insns[last].end() - start < JUMP_BYTES {
            // What lies behind a return or jump is padding or somebody else's.
            if self.function.insns[last].ends {
                return None;
            }
            last += 1;
            let insn = self.function.insns.get(last)?;
            if insn.relocation == Relocation::Never || insn.is_syscall {
                return None;
            }
        }
        let plan = self.plan(PatchKind::AfterSyscall, ANY_NUMBER, self.index, last);
        self.is_undisturbed(&plan, true).then_some(plan)
    }

    /// Nobody is known to jump between the overwritten instructions. Where jumps are computed, nothing is known.
    fn is_undisturbed(&self, plan: &PatchPlan, has_boundaries: bool) -> bool {
        let Some((from, to)) = plan.window() else { return true };
        !(self.function.is_target_inside(from, to) || has_boundaries && self.function.computed_jumps)
    }

    fn plan(&self, kind: PatchKind, nr: u32, first: usize, last: usize) -> PatchPlan {
        let insns = &self.function.insns[first..=last];
        let start = insns[0].ip;
        let range = (start - self.start) as usize..(insns[insns.len() - 1].end() - self.start) as usize;
        let moved = insns.iter().filter(|i| !i.is_syscall).map(|i| MovedInsn { len: i.len, relocation: i.relocation }).collect();
        PatchPlan { kind, nr, start, syscall: (self.syscall().ip - start) as u8, bytes: self.code[range].to_vec(), moved }
    }
}

/// Where a direct jump at `ip` leads: short (`eb`, `7x`) or near (`e9`, `0f 8x`).
pub(super) fn jump_target(bytes: &[u8], ip: u64) -> Option<u64> {
    let end = ip.wrapping_add(bytes.len() as u64);
    let displacement = match *bytes {
        [0xeb | 0x70..=0x7f, d] => i64::from(d as i8),
        [0xe9, a, b, c, d] | [0x0f, 0x80..=0x8f, a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        _ => return None,
    };
    Some(end.wrapping_add_signed(displacement))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
