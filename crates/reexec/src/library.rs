//! Where the object is that the program is executed again with.

use alloc::borrow::ToOwned;
use alloc::ffi::CString;
use alloc::format;
use core::ffi::CStr;

use uringlet_sys::directory::file_version;
use uringlet_sys::io;
use uringlet_sys::sealed_file::sealed_executable;

use crate::environment::ProgramEnvironment;
use crate::error::InitError;

/// Names another object.
const VARIABLE: &str = "URINGLET_LIB";

/// `liburinglet.so` at a path.
#[derive(Debug)]
pub(crate) struct Library {
    path: CString,
    /// The memfd behind the path.
    descriptor: Option<i32>,
}

impl Library {
    /// The file of `URINGLET_LIB`, or `object` in a memfd.
    pub(crate) fn provide(object: Option<&[u8]>, environment: &ProgramEnvironment) -> Result<Self, InitError> {
        if let Some(path) = environment.text(VARIABLE) {
            return Self::named(path);
        }
        let object = object.ok_or(InitError::NoObject)?;
        let number = sealed_executable(c"liburinglet.so", object).map_err(|errno| InitError::Memory(errno.into_raw()))?;
        Ok(Self { path: descriptor_path(number), descriptor: Some(number) })
    }

    /// The dynamic linker takes each colon, space and dollar sign for its own.
    fn named(path: &CStr) -> Result<Self, InitError> {
        let bytes = path.to_bytes();
        let is_fit = bytes.starts_with(b"/") && !bytes.iter().any(|byte| b": $".contains(byte));
        if !is_fit || file_version(path).is_err() {
            return Err(InitError::Library);
        }
        Ok(Self { path: path.to_owned(), descriptor: None })
    }

    pub(crate) fn path(&self) -> &CStr {
        &self.path
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if let Some(number) = self.descriptor {
            let _ = io::close(number);
        }
    }
}

/// The path of a descriptor's file in the process that has it.
pub(crate) fn descriptor_path(number: i32) -> CString {
    CString::new(format!("/proc/self/fd/{number}")).unwrap_or_default()
}
