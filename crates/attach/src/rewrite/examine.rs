//! Which objects are rewritten: each once, when it is loaded.

use alloc::vec::Vec;
use core::ffi::CStr;
use core::ops::Range;

use uringlet_sys::lock::Mutex;
use uringlet_sys::reserve;

use super::cache::{self, Cache};
use super::go_table::is_static_go;
use super::install::install;
use super::object::{LoadedObject, loaded};
use super::patch;
use super::plan::{Findings, LeftAlone, PatchKind, PatchPlan, Reason};
use super::prefilter::{is_small, may_have_syscall};
use super::record::Key;
use super::region::Region;
use super::report::{FindingsSource, ObjectReport};
use super::scan;
use crate::arch::site_entry;
use crate::in_use::is_in_use;
use crate::notice::{self, Remedy};
use crate::trap::{self, LeftSites};
use crate::{convert, doctor, explain};

/// An object that was examined.
///
/// One that is gone is kept if it has trampolines: a thread may wait in the engine that came by
/// one. If the object is back at its place by then, the thread returns as it would have from the
/// kernel. So trampolines are never unmapped, and used again.
#[derive(Debug)]
struct ExaminedObject {
    name: Vec<u8>,
    build_id: Vec<u8>,
    span: Range<u64>,
    is_loaded: bool,
    /// Its trampolines.
    region: Option<Region>,
}

impl ExaminedObject {
    fn is(&self, object: &LoadedObject) -> bool {
        self.span == object.span() && self.name == object.name && self.build_id == object.build_id
    }
}

static EXAMINED: Mutex<Vec<ExaminedObject>> = Mutex::new(Vec::new());

/// The largest block that the scan of nearly every object takes.
const SCAN_BLOCK: usize = 512 << 10;

/// Sums over all objects of one [`examine`].
#[derive(Debug, Default)]
pub(crate) struct ScanTotals {
    objects: u32,
    cached: u32,
    sites: u32,
    /// Rewritten sites whose number is io_uring's, or may be.
    for_rings: u32,
    /// Objects whose io_uring calls stay the kernel's, which was said.
    refused: u32,
}

impl ScanTotals {
    /// Whether a rewritten site can make an io_uring call.
    pub(crate) fn has_ring_sites(&self) -> bool {
        self.for_rings > 0
    }

    /// Whether the system forbids to redirect the io_uring calls of an object.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused > 0
    }
}

/// Whether findings may be looked up and recorded, which takes system calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheUse {
    Allowed,
    /// Only for an object that has a system call of its own.
    Avoided,
}

/// Examines the objects that are loaded now. The caller holds the dynamic linker's lock.
pub(crate) fn examine_loaded() {
    let _ = examine(&loaded(), if is_in_use() { CacheUse::Allowed } else { CacheUse::Avoided });
}

/// Rewrites the objects that were not there before.
pub(crate) fn examine(objects: &[LoadedObject], cache_use: CacheUse) -> ScanTotals {
    let start = explain::now_ns();
    trap::note_objects(objects);
    let mut examined = EXAMINED.lock();
    examined.retain_mut(|e| {
        e.is_loaded &= objects.iter().any(|o| e.is(o));
        e.is_loaded || e.region.is_some()
    });
    let mut totals = ScanTotals::default();
    let mut cache = None;
    for object in objects {
        let known = examined.iter().position(|e| e.is(object));
        if known.is_some_and(|at| examined[at].is_loaded) {
            continue;
        }
        let earlier = known.and_then(|at| examined.swap_remove(at).region);
        let region = if object.is_exempt() {
            None
        } else if has_no_call(object, cache_use) {
            examine_object(object, earlier, || (Findings::default(), FindingsSource::Scan), &mut totals)
        } else if reserve::ensure_block(SCAN_BLOCK).is_ok() {
            let find = || find(object, &mut cache);
            reserve::without_noting(|| examine_object(object, earlier, find, &mut totals))
        } else {
            // Better not rewritten than a scan that finds no memory.
            None
        };
        let (name, build_id) = (object.name.clone(), object.build_id.clone());
        examined.push(ExaminedObject { name, build_id, span: object.span(), is_loaded: true, region });
    }
    if totals.objects > 0 {
        explain::totals(totals.objects, totals.cached, totals.sites, microseconds_since(start));
    }
    totals
}

fn microseconds_since(start: u64) -> u64 {
    (explain::now_ns() - start) / 1000
}

/// Whether the object is known to have no call of its own, without a look into the cache. Most
/// small programs are such: neither memory nor a system call is taken for them.
fn has_no_call(object: &LoadedObject, cache_use: CacheUse) -> bool {
    (is_small(object) || cache_use == CacheUse::Avoided) && !may_have_syscall(object)
}

/// The findings of an object. The cache is opened when it is needed.
fn find(object: &LoadedObject, cache: &mut Option<Option<Cache>>) -> (Findings, FindingsSource) {
    let cache = cache.get_or_insert_with(Cache::open);
    if is_libc(object) {
        // Under a key of its own, as the hooks in libc.
        let key = cache::key(object).map(|key| Key { identity: [&key.identity[..], b"elsewhere"].concat(), ..key });
        return cache::find_or_scan(cache, object, key, || scan::scan_functions(object, &LIBC_FUNCTIONS));
    }
    let scan = || if may_have_syscall(object) { scan::scan(object) } else { Findings::default() };
    cache::find_or_scan(cache, object, cache::key(object), scan)
}

/// The functions of another namespace's libc that concern rings. Nothing precedes them there.
const LIBC_FUNCTIONS: [&CStr; 9] = [c"syscall", c"mmap", c"mmap64", c"close", c"dup", c"dup2", c"dup3", c"epoll_ctl", c"close_range"];

/// Whether this is the libc of another namespace: the program's is exempt.
fn is_libc(object: &LoadedObject) -> bool {
    object.name.ends_with(b"/libc.so.6")
}

fn examine_object(
    object: &LoadedObject,
    earlier: Option<Region>,
    find: impl FnOnce() -> (Findings, FindingsSource),
    totals: &mut ScanTotals,
) -> Option<Region> {
    let start = explain::now_ns();
    let (findings, source) = find();
    let (region, done) = match install(object, &findings.plans, earlier, site_entry as *const () as usize, patch::apply) {
        Some((region, done)) => (Some(region), done),
        None => (None, Vec::new()),
    };
    let count = |is_counted: &dyn Fn(&PatchPlan) -> bool| convert::count(done.iter().filter(|&&plan| is_counted(plan)).count());
    totals.objects += 1;
    totals.cached += u32::from(source == FindingsSource::Cache);
    totals.sites += convert::count(done.len());
    let report = ObjectReport {
        name: &object.name,
        build_id: &object.build_id,
        base: object.base,
        symbols: object.symbols(),
        sites: &done,
        kinds: PatchKind::ALL.map(|kind| (kind, count(&|plan| plan.kind == kind))),
        ring: count(&PatchPlan::is_ring),
        any_number: count(&PatchPlan::has_any_number),
        left: &left_alone(&findings, &done),
        source,
        microseconds: microseconds_since(start),
    };
    totals.for_rings += report.ring + report.any_number;
    let left = left_sites(object, &findings, &report);
    if trap::cover_object(object, left, report.left) {
        totals.for_rings += 1;
    } else if left == LeftSites::All {
        totals.refused += 1;
        notice::not_rewritten(&object.name, if is_static_go(object) { Remedy::Filter } else { Remedy::Trap });
    }
    if !report.left.is_empty() || !done.is_empty() {
        explain::object(&report);
    }
    doctor::object(&report);
    region
}

/// What is left of an object's sites. A static program has no libc beside it that makes io_uring
/// calls: its sites with the number in a register do.
fn left_sites(object: &LoadedObject, findings: &Findings, report: &ObjectReport<'_>) -> LeftSites {
    let makes_rings = |plan: &PatchPlan| plan.is_ring() || object.is_static && plan.has_any_number();
    if report.left.is_empty() {
        LeftSites::None
    } else if report.sites.is_empty() && findings.plans.iter().any(makes_rings) {
        LeftSites::All
    } else {
        LeftSites::Some
    }
}

/// The sites that stay as they are, by address: those of the findings, and of plans that were not
/// carried out.
fn left_alone(findings: &Findings, done: &[&PatchPlan]) -> Vec<LeftAlone> {
    let is_done = |plan: &&PatchPlan| done.binary_search_by_key(&plan.start, |plan| plan.start).is_ok();
    let not_written = findings.plans.iter().filter(|plan| !is_done(plan));
    let not_written = not_written.map(|plan| LeftAlone { at: plan.syscall_address(), reason: Reason::NotWritten });
    let mut left: Vec<LeftAlone> = findings.left.iter().copied().chain(not_written).collect();
    left.sort_by_key(|site| site.at);
    left
}
