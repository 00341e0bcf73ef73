//! The file of a static program that the loader has started in this process.

use alloc::boxed::Box;
use core::ffi::CStr;

use uringlet_sys::static_ref::StaticRef;

/// A program without a dynamic linker, which we have mapped ourselves.
#[derive(Debug)]
pub(crate) struct StaticProgram {
    /// Its file, without symbolic links: what `/proc/self/exe` would lead to.
    pub(crate) path: &'static CStr,
}

static PROGRAM: StaticRef<StaticProgram> = StaticRef::new();

/// The program, if it is static; `None` in a process that a dynamic linker has started.
pub(crate) fn static_program() -> Option<&'static StaticProgram> {
    PROGRAM.get()
}

/// Whether the program is static.
pub(crate) fn is_static() -> bool {
    static_program().is_some()
}

/// Stores the program's file.
pub(crate) fn set(path: &'static CStr) {
    PROGRAM.set(Box::leak(Box::new(StaticProgram { path })));
}
