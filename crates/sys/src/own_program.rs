//! The program of this process: what it was started with, and executing it again.

use crate::directory::file_version;
use crate::exec_file::{ExecPath, has_one_identity};
use crate::io::{self, ptr_of_slice};
use crate::linkage::{Linkage, linkage};
use crate::linux::auxvec::{AT_BASE, AT_EXECFN, AT_NULL, AT_SECURE};
use crate::linux::general::{AT_FDCWD, O_RDONLY};
use crate::text_file;
use crate::thread;
use alloc::borrow::ToOwned;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char};
use syscalls::{Errno, Sysno, syscall};

const EXECUTABLE: &CStr = c"/proc/self/exe";
/// Bytes of an executable's beginning that hold its headers, mostly.
const HEAD_BYTES: usize = 4096;
const PATH_MAX: usize = 4096;

/// What the kernel has started.
#[derive(Debug)]
pub struct OwnProgram {
    /// The arguments, as they were given.
    pub arguments: Vec<CString>,
    /// The path that execve(2) was given, if that still leads to the program's file; else another
    /// one, without symbolic links. `None`: the file has no path any more.
    pub path: Option<CString>,
    /// The program has gained privileges by its start, or may have.
    pub is_secure: bool,
    /// The kernel has loaded no dynamic linker beside it.
    pub is_loaded_alone: bool,
    /// How many threads the process has.
    pub threads: usize,
}

impl OwnProgram {
    /// Reads it from /proc.
    ///
    /// # Errors
    /// Those of open(2) and read(2): `ENOENT` where /proc is not mounted.
    pub fn read() -> Result<Self, Errno> {
        let auxiliary = text_file::read(c"/proc/self/auxv")?;
        let value = |kind| auxiliary_value(&auxiliary, kind);
        Ok(Self {
            arguments: strings(&text_file::read(c"/proc/self/cmdline")?),
            path: own_path(value(AT_EXECFN)),
            is_secure: value(AT_SECURE).map_or_else(|| !has_one_identity(), |flag| flag != 0),
            is_loaded_alone: value(AT_BASE).unwrap_or(0) == 0,
            threads: thread::count().ok_or(Errno::ENOENT)? as usize,
        })
    }

    /// Whether a dynamic linker has loaded it, or there is none.
    ///
    /// # Errors
    /// Those of openat(2): a program that may be executed and not read.
    pub fn linkage() -> Result<Linkage, Errno> {
        let file = ExecPath::at(ptr_of_slice(EXECUTABLE.to_bytes_with_nul())).open(false)?;
        let mut head = [0; HEAD_BYTES];
        let len = file.read(&mut head, 0)?;
        Ok(linkage(&head[..len], u64::MAX, &|into, offset| file.read(into, offset).unwrap_or(0)))
    }
}

/// A descriptor of the program's file that stays open over execve(2).
///
/// # Errors
/// Those of openat(2).
pub fn open_executable() -> Result<i32, Errno> {
    io::openat(AT_FDCWD, ptr_of_slice(EXECUTABLE.to_bytes_with_nul()), O_RDONLY, 0).map(io::number_of)
}

/// execve(2): returns why it has failed.
#[must_use]
pub fn execute(path: &CStr, arguments: &[CString], environment: &[CString]) -> Errno {
    let [arguments, environment] = [arguments, environment].map(pointers);
    // SAFETY: strings, and arrays of them that end in null, all alive.
    let result = unsafe { syscall!(Sysno::execve, path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    result.err().unwrap_or(Errno::ENOEXEC)
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([core::ptr::null()]).collect()
}

/// The variables of an array that ends in null, as libc's `environ` is.
///
/// # Safety
/// It is such an array, or null, and nothing changes it meanwhile.
#[must_use]
pub unsafe fn environment_at(mut array: *const *const c_char) -> Vec<CString> {
    let mut variables = Vec::new();
    // SAFETY: the caller's.
    unsafe {
        while !array.is_null() && !array.read().is_null() {
            variables.push(CStr::from_ptr(array.read()).to_owned());
            array = array.add(1);
        }
    }
    variables
}

/// The path of execve(2) is at `given`, on the stack where the kernel has put it.
fn own_path(given: Option<usize>) -> Option<CString> {
    // SAFETY: the kernel's string, which ends in NUL and stays as long as the program lets it.
    let given = given.map(|at| unsafe { CStr::from_ptr(at as *const c_char) }.to_owned());
    let is_own = |path: &CString| match (file_version(path), file_version(EXECUTABLE)) {
        (Ok(named), Ok(own)) => (named.dev, named.ino) == (own.dev, own.ino),
        _ => false,
    };
    given.filter(is_own).or_else(|| link_target().filter(is_own))
}

fn link_target() -> Option<CString> {
    let mut path = alloc::vec![0; PATH_MAX];
    // SAFETY: the kernel writes at most as much as there is room.
    let len = unsafe { syscall!(Sysno::readlink, EXECUTABLE.as_ptr(), path.as_mut_ptr(), path.len()) }.ok()?;
    path.truncate(len);
    CString::new(path).ok()
}

/// Strings that each end in NUL.
fn strings(bytes: &[u8]) -> Vec<CString> {
    bytes.split_inclusive(|&byte| byte == 0).filter_map(|text| CStr::from_bytes_until_nul(text).ok()).map(CStr::to_owned).collect()
}

fn auxiliary_value(vector: &[u8], kind: u32) -> Option<usize> {
    let word = |bytes: &[u8]| usize::from_ne_bytes(bytes.try_into().unwrap_or_default());
    let pairs = vector.chunks_exact(2 * size_of::<usize>()).map(|pair| pair.split_at(size_of::<usize>()));
    let mut pairs = pairs.map(|(kind, value)| (word(kind), word(value))).take_while(|&(kind, _)| kind != AT_NULL as usize);
    pairs.find(|&(found, _)| found == kind as usize).map(|(_, value)| value)
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn a_process_knows_its_own_program() {
        let own = OwnProgram::read().unwrap();
        let arguments: Vec<_> = std::env::args().map(|argument| CString::new(argument).unwrap()).collect();
        assert_eq!(own.arguments, arguments);
        assert!(!own.is_secure && own.threads > 1);
        let path = std::path::PathBuf::from(own.path.unwrap().into_string().unwrap());
        assert_eq!(path.canonicalize().unwrap(), std::env::current_exe().unwrap());
        assert_eq!(OwnProgram::linkage(), Ok(Linkage::Dynamic));
    }

    #[test]
    fn strings_may_be_empty() {
        assert_eq!(strings(b"a\0\0b c\0"), [c"a".to_owned(), c"".to_owned(), c"b c".to_owned()]);
        assert!(strings(b"").is_empty());
    }

    #[test]
    fn a_failed_execution_says_why() {
        assert_eq!(execute(c"/nowhere", &[], &[]), Errno::ENOENT);
    }
}
