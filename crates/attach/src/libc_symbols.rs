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
    version: i32,
    first: *const LinkMap,
    /// The function that the linker calls at each change of the list.
    pub(crate) breakpoint: usize,
    /// 0: the list is consistent. Otherwise an object is being added or removed.
    pub(crate) state: i32,
}

/// The beginning of the dynamic linker's `struct link_map`: an object.
#[repr(C)]
pub(crate) struct LinkMap {
    base: usize,
    name: usize,
    dynamic: usize,
    next: *const Self,
}

/// The dynamic linker's list of objects: the program first, the others in search order.
fn list() -> *const LinkMap {
    // glibc has the structure, musl a pointer to it.
    let (structure, pointer) = (weak_address!("_r_debug"), weak_address!("_dl_debug_addr"));
    // SAFETY: the dynamic linker's variables of these types; one of them is there. The list is
    // complete before the first constructor runs.
    unsafe {
        let debug = if structure == 0 && pointer != 0 { *(pointer as *const usize) } else { structure };
        if debug == 0 { core::ptr::null() } else { (*(debug as *const RDebug)).first }
    }
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
