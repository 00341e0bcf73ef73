//! Carrying out the plans of an object.

use alloc::vec::Vec;

use super::object::LoadedObject;
use super::patch::{self, Patch};
use super::plan::PatchPlan;
use super::region::Region;
use crate::arch::trampoline;

/// Writes trampolines that lead to `entry`, and jumps to them. Returns the plans that were carried
/// out; `None` if there is nothing to do or the system forbids it.
pub(super) fn install<'a>(object: &LoadedObject, plans: &'a [PatchPlan], entry: usize) -> Option<(Region, Vec<&'a PatchPlan>)> {
    if plans.is_empty() {
        return None;
    }
    let bytes = plans.iter().map(trampoline::max_bytes).sum::<u64>();
    let region = Region::near(&object.span(), bytes, entry)?;
    let mut at = region.first_trampoline();
    let mut patches = Vec::new();
    let mut done = Vec::new();
    for plan in plans {
        let from = object.base.wrapping_add(plan.start);
        let is_unchanged = object.bytes(from..from + plan.bytes.len() as u64) == Some(&plan.bytes[..]);
        let code = trampoline::emit(plan, object.base, region.start, at).filter(|_| is_unchanged);
        let (Some(code), Some(bytes)) = (code, trampoline::jump(from, at)) else { continue };
        region.write(at, &code);
        at += trampoline::max_bytes(plan);
        patches.push(Patch { at: from, bytes });
        done.push(plan);
    }
    if region.seal() && patch::apply(&patches) {
        return Some((region, done));
    }
    region.unmap();
    None
}
