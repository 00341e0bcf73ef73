//! Finding the system call instructions of an object: first the byte pair, then whether it is an
//! instruction, then how it is rewritten.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ops::Range;

use super::object::LoadedObject;
use super::plan::{Findings, PatchKind, PatchPlan, SiteClass, matters_everywhere};
use super::unwind::Functions;
use crate::arch::{DecodedFunction, SYSCALL_INSN, classify, find_number_load, for_each_far_target, for_each_syscall};
use crate::convert::{address, count};
use crate::symbol_table::SymbolTable;

/// Searches all of an object's code.
pub(super) fn scan(object: &LoadedObject) -> Findings {
    scan_ranges(object, &object.executable)
}

fn scan_ranges(object: &LoadedObject, code: &[Range<u64>]) -> Findings {
    let mut candidates = Vec::new();
    for range in code {
        if let Some(bytes) = object.bytes(range.clone()) {
            for_each_syscall(bytes, |offset| candidates.push(range.start + offset as u64));
        }
    }
    let mut findings = classify_all(object, &candidates);
    keep_relevant(&mut findings);
    drop_jump_targets(object, &mut findings);
    findings.plans.sort_by_key(|plan| plan.start);
    drop_overlapping(&mut findings);
    findings
}

/// Searches these functions alone.
pub(super) fn scan_functions(object: &LoadedObject, names: &[&CStr]) -> Findings {
    let (Some(functions), Some(dynamic)) = (Functions::of(object), object.dynamic) else { return Findings::default() };
    // SAFETY: the object's own tables; it stays loaded meanwhile.
    let symbols = unsafe { SymbolTable::new(address(object.base), address(dynamic)) };
    let mut ranges: Vec<Range<u64>> = names.iter().filter_map(|name| functions.containing(symbols.function(name)? as u64)).collect();
    // Two names may be one function.
    ranges.sort_by_key(|range| range.start);
    ranges.dedup();
    scan_ranges(object, &ranges)
}

fn classify_all(object: &LoadedObject, candidates: &[u64]) -> Findings {
    let functions = Functions::of(object);
    let mut findings = Findings::default();
    let mut by_function: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
    let mut unlisted = Vec::new();
    for &candidate in candidates {
        match functions.as_ref().and_then(|f| f.containing(candidate)) {
            Some(range) => by_function.entry(range.start).or_insert((range.end, Vec::new())).1.push(candidate),
            None => unlisted.push(candidate),
        }
    }
    for (start, (end, candidates)) in by_function {
        let Some(code) = object.bytes(start..end) else { continue };
        // Addresses in plans count from the object's base.
        let start = start.wrapping_sub(object.base);
        let function = DecodedFunction::decode(code, start);
        for candidate in candidates {
            match classify(&function, code, start, candidate.wrapping_sub(object.base)) {
                Some(SiteClass::Rewrite(plan)) => findings.plans.push(plan),
                Some(SiteClass::Unpatchable) => findings.unpatchable += 1,
                Some(SiteClass::NotIntercepted) | None => {}
            }
        }
    }
    findings.plans.extend(unlisted.into_iter().filter_map(|candidate| plan_without_function(object, candidate)));
    findings
}

/// A site in no function that the unwind tables list: rewritten only if a number that matters in
/// every object is loaded right before it, so that it cannot be data.
fn plan_without_function(object: &LoadedObject, candidate: u64) -> Option<PatchPlan> {
    const LOOK_BACK: u64 = 40;
    let segment = object.executable.iter().find(|s| s.contains(&candidate))?;
    let from = candidate.saturating_sub(LOOK_BACK).max(segment.start);
    let code = object.bytes(from..(candidate + SYSCALL_INSN.len() as u64).min(segment.end))?;
    let at = find_number_load(code, matters_everywhere)?;
    let start = (from + at as u64).wrapping_sub(object.base);
    let code = &code[at..];
    let function = DecodedFunction::decode(code, start);
    match classify(&function, code, start, candidate.wrapping_sub(object.base))? {
        SiteClass::Rewrite(plan) if plan.kind == PatchKind::NumberLoad && matters_everywhere(plan.nr) => Some(plan),
        _ => None,
    }
}

/// Drops the sites that code elsewhere jumps into.
///
/// Other functions (above all the unlikely halves that compilers split off) may jump into a
/// function. Every direct jump or call in the object, at whatever alignment, counts. Bytes that
/// only look like a jump to one of these few places cost at most a site.
fn drop_jump_targets(object: &LoadedObject, findings: &mut Findings) {
    let windows: Vec<(u64, u64)> = findings.plans.iter().filter_map(PatchPlan::window).collect();
    let (Some(low), Some(high)) = (windows.iter().map(|w| w.0).min(), windows.iter().map(|w| w.1).max()) else { return };
    let mut targets = Vec::new();
    for segment in &object.executable {
        let Some(bytes) = object.bytes(segment.clone()) else { continue };
        let start = segment.start.wrapping_sub(object.base);
        for_each_far_target(bytes, start, low..high, |target| targets.push(target));
    }
    let is_target = |plan: &PatchPlan| plan.window().is_some_and(|(from, to)| targets.iter().any(|&target| from < target && target < to));
    let before = findings.plans.len();
    findings.plans.retain(|plan| !is_target(plan));
    findings.unpatchable += count(before - findings.plans.len());
}

/// Of an object that issues no io_uring call, only the sites that matter everywhere stay: its own
/// mmap and poll do not concern a ring, but its setuid concerns the workers, and its close a number
/// that requests use.
fn keep_relevant(findings: &mut Findings) {
    if !findings.plans.iter().any(|plan| plan.is_ring() || plan.has_any_number()) {
        findings.plans.retain(|plan| matters_everywhere(plan.nr));
    }
}

/// Two sites close together may need the same bytes: the first one gets them.
fn drop_overlapping(findings: &mut Findings) {
    let mut free_from = 0;
    let before = findings.plans.len();
    findings.plans.retain(|plan| {
        let is_free = plan.start >= free_from;
        if is_free {
            free_from = plan.end();
        }
        is_free
    });
    findings.unpatchable += count(before - findings.plans.len());
}

#[cfg(test)]
mod tests {
    use super::super::plan::ANY_NUMBER;
    use super::*;
    use uringlet_sys::Sysno;

    fn kept(numbers: &[u32]) -> Vec<u32> {
        let plan = |&nr: &u32| PatchPlan { kind: PatchKind::NumberLoad, nr, start: 0, syscall: 0, bytes: Vec::new(), moved: Vec::new() };
        let mut findings = Findings { plans: numbers.iter().map(plan).collect(), unpatchable: 0 };
        keep_relevant(&mut findings);
        findings.plans.iter().map(|plan| plan.nr).collect()
    }

    #[test]
    fn an_object_without_rings_keeps_what_changes_an_identity_or_a_number() {
        let (mmap, setuid, close) = (Sysno::mmap as u32, Sysno::setuid as u32, Sysno::close as u32);
        assert_eq!(kept(&[mmap, setuid, close]), [setuid, close]);
        assert!(kept(&[mmap]).is_empty());
    }

    #[test]
    fn an_object_with_rings_keeps_all() {
        let (mmap, enter) = (Sysno::mmap as u32, Sysno::io_uring_enter as u32);
        assert_eq!(kept(&[mmap, enter]), [mmap, enter]);
        assert_eq!(kept(&[mmap, ANY_NUMBER]), [mmap, ANY_NUMBER]);
    }
}
