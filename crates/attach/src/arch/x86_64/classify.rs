//! Deciding how one `syscall` instruction is rewritten. Pure: bytes in, plan out.
//!
//! | kind            | overwritten                             | needs                              |
//! |-----------------|-----------------------------------------|---------------------------------
//! | `NumberLoad`    | the instruction that loads the number   | a constant in five bytes or more   |
//! | `BeforeSyscall` | whole instructions before the `syscall` | five bytes, no jump between them   |
//! | `OverSyscall`   | instructions before, and the `syscall`  | the same, no jump to the `syscall` |
//! | `AfterSyscall`  | the `syscall`, and instructions behind  | no jump between them               |
//!
//! `NumberLoad` is the safest: no jump can land inside one instruction, and a jump straight to the
//! `syscall` finds it in place. `BeforeSyscall` leaves the `syscall` in place too. libc's thread
//! cancellation relies on that where it compares the program counter with the instruction's
//! address.

use super::disasm::{DecodedFunction, EaxEffect, Insn};
use super::encoding::{JUMP_BYTES, SYSCALL_BYTES, jump_target};
use crate::convert::address;
use crate::intercepted::is_intercepted;
use crate::rewrite::{ANY_NUMBER, MovedInsn, PatchKind, PatchPlan, Reason, Relocation, SiteClass};

/// The longest gap between number and `syscall` that is worth moving.
const MAX_GAP: u64 = 96;

/// Whether the patch overwrites more than one instruction, so that a jump may land between two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Boundaries {
    Outside,
    Within,
}

/// What is known of a site's number.
struct SiteNumber {
    eax: EaxEffect,
    /// The instruction that loads it.
    loaded_at: usize,
    /// Some jump lands between that instruction and the `syscall`.
    is_joined: bool,
}

/// Classifies the `syscall` at `ip` of `function`, whose bytes are `code` from `start` on. `None`:
/// no `syscall` instruction starts there.
pub(crate) fn classify(function: &DecodedFunction, code: &[u8], start: u64, ip: u64) -> Option<SiteClass> {
    let planner = SitePlanner { function, code, start, index: function.syscall_at(ip)? };
    let number = planner.number();
    let plan = match number.eax {
        EaxEffect::Constant(nr) if !number.is_joined && !is_intercepted(nr) => return Some(SiteClass::NotIntercepted),
        EaxEffect::Constant(nr) if !number.is_joined => planner.constant(nr, number.loaded_at),
        // A path that joins brings another number: all of them go through the lookup, unless only
        // the constant one can be rewritten.
        EaxEffect::Constant(nr) => {
            let constant = |reason| if is_intercepted(nr) { planner.constant(nr, number.loaded_at) } else { Err(reason) };
            planner.any_number().or_else(constant)
        }
        EaxEffect::Untouched | EaxEffect::Unknown => planner.any_number(),
    };
    Some(plan.map_or_else(SiteClass::LeftAlone, SiteClass::Rewrite))
}

/// A plan for the `syscall` at `ip` if its number is a constant that `wanted` accepts on every path
/// that leads there.
pub(crate) fn plan_constant(
    function: &DecodedFunction,
    code: &[u8],
    start: u64,
    ip: u64,
    wanted: impl Fn(u32) -> bool,
) -> Option<PatchPlan> {
    let planner = SitePlanner { function, code, start, index: function.syscall_at(ip)? };
    let number = planner.number();
    match number.eax {
        EaxEffect::Constant(nr) if wanted(nr) && !number.is_joined => planner.constant(nr, number.loaded_at).ok(),
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

    /// Walks back to the instruction that loads `eax`.
    fn number(&self) -> SiteNumber {
        let insns = &self.function.insns;
        let ip = self.syscall().ip;
        for i in (0..self.index).rev() {
            let insn = &insns[i];
            // A `pop` loads what the path that led to it has pushed.
            let is_joined = self.function.is_target_inside(insn.ip - u64::from(insn.is_pop), ip + 1);
            if insn.ends || ip - insn.ip > MAX_GAP {
                break;
            }
            if insn.eax != EaxEffect::Untouched {
                return SiteNumber { eax: insn.eax, loaded_at: i, is_joined };
            }
        }
        SiteNumber { eax: EaxEffect::Unknown, loaded_at: self.index, is_joined: false }
    }

    fn constant(&self, nr: u32, loaded_at: usize) -> Result<PatchPlan, Reason> {
        let loader = &self.function.insns[loaded_at];
        let gap = &self.function.insns[loaded_at + 1..self.index];
        let is_movable = |i: &Insn| i.relocation != Relocation::Never && !i.is_syscall;
        let jumps_within = |i: &Insn| i.relocation == Relocation::Jump && self.jumps_into(i, loader.ip, self.syscall().end());
        let fits = u64::from(loader.len) >= JUMP_BYTES && gap.iter().all(|i| is_movable(i) && !jumps_within(i));
        if !fits {
            return self.any_number().map(|plan| PatchPlan { nr, ..plan });
        }
        Ok(self.plan(PatchKind::NumberLoad, nr, loaded_at, self.index))
    }

    /// Whether a jump leads to an address strictly between `from` and `to`: the program must not
    /// return there from the trampoline.
    fn jumps_into(&self, insn: &Insn, from: u64, to: u64) -> bool {
        let bytes = &self.code[address(insn.ip - self.start)..address(insn.end() - self.start)];
        jump_target(bytes, insn.ip).is_none_or(|target| target > from && target < to)
    }

    fn any_number(&self) -> Result<PatchPlan, Reason> {
        let ip = self.syscall().ip;
        // A jump to the `syscall` passes by what is patched before it: two numbers that are loaded
        // on two paths, for one.
        if self.function.is_target_inside(ip - 1, ip + 1) {
            return self.after_syscall().or_else(|reason| self.around_syscall(reason));
        }
        self.around_syscall(Reason::NoRoom)
    }

    /// `BeforeSyscall`, `OverSyscall` or `AfterSyscall`. `so_far`: why there is no other plan.
    fn around_syscall(&self, so_far: Reason) -> Result<PatchPlan, Reason> {
        self.before_syscall(PatchKind::BeforeSyscall, JUMP_BYTES)
            .or_else(|reason| self.before_syscall(PatchKind::OverSyscall, JUMP_BYTES - SYSCALL_BYTES).map_err(|other| other.max(reason)))
            .or_else(|reason| self.after_syscall().map_err(|other| other.max(reason)))
            .map_err(|reason| reason.max(so_far))
    }

    /// `BeforeSyscall` and `OverSyscall`: at least `wanted` bytes of instructions before the
    /// `syscall`.
    fn before_syscall(&self, kind: PatchKind, wanted: u64) -> Result<PatchPlan, Reason> {
        let ip = self.syscall().ip;
        let mut first = self.index;
        while ip - self.function.insns[first].ip < wanted {
            first = first.checked_sub(1).ok_or(Reason::NoRoom)?;
            let insn = &self.function.insns[first];
            if insn.ends || insn.is_syscall || !matches!(insn.relocation, Relocation::None | Relocation::Displacement(_)) {
                return Err(Reason::NoRoom);
            }
        }
        let plan = self.plan(kind, ANY_NUMBER, first, self.index);
        let is_one_insn = self.index - first == 1 && kind == PatchKind::BeforeSyscall;
        self.without_inner_target(plan, if is_one_insn { Boundaries::Outside } else { Boundaries::Within })
    }

    /// `AfterSyscall`: the `syscall` and the instructions that follow.
    fn after_syscall(&self) -> Result<PatchPlan, Reason> {
        let start = self.syscall().ip;
        let mut last = self.index;
        while self.function.insns[last].end() - start < JUMP_BYTES {
            // Behind a return or jump lies padding or another function.
            if self.function.insns[last].ends {
                return Err(Reason::NoRoom);
            }
            last += 1;
            let insn = self.function.insns.get(last).ok_or(Reason::NoRoom)?;
            if insn.relocation == Relocation::Never || insn.is_syscall {
                return Err(Reason::NoRoom);
            }
        }
        self.without_inner_target(self.plan(PatchKind::AfterSyscall, ANY_NUMBER, self.index, last), Boundaries::Within)
    }

    /// The plan, if no jump of this function is known to land between the overwritten instructions.
    /// Where the targets of computed jumps are not listed, nothing is known.
    fn without_inner_target(&self, plan: PatchPlan, boundaries: Boundaries) -> Result<PatchPlan, Reason> {
        match plan.window() {
            Some(_) if boundaries == Boundaries::Within && self.function.has_computed_jumps() => Err(Reason::ComputedJumps),
            Some((from, to)) if self.function.is_target_inside(from, to) => Err(Reason::JumpTarget),
            _ => Ok(plan),
        }
    }

    fn plan(&self, kind: PatchKind, nr: u32, first: usize, last: usize) -> PatchPlan {
        let insns = &self.function.insns[first..=last];
        let start = insns[0].ip;
        let range = address(start - self.start)..address(insns[insns.len() - 1].end() - self.start);
        let moved = insns.iter().filter(|i| !i.is_syscall).map(|i| MovedInsn { len: i.len, relocation: i.relocation }).collect();
        PatchPlan { kind, nr, start, syscall: (self.syscall().ip - start) as u8, bytes: self.code[range].to_vec(), moved }
    }
}

#[cfg(test)]
mod tests;
