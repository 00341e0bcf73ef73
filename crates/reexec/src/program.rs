//! Executing the program again.

use alloc::ffi::CString;

use uringlet_sys::io;
use uringlet_sys::linkage::Linkage;
use uringlet_sys::own_program::{self, OwnProgram};

use crate::environment::ProgramEnvironment;
use crate::error::InitError;
use crate::library::{Library, descriptor_path};

/// Names what the object shall load if it is executed itself: `SCRIPT:PATH`, here of no script.
const REQUEST: &str = "URINGLET_EXEC";

/// Executes the program with the object; returns only if that failed.
pub(crate) fn execute(own: OwnProgram, library: &Library, environment: ProgramEnvironment) -> InitError {
    let is_static = match OwnProgram::linkage() {
        Ok(linkage) => linkage == Linkage::Static,
        // It has a dynamic linker, if anything: the object could not load it either.
        Err(errno) if own.is_loaded_alone => return InitError::Unreadable(errno.into_raw()),
        Err(_) => false,
    };
    if is_static {
        return load(own, library, environment);
    }
    let path = own.path.unwrap_or_else(|| c"/proc/self/exe".into());
    InitError::Execute(own_program::execute(&path, &own.arguments, &environment.into_list()).into_raw())
}

/// Executes the object, which loads the static program.
fn load(own: OwnProgram, library: &Library, mut environment: ProgramEnvironment) -> InitError {
    let (path, descriptor) = match own.path {
        Some(path) => (path, None),
        // The file was deleted: its descriptor stays open.
        None => match own_program::open_executable() {
            Ok(number) => (descriptor_path(number), Some(number)),
            Err(errno) => return InitError::Unreadable(errno.into_raw()),
        },
    };
    environment.set_first(REQUEST, &request(&path));
    let errno = own_program::execute(library.path(), &own.arguments, &environment.into_list());
    if let Some(number) = descriptor {
        let _ = io::close(number);
    }
    InitError::Execute(errno.into_raw())
}

fn request(path: &CString) -> alloc::vec::Vec<u8> {
    [b"0:", path.to_bytes()].concat()
}
