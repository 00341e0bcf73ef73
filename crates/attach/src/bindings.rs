//! Which functions of this object the program and its libraries bind, by their relocations.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ffi::CStr;

use crate::rewrite::LoadedObject;

/// Functions by which a process comes to rings of its own: `syscall` itself, and those that load
/// libraries, which are rewritten then.
const MAKE_RINGS: [&CStr; 3] = [c"syscall", c"dlopen", c"dlmopen"];

/// Functions that start programs, which are attached.
const START_PROGRAMS: [&CStr; 13] = [
    c"execve",
    c"execveat",
    c"fexecve",
    c"execv",
    c"execvp",
    c"execvpe",
    c"execl",
    c"execlp",
    c"execle",
    c"posix_spawn",
    c"posix_spawnp",
    c"system",
    c"popen",
];

/// The names that an object's relocations refer to.
fn bound(object: &LoadedObject) -> impl Iterator<Item = &'static CStr> {
    object.symbols().into_iter().flat_map(|symbols| symbols.bound())
}

/// Whether an object binds one of these functions.
fn binds_any(objects: &[LoadedObject], names: &[&CStr]) -> bool {
    objects.iter().filter(|object| !object.is_exempt()).any(|object| bound(object).any(|name| names.contains(&name)))
}

/// Whether an object binds a function by which the process can make rings.
pub(crate) fn may_make_rings(objects: &[LoadedObject]) -> bool {
    binds_any(objects, &MAKE_RINGS)
}

/// Whether an object binds a function by which io_uring calls can reach the engine.
pub(crate) fn may_reach_engine(objects: &[LoadedObject]) -> bool {
    may_make_rings(objects) || binds_any(objects, &START_PROGRAMS)
}

/// The functions of this object that each other object binds, by name. Objects that bind none are
/// left out.
pub(crate) fn all(objects: &[LoadedObject]) -> impl Iterator<Item = (&LoadedObject, Vec<Cow<'static, str>>)> {
    let ours = objects.iter().find(|object| object.contains(all as *const () as usize)).and_then(LoadedObject::symbols);
    let others = objects.iter().filter(|object| !object.is_exempt());
    others.filter_map(move |object| {
        let mut names: Vec<&CStr> = bound(object).filter(|name| ours.is_some_and(|ours| ours.function(name).is_some())).collect();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| (object, names.into_iter().map(CStr::to_string_lossy).collect()))
    })
}
