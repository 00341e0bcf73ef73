//! Functions of code that no table describes: of C libraries without unwind tables, of assembly, of
//! stripped static programs. A function starts where a call leads.
//!
//! That is a guess, so a site there counts only if control gets to it from where a call or jump
//! leads, and jumps of the code around it are looked at as well. What only an address leads to may
//! be data: a site there must take its number from a register that the code around it sets.

use alloc::vec::Vec;
use core::ops::Range;

use super::computed_targets::ComputedTargets;
use super::object::LoadedObject;
use super::plan::{PatchKind, Reason, SiteClass};
use crate::arch::{
    DecodedFunction, FarTarget, SHORT_JUMP_REACH, SYSCALL_INSN, classify, copies_a_number, for_each_called_word, for_each_far_target,
    for_each_function_pointer,
};

/// A site further behind the next call's target is not looked at.
const MAX_FUNCTION: u64 = 64 << 10;
/// As many calls' targets before a site are tried: the nearest one may be an inner one, or bytes
/// that only look like a call.
const ATTEMPTS: usize = 4;

/// Where functions start, as far as calls tell, sorted.
pub(super) struct CallTargets<'a> {
    object: &'a LoadedObject,
    starts: Vec<u64>,
    /// Where far jumps lead: to a function that ends a function, or into one.
    jumps: Vec<u64>,
    /// Addresses of code that the program loads or has stored: mostly of functions, too.
    pointers: Vec<u64>,
    computed: &'a ComputedTargets<'a>,
}

impl<'a> CallTargets<'a> {
    /// Those around the candidates, which are sorted.
    pub(super) fn around(object: &'a LoadedObject, candidates: &[u64], computed: &'a ComputedTargets<'a>) -> Self {
        let mut starts: Vec<u64> = object.executable.iter().flat_map(|segment| [segment.start, segment.end]).collect();
        let (mut jumps, mut pointers) = (Vec::new(), Vec::new());
        let (first, last) = (candidates.first().copied().unwrap_or_default(), candidates.last().copied().unwrap_or_default());
        let wanted = first.saturating_sub(MAX_FUNCTION)..last.saturating_add(MAX_FUNCTION);
        for segment in &object.executable {
            let Some(bytes) = object.bytes(segment.clone()) else { continue };
            for_each_far_target(bytes, segment.start, wanted.clone(), |target, kind| match kind {
                FarTarget::Call => starts.push(target),
                FarTarget::Jump => jumps.push(target),
            });
            for_each_called_word(bytes, segment.start, |word, kind| {
                // A word of code would be an instruction.
                let target = if object.is_executable(word) { None } else { object.u64_at(word) };
                match (target.filter(|target| wanted.contains(target)), kind) {
                    (Some(target), FarTarget::Call) => starts.push(target),
                    (Some(target), FarTarget::Jump) => jumps.push(target),
                    (None, _) => {}
                }
            });
            for_each_function_pointer(bytes, segment.start, wanted.clone(), |pointer| pointers.push(pointer));
        }
        pointers.extend(object.data_words().map(|(_, word)| word).filter(|word| wanted.contains(word)));
        for list in [&mut starts, &mut jumps, &mut pointers] {
            list.sort_unstable();
            list.dedup();
        }
        Self { object, starts, jumps, pointers, computed }
    }

    /// Classifies what may be a `syscall` instruction at this address.
    pub(super) fn classify(&self, candidate: u64) -> Option<SiteClass> {
        let starts = between(&self.starts, 0..candidate + 1);
        let end = *self.starts.get(starts.len())?;
        let mut unreached = None;
        for &start in starts.iter().rev().take(ATTEMPTS) {
            let range = start..end;
            let Some(function) = self.decode(&range, candidate) else { continue };
            let Some(class) = self.classify_in(&function, &range, candidate) else { continue };
            if self.is_reached(&function, &range, candidate) {
                return Some(class);
            }
            unreached = unreached.or(Some(without_path(class)));
        }
        unreached
    }

    /// Whether control gets there from where a call, a jump or an address leads.
    fn is_reached(&self, function: &DecodedFunction, range: &Range<u64>, candidate: u64) -> bool {
        let relative = |&at: &u64| at.wrapping_sub(self.object.base);
        let jumps = between(&self.jumps, range.clone()).iter();
        let pointers = between(&self.pointers, range.clone()).iter();
        let ip = relative(&candidate);
        function.is_reached([&range.start].into_iter().chain(jumps).map(relative), ip)
            || function.is_reached(pointers.map(relative), ip) && self.copies_a_number(range, candidate)
    }

    /// Whether the site is code although nothing but an address leads there, which may be data's.
    fn copies_a_number(&self, range: &Range<u64>, candidate: u64) -> bool {
        self.object.bytes(range.clone()).is_some_and(|code| copies_a_number(code, range.start, candidate))
    }

    fn classify_in(&self, function: &DecodedFunction, range: &Range<u64>, candidate: u64) -> Option<SiteClass> {
        let code = self.object.bytes(range.clone())?;
        let base = self.object.base;
        classify(function, code, range.start.wrapping_sub(base), candidate.wrapping_sub(base))
    }

    /// The function with the jumps of the code on either side of it. Addresses count from the
    /// object's base.
    fn decode(&self, range: &Range<u64>, candidate: u64) -> Option<DecodedFunction> {
        let is_near = candidate - range.start <= MAX_FUNCTION && range.end - candidate <= MAX_FUNCTION;
        if !is_near || range.end < candidate + SYSCALL_INSN.len() as u64 {
            return None;
        }
        let base = self.object.base;
        let (code, start) = (self.object.bytes(range.clone())?, range.start.wrapping_sub(base));
        let mut function = DecodedFunction::decode(code, start);
        self.computed.resolve(&mut function, code, start);
        for neighbour in self.neighbours(range) {
            if let Some(code) = self.object.bytes(neighbour.clone()) {
                function.add_jumps_of(code, neighbour.start.wrapping_sub(base));
            }
        }
        Some(function)
    }

    /// The code from which a short jump may lead into the range.
    fn neighbours(&self, range: &Range<u64>) -> [Range<u64>; 2] {
        let (from, to) = (range.start.saturating_sub(SHORT_JUMP_REACH), range.end.saturating_add(SHORT_JUMP_REACH));
        // Decoding that starts inside an instruction is in step again a few instructions on.
        let in_step = from.saturating_sub(SHORT_JUMP_REACH);
        let before = between(&self.starts, in_step..from + 1).last().copied().unwrap_or(in_step);
        let segment = self.object.executable.iter().find(|segment| segment.contains(&range.start));
        let bounds = segment.map_or(range.clone(), Clone::clone);
        [before.max(bounds.start)..range.start, range.end..to.min(bounds.end)]
    }
}

/// The addresses in this range.
fn between(sorted: &[u64], range: Range<u64>) -> &[u64] {
    let index = |address| sorted.partition_point(|&other| other < address);
    &sorted[index(range.start)..index(range.end)]
}

/// What becomes of a site that no known path leads to: only with a constant number that matters, it
/// cannot be data.
fn without_path(class: SiteClass) -> SiteClass {
    match class {
        SiteClass::Rewrite(plan) if plan.kind == PatchKind::NumberLoad => SiteClass::Rewrite(plan),
        SiteClass::NotIntercepted => SiteClass::NotIntercepted,
        SiteClass::Rewrite(_) | SiteClass::LeftAlone(_) => SiteClass::LeftAlone(Reason::MaybeData),
    }
}
