//! Places in libc and the dynamic linker that are rewritten for what they are, not for what a scan finds.

use alloc::vec::Vec;

use syscalls::Sysno;

use super::cache::{self, Cache};
use super::disasm::DecodedFunction;
use super::object::LoadedObject;
use super::patch::{self, Change};
use super::plan::{PatchPlan, constant_site};
use super::record::Key;
use super::region::Region;
use super::scan::{Findings, for_each_syscall};
use super::trampoline;
use super::unwind::Functions;
use crate::symbols::weak_address;

/// This object's path as it was loaded.
pub(crate) fn own_path(objects: &[LoadedObject]) -> Option<Vec<u8>> {
    containing(objects, own_path as *const () as usize).map(|object| object.name.clone())
}

fn containing(objects: &[LoadedObject], address: usize) -> Option<&LoadedObject> {
    objects.iter().find(|o| o.contains(address))
}

/// The dynamic linker's `r_debug`, which the program's dynamic section names.
pub(crate) fn r_debug_address(objects: &[LoadedObject]) -> Option<usize> {
    const DT_DEBUG: u64 = 21;
    let named = objects.first()?.dynamic_entry(DT_DEBUG).unwrap_or(0) as usize;
    let address = if named != 0 { named } else { weak_address!("_r_debug") };
    (address != 0).then_some(address)
}

/// The numbers of the exec system calls.
pub(super) const EXEC_NUMBERS: [u32; 2] = [Sysno::execve as u32, Sysno::execveat as u32];

/// Sends the exec system calls in these functions of libc through `entry`. False: there are none that can be, or the system forbids it.
pub(crate) fn hook_exec_calls(objects: &[LoadedObject], functions: &[usize], entry: usize) -> bool {
    let Some(libc) = containing(objects, weak_address!("__errno_location")) else { return false };
    let look = || {
        let mut plans: Vec<PatchPlan> = functions.iter().filter(|&&f| f != 0).flat_map(|&f| exec_plans(libc, f as u64)).collect();
        plans.sort_by_key(|plan| plan.start);
        plans.dedup();
        Findings { plans, unpatchable: 0 }
    };
    // A record of its own: what is found in libc is not what a scan finds.
    let key = cache::key(libc).map(|key| Key { identity: [&key.identity[..], b"exec"].concat(), ..key });
    let findings = super::remembered(&mut Cache::open(), libc, key, look).0;
    super::rewrite(libc, &findings.plans, entry).is_some()
}

/// The exec calls of the function at `address` whose number is a constant loaded there.
fn exec_plans(libc: &LoadedObject, address: u64) -> Vec<PatchPlan> {
    const UNKNOWN_LENGTH: u64 = 64;
    let range = Functions::of(libc).and_then(|f| f.containing(address)).unwrap_or(address..address + UNKNOWN_LENGTH);
    let Some(code) = libc.bytes(range.clone()) else { return Vec::new() };
    let start = range.start.wrapping_sub(libc.base);
    let function = DecodedFunction::decode(code, start);
    let is_exec = |nr| EXEC_NUMBERS.contains(&nr);
    let mut plans = Vec::new();
    for_each_syscall(code, |offset| plans.extend(constant_site(&function, code, start, start + offset as u64, is_exec)));
    plans
}

/// Puts a jump to `entry` over an empty function: one that consists of a return and padding.
pub(crate) fn hook_empty_function(objects: &[LoadedObject], address: usize, entry: usize) -> bool {
    let Some(linker) = containing(objects, address) else { return false };
    let from = address as u64;
    let Some(code) = linker.field(from) else { return false };
    if !is_empty_function(code, from) {
        return false;
    }
    // jmp [entry], whose address the region's header holds.
    let Some(region) = Region::near(&linker.span(), 16, entry) else { return false };
    let at = region.first();
    let displacement = (region.start + 8).wrapping_sub(at + 6) as i64 as i32;
    region.write(at, &[0xff, 0x25]);
    region.write(at + 2, &displacement.to_le_bytes());
    let done = trampoline::jump(from, at).is_some_and(|bytes| region.seal() && patch::apply(&[Change { at: from, bytes }]));
    if !done {
        region.unmap();
    }
    done
}

/// `endbr64` and `ret`, or `ret` and padding up to the next function, which starts at a multiple of 16.
fn is_empty_function(code: [u8; 5], at: u64) -> bool {
    match code {
        [0xf3, 0x0f, 0x1e, 0xfa, 0xc3] => true,
        [0xc3, 0x66 | 0x2e | 0x90 | 0xcc, ..] | [0xc3, 0x0f, 0x1f, ..] => at % 16 <= 11,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_function_with_room_is_taken() {
        let glibc = [0xc3, 0x66, 0x66, 0x2e, 0x0f];
        assert!(is_empty_function(glibc, 0x2060));
        assert!(!is_empty_function(glibc, 0x206c), "the next function starts before the jump's end");
        let with_endbr = [0xf3, 0x0f, 0x1e, 0xfa, 0xc3];
        assert!(is_empty_function(with_endbr, 0x2060));
        let breakpoint = [0xcc, 0x66, 0x66, 0x2e, 0x0f];
        assert!(!is_empty_function(breakpoint, 0x2060));
        let neighbour = [0xc3, 0x31, 0xc0, 0xc3, 0x90];
        assert!(!is_empty_function(neighbour, 0x2060));
    }
}
