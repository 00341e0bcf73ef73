//! Finding `syscall` instructions in an object: first the byte pair, then whether it is one, then what it does.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::arch::x86_64::{_mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};

use super::disasm::DecodedFunction;
use super::object::LoadedObject;
use super::plan::{PatchKind, PatchPlan, SiteClass, classify};
use super::unwind::Functions;

/// What an object contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// What is to be rewritten, by address.
    pub(super) plans: Vec<PatchPlan>,
    /// How many sites might concern us and cannot be rewritten.
    pub(super) unpatchable: u32,
}

/// Calls `found` with the offset of every `0f 05`.
pub(super) fn for_each_syscall(bytes: &[u8], mut found: impl FnMut(usize)) {
    const LANES: usize = 16;
    let mut at = 0;
    // SAFETY: SSE2 is part of x86-64; both loads end within `bytes`.
    unsafe {
        let (first, second) = (_mm_set1_epi8(0x0f), _mm_set1_epi8(0x05));
        while at + LANES < bytes.len() {
            let here = _mm_loadu_si128(bytes.as_ptr().add(at).cast());
            let next = _mm_loadu_si128(bytes.as_ptr().add(at + 1).cast());
            let mut mask = _mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi8(here, first), _mm_cmpeq_epi8(next, second))) as u32;
            while mask != 0 {
                found(at + mask.trailing_zeros() as usize);
                mask &= mask - 1;
            }
            at += LANES;
        }
    }
    for (i, pair) in bytes[at..].windows(2).enumerate() {
        if pair == [0x0f, 0x05] {
            found(at + i);
        }
    }
}

/// Looks through all of an object's code.
pub(super) fn scan(object: &LoadedObject) -> Findings {
    let mut pairs = Vec::new();
    for segment in &object.executable {
        if let Some(bytes) = object.bytes(segment.clone()) {
            for_each_syscall(bytes, |offset| pairs.push(segment.start + offset as u64));
        }
    }
    let mut findings = classify_all(object, &pairs);
    drop_jump_targets(object, &mut findings);
    keep_relevant(&mut findings);
    findings.plans.sort_by_key(|plan| plan.start);
    drop_overlapping(&mut findings);
    findings
}

fn classify_all(object: &LoadedObject, pairs: &[u64]) -> Findings {
    let functions = Functions::of(object);
    let mut findings = Findings::default();
    let mut by_function: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
    let mut homeless = Vec::new();
    for &pair in pairs {
        match functions.as_ref().and_then(|f| f.containing(pair)) {
            Some(range) => by_function.entry(range.start).or_insert((range.end, Vec::new())).1.push(pair),
            None => homeless.push(pair),
        }
    }
    for (start, (end, pairs)) in by_function {
        let Some(code) = object.bytes(start..end) else { continue };
        // Addresses in plans count from the object's base.
        let start = start.wrapping_sub(object.base);
        let function = DecodedFunction::decode(code, start);
        for pair in pairs {
            match classify(&function, code, start, pair.wrapping_sub(object.base)) {
                Some(SiteClass::Rewrite(plan)) => findings.plans.push(plan),
                Some(SiteClass::Unpatchable) => findings.unpatchable += 1,
                Some(SiteClass::NotIntercepted) | None => {}
            }
        }
    }
    findings.plans.extend(homeless.into_iter().filter_map(|pair| plan_without_function(object, pair)));
    findings
}

/// A site that no unwind table knows: taken only if an io_uring number is loaded in plain sight before it, so that it cannot be data.
fn plan_without_function(object: &LoadedObject, pair: u64) -> Option<PatchPlan> {
    const LOOK_BACK: u64 = 40;
    let segment = object.executable.iter().find(|s| s.contains(&pair))?;
    let from = pair.saturating_sub(LOOK_BACK).max(segment.start);
    let code = object.bytes(from..(pair + 2).min(segment.end))?;
    let is_load = |window: &[u8]| window[0] == 0xb8 && matches!(window[1], 0xa9..=0xab) && window[2..] == [1, 0, 0];
    let at = code.windows(5).rposition(is_load)?;
    let start = (from + at as u64).wrapping_sub(object.base);
    let code = &code[at..];
    let function = DecodedFunction::decode(code, start);
    match classify(&function, code, start, pair.wrapping_sub(object.base))? {
        SiteClass::Rewrite(plan) if plan.kind == PatchKind::NumberLoad && plan.is_ring() => Some(plan),
        _ => None,
    }
}

/// Other functions (above all the unlikely halves that compilers split off) may jump into a function, too. Every direct jump or call in the object, at
/// whatever alignment, counts; that bytes which are no jump look like one into these few places costs at most a site.
fn drop_jump_targets(object: &LoadedObject, findings: &mut Findings) {
    let windows: Vec<(u64, u64)> = findings.plans.iter().filter_map(PatchPlan::window).collect();
    let (Some(low), Some(high)) = (windows.iter().map(|w| w.0).min(), windows.iter().map(|w| w.1).max()) else { return };
    let mut hit = Vec::new();
    for segment in &object.executable {
        let Some(bytes) = object.bytes(segment.clone()) else { continue };
        let start = segment.start.wrapping_sub(object.base);
        for_each_far_target(bytes, start, low..high, |target| hit.push(target));
    }
    let disturbed = |plan: &PatchPlan| plan.window().is_some_and(|(from, to)| hit.iter().any(|&target| from < target && target < to));
    let before = findings.plans.len();
    findings.plans.retain(|plan| !disturbed(plan));
    findings.unpatchable += (before - findings.plans.len()) as u32;
}

fn for_each_far_target(bytes: &[u8], start: u64, wanted: core::ops::Range<u64>, mut found: impl FnMut(u64)) {
    for (at, window) in bytes.windows(5).enumerate() {
        // The last byte of the opcode, then the displacement.
        let is_jump = matches!(window[0], 0xe8 | 0xe9) || window[0] & 0xf0 == 0x80 && at > 0 && bytes[at - 1] == 0x0f;
        if !is_jump {
            continue;
        }
        let displacement = i32::from_le_bytes([window[1], window[2], window[3], window[4]]);
        let target = (start + at as u64 + 5).wrapping_add_signed(i64::from(displacement));
        if wanted.contains(&target) {
            found(target);
        }
    }
}

/// An object that has nothing to do with rings maps, closes and polls what it likes.
fn keep_relevant(findings: &mut Findings) {
    if !findings.plans.iter().any(|plan| plan.is_ring() || plan.is_generic()) {
        findings.plans.clear();
    }
}

/// Two sites close together may want the same bytes; the first has them.
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
    findings.unpatchable += (before - findings.plans.len()) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_found_at_every_alignment() {
        for len in 0..80 {
            for at in 0..len {
                let mut bytes = vec![0x0f; len];
                bytes[at] = 0x05;
                let mut found = Vec::new();
                for_each_syscall(&bytes, |offset| found.push(offset));
                assert_eq!(found, if at > 0 { vec![at - 1] } else { vec![] }, "length {len}");
            }
        }
    }

    #[test]
    fn far_jumps_and_calls_are_seen_at_any_alignment() {
        // call, jmp and jne, each to 0x1020.
        for opcode in [&[0xe8][..], &[0xe9], &[0x0f, 0x85]] {
            for pad in 0..4 {
                let mut bytes = vec![0x90; pad];
                bytes.extend_from_slice(opcode);
                let end = 0x1000 + bytes.len() as i32 + 4;
                bytes.extend_from_slice(&(0x1020 - end).to_le_bytes());
                let mut found = Vec::new();
                for_each_far_target(&bytes, 0x1000, 0x1010..0x1030, |target| found.push(target));
                assert_eq!(found, [0x1020], "{opcode:x?} behind {pad}");
            }
        }
    }
}
