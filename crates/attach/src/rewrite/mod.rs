//! Rewriting the system calls that programs and libraries issue themselves.

mod cache;
mod disasm;
mod libc_sites;
mod object;
mod patch;
mod plan;
mod record;
mod region;
mod scan;
mod trampoline;
mod unwind;

use alloc::vec::Vec;
use core::ops::Range;

use uringlet_sys::lock::Mutex;

use crate::entry::site_entry;
use crate::environ::Clock;
use crate::explain;
use crate::symbols::weak_address;
use cache::Cache;
use patch::Change;
use plan::{PatchKind, PatchPlan};
use record::Key;
use region::Region;
use scan::Findings;

pub(crate) use libc_sites::{hook_empty_function, hook_exec_calls, own_path, r_debug_address};
pub(crate) use object::{LoadedObject, loaded};

/// What became of one object.
#[derive(Debug)]
pub(crate) struct ObjectReport<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) build_id: &'a [u8],
    /// Sites rewritten, by kind: P0 to P3.
    pub(crate) kinds: [u32; 4],
    pub(crate) ring: u32,
    pub(crate) generic: u32,
    /// Sites that might concern us and stay as they are.
    pub(crate) left: u32,
    pub(crate) cached: bool,
    pub(crate) microseconds: u64,
}

/// An object that was looked at, for as long as it stays loaded.
#[derive(Debug)]
struct ExaminedObject {
    name: Vec<u8>,
    build_id: Vec<u8>,
    span: Range<u64>,
    /// Its trampolines.
    region: Option<Region>,
}

impl ExaminedObject {
    fn is(&self, object: &LoadedObject) -> bool {
        self.span == object.span() && self.name == object.name && self.build_id == object.build_id
    }
}

static EXAMINED: Mutex<Vec<ExaminedObject>> = Mutex::new(Vec::new());

/// The dynamic linker's list has changed. It holds its lock.
pub(crate) fn update() {
    examine(&object::loaded());
}

/// Rewrites the objects that were not there before, and frees the trampolines of those that are gone.
pub(crate) fn examine(objects: &[LoadedObject]) {
    let clock = Clock::start();
    let mut known = EXAMINED.lock();
    known.retain(|k| {
        let stays = objects.iter().any(|o| k.is(o));
        if let (false, Some(region)) = (stays, &k.region) {
            region.unmap();
        }
        stays
    });
    let mut total = Totals::default();
    let mut cache = None;
    for object in objects {
        if !known.iter().any(|k| k.is(object)) {
            let region = if is_exempt(object) { None } else { one(object, cache.get_or_insert_with(Cache::open), &mut total) };
            known.push(ExaminedObject { name: object.name.clone(), build_id: object.build_id.clone(), span: object.span(), region });
        }
    }
    if total.objects > 0 {
        explain::total(total.objects, total.cached, total.sites, clock.microseconds());
    }
}

#[derive(Debug, Default)]
struct Totals {
    objects: u32,
    cached: u32,
    sites: u32,
}

/// libc and the dynamic linker stay as they are: their own calls never concern a ring, and cancellation counts on every byte. So does the kernel's object,
/// and this one.
fn is_exempt(object: &LoadedObject) -> bool {
    const EXEMPT: [&[u8]; 4] = [b"linux-vdso.so.1", b"linux-gate.so.1", b"libpthread.so.0", b"ld-linux-x86-64.so.2"];
    let file = object.name.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let residents = [update as *const () as usize, weak_address!("__errno_location"), weak_address!("_r_debug")];
    EXEMPT.contains(&file) || residents.iter().any(|&address| address != 0 && object.contains(address))
}

fn one(object: &LoadedObject, cache: &mut Option<Cache>, total: &mut Totals) -> Option<Region> {
    let clock = Clock::start();
    let (findings, cached) = remembered(cache, object, cache::key(object), || scan::scan(object));
    let (region, done) = match rewrite(object, &findings.plans, site_entry as *const () as usize) {
        Some((region, done)) => (Some(region), done),
        None => (None, Vec::new()),
    };
    total.objects += 1;
    total.cached += u32::from(cached);
    total.sites += done.len() as u32;
    let report = ObjectReport {
        name: &object.name,
        build_id: &object.build_id,
        kinds: [PatchKind::BeforeSyscall, PatchKind::NumberLoad, PatchKind::OverSyscall, PatchKind::AfterSyscall]
            .map(|kind| done.iter().filter(|p| p.kind == kind).count() as u32),
        ring: done.iter().filter(|p| p.is_ring()).count() as u32,
        generic: done.iter().filter(|p| p.is_generic()).count() as u32,
        left: findings.unpatchable + (findings.plans.len() - done.len()) as u32,
        cached,
        microseconds: clock.microseconds(),
    };
    if report.left > 0 || !done.is_empty() {
        explain::object(&report);
    }
    region
}

/// What `look` finds in the object, and whether that was known.
fn remembered(cache: &mut Option<Cache>, object: &LoadedObject, key: Option<Key>, look: impl FnOnce() -> Findings) -> (Findings, bool) {
    let Some((cache, key)) = cache.as_mut().zip(key) else { return (look(), false) };
    if let Some(known) = cache.load(object, &key) {
        return (known, true);
    }
    let findings = look();
    cache.store(&key, &findings);
    (findings, false)
}

/// Writes trampolines that lead to `entry`, and jumps to them. Returns the plans that were carried out; `None` if there is nothing to do or the system forbids it.
fn rewrite<'a>(object: &LoadedObject, plans: &'a [PatchPlan], entry: usize) -> Option<(Region, Vec<&'a PatchPlan>)> {
    if plans.is_empty() {
        return None;
    }
    let room = plans.iter().map(trampoline::room).sum::<u64>();
    let region = Region::near(&object.span(), room, entry)?;
    let mut at = region.first();
    let mut changes = Vec::new();
    let mut done = Vec::new();
    for plan in plans {
        let from = object.base.wrapping_add(plan.start);
        let is_unchanged = object.bytes(from..from + plan.bytes.len() as u64) == Some(&plan.bytes[..]);
        let code = trampoline::emit(plan, object.base, region.start, at).filter(|_| is_unchanged);
        let (Some(code), Some(bytes)) = (code, trampoline::jump(from, at)) else { continue };
        region.write(at, &code);
        at += trampoline::room(plan);
        changes.push(Change { at: from, bytes });
        done.push(plan);
    }
    if region.seal() && patch::apply(&changes) {
        return Some((region, done));
    }
    region.unmap();
    None
}
