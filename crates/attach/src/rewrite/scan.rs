//! Finding the system call instructions of an object: first the byte pair, then whether it is an
//! instruction, then how it is rewritten.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ops::Range;

use super::call_targets::CallTargets;
use super::computed_targets::ComputedTargets;
use super::go_table::GoTable;
use super::object::LoadedObject;
use super::plan::{Findings, LeftAlone, PatchPlan, Reason, SiteClass, matters_everywhere};
use super::relocations;
use super::unwind::Functions;
use crate::arch::{DecodedFunction, classify, for_each_far_target, for_each_syscall};

/// Searches all of an object's code.
pub(super) fn scan(object: &LoadedObject) -> Findings {
    scan_ranges(&object.with_relocated(relocations::relative(object)), &object.executable)
}

fn scan_ranges(object: &LoadedObject, code: &[Range<u64>]) -> Findings {
    let mut candidates = Vec::new();
    for range in code {
        if let Some(bytes) = object.bytes(range.clone()) {
            for_each_syscall(bytes, |offset| candidates.push(range.start + offset as u64));
        }
    }
    let mut findings = classify_all(object, &candidates);
    if !object.is_static {
        keep_relevant(&mut findings);
    }
    findings.plans.sort_by_key(|plan| plan.start);
    drop_overlapping(&mut findings);
    drop_jump_targets(object, &mut findings);
    findings.left.sort_by_key(|site| site.at);
    findings
}

/// Searches these functions alone.
pub(super) fn scan_functions(object: &LoadedObject, names: &[&CStr]) -> Findings {
    let (Some(functions), Some(symbols)) = (Functions::of(object), object.symbols()) else { return Findings::default() };
    let mut ranges: Vec<Range<u64>> = names.iter().filter_map(|name| functions.containing(symbols.function(name)? as u64)).collect();
    // Two names may be one function.
    ranges.sort_by_key(|range| range.start);
    ranges.dedup();
    scan_ranges(object, &ranges)
}

fn classify_all(object: &LoadedObject, candidates: &[u64]) -> Findings {
    let mut findings = Findings::default();
    let unwind = Functions::of(object);
    let computed = ComputedTargets::of(object);
    let rest = classify_listed(object, candidates, |at| unwind.as_ref()?.containing(at), &computed, &mut findings);
    if rest.is_empty() {
        return findings;
    }
    let go = GoTable::of(object);
    let rest = classify_listed(object, &rest, |at| go.as_ref()?.containing(at), &computed, &mut findings);
    if !rest.is_empty() {
        let functions = CallTargets::around(object, &rest, &computed);
        for candidate in rest {
            add(object, functions.classify(candidate), candidate, &mut findings);
        }
    }
    findings
}

/// Classifies the candidates that lie in a function of a table. Returns the others.
fn classify_listed(
    object: &LoadedObject,
    candidates: &[u64],
    function: impl Fn(u64) -> Option<Range<u64>>,
    computed: &ComputedTargets<'_>,
    findings: &mut Findings,
) -> Vec<u64> {
    let mut by_function: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
    let mut rest = Vec::new();
    for &candidate in candidates {
        match function(candidate) {
            Some(range) => by_function.entry(range.start).or_insert((range.end, Vec::new())).1.push(candidate),
            None => rest.push(candidate),
        }
    }
    for (start, (end, candidates)) in by_function {
        let Some(code) = object.bytes(start..end) else { continue };
        // Addresses in plans count from the object's base.
        let start = start.wrapping_sub(object.base);
        let mut function = DecodedFunction::decode(code, start);
        computed.resolve(&mut function, code, start);
        for candidate in candidates {
            add(object, classify(&function, code, start, candidate.wrapping_sub(object.base)), candidate, findings);
        }
    }
    rest
}

fn add(object: &LoadedObject, class: Option<SiteClass>, candidate: u64, findings: &mut Findings) {
    match class {
        Some(SiteClass::Rewrite(plan)) => findings.plans.push(plan),
        Some(SiteClass::LeftAlone(reason)) => findings.left.push(LeftAlone { at: candidate.wrapping_sub(object.base), reason }),
        Some(SiteClass::NotIntercepted) | None => {}
    }
}

/// Drops the sites that code elsewhere jumps into. The plans are sorted and do not overlap.
///
/// Other functions (above all the unlikely halves that compilers split off) may jump into a
/// function. Every direct jump or call in the object, at whatever alignment, counts. Bytes that
/// only look like a jump to one of these few places cost at most a site.
fn drop_jump_targets(object: &LoadedObject, findings: &mut Findings) {
    let windows: Vec<(u64, u64)> = findings.plans.iter().filter_map(PatchPlan::window).collect();
    let (Some(&(low, _)), Some(&(_, high))) = (windows.first(), windows.last()) else { return };
    let mut hit = BTreeSet::new();
    for segment in &object.executable {
        let Some(bytes) = object.bytes(segment.clone()) else { continue };
        let start = segment.start.wrapping_sub(object.base);
        for_each_far_target(bytes, start, low..high, |target, _| {
            let before = windows.partition_point(|&(from, _)| from < target);
            hit.extend(before.checked_sub(1).map(|at| windows[at]).filter(|&(_, to)| target < to));
        });
    }
    findings.retain(Reason::JumpTarget, |plan| plan.window().is_none_or(|window| !hit.contains(&window)));
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
    findings.retain(Reason::Overlap, |plan| {
        let is_free = plan.start >= free_from;
        if is_free {
            free_from = plan.end();
        }
        is_free
    });
}

#[cfg(test)]
mod tests {
    use super::super::plan::{ANY_NUMBER, PatchKind};
    use super::*;
    use uringlet_sys::Sysno;

    fn kept(numbers: &[u32]) -> Vec<u32> {
        let plan = |&nr: &u32| PatchPlan { kind: PatchKind::NumberLoad, nr, start: 0, syscall: 0, bytes: Vec::new(), moved: Vec::new() };
        let mut findings = Findings { plans: numbers.iter().map(plan).collect(), left: Vec::new() };
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
