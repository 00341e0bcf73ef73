//! libc's own functions, whatever the program or a preloaded object has put before them.
//!
//! An executable with a static runtime of its own (ThreadSanitizer, AddressSanitizer) defines
//! `dl_iterate_phdr`, `execve`, `dlsym` and others. A symbol of that name leads there, and the
//! runtime is not initialised when our constructor runs. So the constructor uses the dynamic
//! linker's list of objects and the symbol tables of these objects, and no function at all.

use core::ffi::CStr;

use crate::arch::weak_address;
use crate::symbol_table::SymbolTable;

/// The beginning of the dynamic linker's `struct r_debug`.
#[repr(C)]
pub(crate) struct RDebug {
    /// From 2 on there is `next`.
    version: i32,
    first: *const LinkMap,
    /// The function that the linker calls at each change of the list.
    pub(crate) breakpoint: usize,
    /// 0: the list is consistent. Otherwise an object is being added or removed.
    pub(crate) state: i32,
    linker_base: usize,
    /// That of the next namespace (dlmopen(3)).
    next: *const Self,
}

/// The beginning of the dynamic linker's `struct link_map`: an object.
#[repr(C)]
pub(crate) struct LinkMap {
    base: usize,
    name: usize,
    dynamic: usize,
    next: *const Self,
}

/// The dynamic linker's structure for the program's namespace.
fn r_debug() -> *const RDebug {
    // glibc has the structure, musl a pointer to it.
    let (structure, pointer) = (weak_address!("_r_debug"), weak_address!("_dl_debug_addr"));
    if structure != 0 || pointer == 0 {
        return structure as *const RDebug;
    }
    // SAFETY: the dynamic linker's variable of this type.
    unsafe { *(pointer as *const *const RDebug) }
}

/// What the dynamic linker has at an address that it gave; `None` for a null one. It frees an
/// object's entry only under its lock, and the others never.
fn linkers<T>(at: *const T) -> Option<&'static T> {
    // SAFETY: all callers are the constructor, or hold the lock.
    unsafe { at.as_ref() }
}

/// The dynamic linker's list of objects: the program first, the others in search order.
fn list() -> *const LinkMap {
    linkers(r_debug()).map_or(core::ptr::null(), |debug| debug.first)
}

/// The structures of the other namespaces (dlmopen(3)).
fn other_namespaces() -> impl Iterator<Item = &'static RDebug> {
    let mut at = r_debug();
    core::iter::from_fn(move || {
        let before = linkers(at)?;
        at = if before.version >= 2 { before.next } else { core::ptr::null() };
        linkers(at)
    })
}

/// Whether no other namespace's list is being changed.
pub(crate) fn are_others_consistent() -> bool {
    other_namespaces().all(|namespace| namespace.state == 0)
}

/// Base and name of each object in other namespaces than the program's, which dl_iterate_phdr(3)
/// leaves out.
pub(crate) fn objects_elsewhere() -> impl Iterator<Item = (usize, usize)> {
    other_namespaces().flat_map(|namespace| {
        let mut at = namespace.first;
        core::iter::from_fn(move || {
            let object = linkers(at)?;
            at = object.next;
            Some((object.base, object.name))
        })
    })
}

/// All objects in search order, the program first: (dynamic section, symbol table).
fn objects() -> impl Iterator<Item = (usize, SymbolTable)> {
    let mut at = list();
    core::iter::from_fn(move || {
        // SAFETY: an entry of the list. The list is walked in the constructor, or before it.
        let (object, symbols) = unsafe {
            let object = at.as_ref()?;
            (object, SymbolTable::new(object.base, object.dynamic))
        };
        at = object.next;
        Some((object.dynamic, symbols))
    })
}

/// The address of libc's function; 0 if it has none of that name.
pub(crate) fn address_of(name: &CStr) -> usize {
    let mut libraries = objects().skip(1).map(|(_, symbols)| symbols);
    let libc = libraries.find(|symbols| symbols.function(c"__libc_start_main").is_some());
    libc.and_then(|symbols| symbols.function(name)).unwrap_or(0)
}

/// The objects that come after ours in the search order.
pub(crate) fn behind_ours() -> impl Iterator<Item = SymbolTable> {
    let ours = weak_address!("_DYNAMIC");
    objects().skip_while(move |&(dynamic, _)| dynamic != ours).skip(1).map(|(_, symbols)| symbols)
}

/// Whether an object that comes before ours in the search order has this function.
pub(crate) fn is_before_ours(name: &CStr) -> bool {
    let ours = weak_address!("_DYNAMIC");
    objects().take_while(move |&(dynamic, _)| dynamic != ours).any(|(_, symbols)| symbols.function(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_functions_are_found_in_libc_itself() {
        assert_eq!(address_of(c"dl_iterate_phdr"), weak_address!("dl_iterate_phdr"));
        assert_eq!(address_of(c"execve"), weak_address!("execve"));
        assert_eq!(address_of(c"no_such_function"), 0);
    }

    #[test]
    fn functions_behind_ours_are_those_of_dlsym() {
        let found = |name: &CStr| behind_ours().find_map(|symbols| symbols.function(name)).unwrap_or(0);
        assert_eq!(found(c"close"), weak_address!("close"));
        assert_eq!(found(c"fcntl64"), weak_address!("fcntl64"));
    }
}
