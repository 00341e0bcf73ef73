//! Carrying out the plans of an object.

use alloc::vec::Vec;

use super::object::LoadedObject;
use super::patch::Patch;
use super::plan::PatchPlan;
use super::region::Region;
use crate::arch::frame_table::{self, TrampolineFrame};
use crate::arch::trampoline;
use crate::stack;

/// What an object's region holds behind its header, and the jumps to it.
struct Content<'a> {
    bytes: Vec<u8>,
    /// Where the unwind tables start.
    tables: u64,
    patches: Vec<Patch>,
    done: Vec<&'a PatchPlan>,
}

/// Writes trampolines that lead to `entry`, and jumps to them. Returns the plans that were carried
/// out; `None` if there is nothing to do or the system forbids it.
///
/// The `earlier` region of the same object, which was gone in between, is used again. `apply` writes
/// the jumps.
pub(super) fn install<'a>(
    object: &LoadedObject,
    plans: &'a [PatchPlan],
    earlier: Option<Region>,
    entry: usize,
    apply: fn(&[Patch]) -> bool,
) -> Option<(Region, Vec<&'a PatchPlan>)> {
    if plans.is_empty() {
        return None;
    }
    stack::prepare_reserve();
    if let Some(region) = earlier
        && let Some(content) = assemble(object, plans, &region)
        && region.holds(&content.bytes)
    {
        return apply(&content.patches).then_some((region, content.done));
    }
    let bytes = plans.iter().map(trampoline::max_bytes).sum::<u64>() + frame_table::max_bytes(plans);
    let region = Region::near(&object.span(), bytes, entry)?;
    if let Some(content) = assemble(object, plans, &region) {
        region.write(region.first_trampoline(), &content.bytes);
        // Before a thread can be there.
        if region.seal() && apply(&content.patches) {
            region.publish(content.tables);
            return Some((region, content.done));
        }
    }
    region.unmap();
    None
}

/// The trampolines of the plans that can be carried out, and their unwind tables.
fn assemble<'a>(object: &LoadedObject, plans: &'a [PatchPlan], region: &Region) -> Option<Content<'a>> {
    let first = region.first_trampoline();
    let mut content = Content { bytes: Vec::new(), tables: first, patches: Vec::new(), done: Vec::new() };
    let mut frames = Vec::new();
    for plan in plans {
        let from = object.base.wrapping_add(plan.start);
        let at = first + content.bytes.len() as u64;
        let is_unchanged = object.bytes(from..from + plan.bytes.len() as u64) == Some(&plan.bytes[..]);
        let code = trampoline::emit(plan, object.base, region.start, at).filter(|_| is_unchanged);
        let (Some((code, rows)), Some(bytes)) = (code, trampoline::jump(from, at)) else { continue };
        frames.push(TrampolineFrame { start: at, len: code.len() as u64, rows });
        content.bytes.extend_from_slice(&code);
        // Every trampoline starts where the next may.
        let padding = trampoline::max_bytes(plan) - code.len() as u64;
        content.bytes.extend((0..padding).map(|_| 0));
        content.patches.push(Patch { at: from, bytes });
        content.done.push(plan);
    }
    content.tables += content.bytes.len() as u64;
    content.bytes.extend(frame_table::build(&frames, content.tables)?);
    Some(content)
}
