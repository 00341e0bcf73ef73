//! The version of liburing that this library replaces.

const MAJOR: i32 = 2;
const MINOR: i32 = 15;

/// The library's major version.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_major_version() -> i32 {
    MAJOR
}

/// The library's minor version.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_minor_version() -> i32 {
    MINOR
}

/// Whether the library is at least this version.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_check_version(major: i32, minor: i32) -> bool {
    (MAJOR, MINOR) >= (major, minor)
}
