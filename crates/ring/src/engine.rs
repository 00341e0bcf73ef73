//! The engine of this process: the object, mapped once and never unmapped.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::FromRawFd;
use std::sync::{Mutex, PoisonError};

use uringlet_object::OBJECT;
use uringlet_sys::engine_calls::EngineCalls;

use crate::error::RingError;
use crate::image;

/// Names another object than the embedded one.
const LIBRARY: &str = "URINGLET_LIB";

static LOADED: Mutex<Option<&'static EngineCalls>> = Mutex::new(None);

/// The engine, which is loaded by the first call that succeeds.
pub(crate) fn calls() -> Result<&'static EngineCalls, RingError> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(calls) = *loaded {
        return Ok(calls);
    }
    let calls = load()?;
    follow_forks(calls).map_err(RingError::Object)?;
    (calls.start)();
    *loaded = Some(calls);
    Ok(calls)
}

/// The value of a variable. An empty one counts as none, and a program that has gained privileges
/// by its start has none.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty() && !is_privileged())
}

fn is_privileged() -> bool {
    // SAFETY: no addresses.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn load() -> Result<&'static EngineCalls, RingError> {
    let Some(path) = variable(LIBRARY) else {
        let object = OBJECT.ok_or(RingError::NoObject)?;
        return image::load(&in_memory(object).map_err(RingError::Object)?, object, environment());
    };
    let mut content = Vec::new();
    let mut file = File::open(path).map_err(RingError::Object)?;
    file.read_to_end(&mut content).map_err(RingError::Object)?;
    image::load(&file, &content, environment())
}

/// An executable file with this content. Mapping a file needs no page that is written and executed,
/// which a service manager may forbid.
fn in_memory(content: &[u8]) -> io::Result<File> {
    const EXECUTABLE: libc::c_uint = 0x10;
    let create = |flags| {
        // SAFETY: a string.
        match unsafe { libc::memfd_create(c"liburinglet.so".as_ptr(), libc::MFD_CLOEXEC | flags) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: a new descriptor, which nobody else has.
            fd => Ok(unsafe { File::from_raw_fd(fd) }),
        }
    };
    // Before Linux 6.3 each file is executable, and the flag unknown.
    let is_unknown = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    let mut file = create(EXECUTABLE).or_else(|error| if is_unknown(&error) { create(0) } else { Err(error) })?;
    file.write_all(content)?;
    Ok(file)
}

/// Where the object finds the program's environment; 0: it has none.
fn environment() -> usize {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    if is_privileged() { 0 } else { (&raw const environ).expose_provenance() }
}

fn follow_forks(calls: &EngineCalls) -> io::Result<()> {
    // SAFETY: functions of the object, which stays mapped.
    match unsafe { libc::pthread_atfork(Some(calls.before_fork), Some(calls.after_fork_in_parent), Some(calls.after_fork_in_child)) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
