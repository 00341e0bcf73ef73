//! Whether an object may contain a system call at all: most do not. This needs neither the decoder
//! nor a record of an earlier start, so no system call and a few microseconds.

use super::object::LoadedObject;
use super::unwind::Functions;
use crate::arch::{begins_insn, find_number_load, for_each_syscall};

/// Objects with more code are looked up among the findings of earlier starts first: reading all
/// their code takes longer.
const MAX_CODE_BYTES: u64 = 64 << 10;

/// Whether the object is so small that its code is read at each start.
pub(super) fn is_small(object: &LoadedObject) -> bool {
    object.executable.iter().map(|range| range.end - range.start).sum::<u64>() <= MAX_CODE_BYTES
}

/// Whether a byte pair of the object may be a system call instruction.
pub(super) fn may_have_syscall(object: &LoadedObject) -> bool {
    let functions = Functions::of(object);
    object.executable.iter().any(|segment| {
        let Some(bytes) = object.bytes(segment.clone()) else { return false };
        let mut found = false;
        for_each_syscall(bytes, |offset| found = found || may_be_syscall(object, functions.as_ref(), segment.start + offset as u64));
        found
    })
}

fn may_be_syscall(object: &LoadedObject, functions: Option<&Functions<'_>>, address: u64) -> bool {
    // Without tables it is up to the scan.
    let Some(functions) = functions.filter(|_| !object.is_static) else { return true };
    let Some(range) = functions.containing(address) else { return follows_number_load(object, address) };
    let at = crate::convert::address(address - range.start);
    object.bytes(range).is_none_or(|code| begins_insn(code, at) != Some(false))
}

/// A pair in no function that the object's tables list counts only behind the load of a number.
fn follows_number_load(object: &LoadedObject, address: u64) -> bool {
    const LOOK_BACK: u64 = 40;
    const NUMBERS: u32 = 1024;
    let segment = object.executable.iter().find(|segment| segment.contains(&address));
    let start = segment.map_or(address, |segment| segment.start).max(address.saturating_sub(LOOK_BACK));
    object.bytes(start..address).is_some_and(|code| find_number_load(code, |nr| nr < NUMBERS).is_some())
}
