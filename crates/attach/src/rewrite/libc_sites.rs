//! Hooks at known functions of libc and the dynamic linker, found by their symbols and not by a
//! scan.

use alloc::vec::Vec;

use uringlet_sys::linux::elf_uapi::DT_DEBUG;

use super::cache::{self, Cache};
use super::install::install;
use super::object::LoadedObject;
use super::patch::{self, Patch};
use super::plan::{Findings, PatchPlan};
use super::record::Key;
use super::region::Region;
use super::unwind::Functions;
use crate::arch::{DecodedFunction, call, calls_of, for_each_syscall, is_empty_function, plan_constant, trampoline, weak_address};
use crate::convert::address;
use crate::intercepted::may_start_a_program;

/// This object's path as it was loaded.
pub(crate) fn own_path(objects: &[LoadedObject]) -> Option<Vec<u8>> {
    containing(objects, own_path as *const () as usize).map(|object| object.name.clone())
}

/// libc.
pub(crate) fn libc_of(objects: &[LoadedObject]) -> Option<&LoadedObject> {
    containing(objects, weak_address!("__errno_location"))
}

fn containing(objects: &[LoadedObject], address: usize) -> Option<&LoadedObject> {
    objects.iter().find(|o| o.contains(address))
}

/// The address of the dynamic linker's `r_debug`, from the program's dynamic section.
pub(crate) fn r_debug_address(objects: &[LoadedObject]) -> Option<usize> {
    let named = address(objects.first()?.dynamic_entry(u64::from(DT_DEBUG)).unwrap_or(0));
    let found = if named != 0 { named } else { weak_address!("_r_debug") };
    (found != 0).then_some(found)
}

/// Sends the exec system calls in these functions of libc through `entry`. False: no such call can
/// be rewritten, or the system forbids it.
/// Other threads may be executing there.
pub(crate) fn hook_exec_calls(libc: &LoadedObject, functions: &[usize], entry: usize) -> bool {
    let scan = || {
        let mut plans: Vec<PatchPlan> = functions.iter().filter(|&&f| f != 0).flat_map(|&f| exec_plans(libc, f as u64)).collect();
        plans.sort_by_key(|plan| plan.start);
        plans.dedup();
        Findings { plans, left: Vec::new() }
    };
    // Recorded under a key of its own: a scan of libc would find other sites.
    let key = cache::key(libc).map(|key| Key { identity: [&key.identity[..], b"exec"].concat(), ..key });
    let findings = cache::find_or_scan(&mut Cache::open(), libc, key, scan).0;
    install(libc, &findings.plans, None, entry, patch::apply_to_running).is_some()
}

/// Plans for the exec calls of the function at `address` whose number is a constant loaded there.
fn exec_plans(libc: &LoadedObject, address: u64) -> Vec<PatchPlan> {
    const UNKNOWN_LENGTH: u64 = 64;
    let range = Functions::of(libc).and_then(|f| f.containing(address)).unwrap_or(address..address + UNKNOWN_LENGTH);
    let Some(code) = libc.bytes(range.clone()) else { return Vec::new() };
    let start = range.start.wrapping_sub(libc.base);
    let function = DecodedFunction::decode(code, start);
    let mut plans = Vec::new();
    for_each_syscall(code, |offset| plans.extend(plan_constant(&function, code, start, start + offset as u64, may_start_a_program)));
    plans
}

/// Puts a jump to `entry` over an empty function: one that consists of a return and padding. The
/// jump leads through a region where `entry` is out of reach.
pub(crate) fn hook_empty_function(objects: &[LoadedObject], address: usize, entry: usize) -> bool {
    let Some(linker) = containing(objects, address) else { return false };
    let from = address as u64;
    let Some(code) = linker.field(from) else { return false };
    if !is_empty_function(code, from) {
        return false;
    }
    if let Some(bytes) = trampoline::jump(from, entry as u64) {
        return patch::apply(&[Patch { at: from, bytes }]);
    }
    let Some(region) = Region::near(&linker.span(), 16, entry) else { return false };
    let is_done = redirect(&region, from);
    if !is_done {
        region.unmap();
    }
    is_done
}

/// Sends every call of a function in its own object through `entry` first. The function itself may
/// have a debugger's breakpoint, whose byte the debugger takes away and puts back as it likes.
pub(crate) fn hook_calls(objects: &[LoadedObject], function: usize, entry: usize) -> bool {
    let Some(linker) = containing(objects, function) else { return false };
    let function = function as u64;
    let code = linker.executable.iter().filter_map(|range| Some((linker.bytes(range.clone())?, range.start)));
    let sites: Vec<u64> = code.flat_map(|(bytes, start)| calls_of(function, bytes, start)).collect();
    if sites.is_empty() {
        return false;
    }
    let Some(region) = Region::near(&linker.span(), 16, entry) else { return false };
    let is_done = detour(&region, function, &sites);
    if !is_done {
        region.unmap();
    }
    is_done
}

/// Makes the calls at `sites` calls of code in the region, which calls its entry and then
/// `function`.
fn detour(region: &Region, function: u64, sites: &[u64]) -> bool {
    let at = region.first_trampoline();
    let Some(code) = trampoline::emit_call_before(region.start, at, function) else { return false };
    region.write(at, &code);
    let patches: Option<Vec<Patch>> = sites.iter().map(|&site| Some(Patch { at: site, bytes: call(site, at)? })).collect();
    patches.is_some_and(|patches| region.seal() && patch::apply(&patches))
}

/// Puts a jump at `from` that leads through the region to its entry.
fn redirect(region: &Region, from: u64) -> bool {
    let at = region.first_trampoline();
    let Some(code) = trampoline::emit_entry_jump(region.start, at) else { return false };
    region.write(at, &code);
    trampoline::jump(from, at).is_some_and(|bytes| region.seal() && patch::apply(&[Patch { at: from, bytes }]))
}
