//! A program entry that bypasses std's.

use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int};

/// Makes `$main` the program's entry. The C runtime calls it; no code of std runs before.
///
/// std's own entry ignores SIGPIPE and opens descriptors 0 to 2 if they are closed. A program that
/// replaces itself by execve(2) must do neither. `$main` gets the arguments, because
/// `std::env::args` has none with musl, where only std's entry passes them on.
#[macro_export]
macro_rules! c_main {
    ($main:path) => {
        // SAFETY: a program defines `main` once.
        #[unsafe(no_mangle)]
        extern "C" fn main(argc: ::core::ffi::c_int, argv: *const *const ::core::ffi::c_char) -> ::core::ffi::c_int {
            // SAFETY: what the C runtime has given.
            let status: u8 = $main(unsafe { $crate::program_arguments(argc, argv) });
            ::core::ffi::c_int::from(status)
        }
    };
}

/// The arguments of `main`.
///
/// # Safety
/// They are those that the C runtime has called `main` with.
#[must_use]
pub unsafe fn program_arguments(argc: c_int, argv: *const *const c_char) -> Vec<&'static CStr> {
    let count = usize::try_from(argc).unwrap_or(0);
    // SAFETY: so many strings, which stay as long as the process.
    (0..count).map(|index| unsafe { CStr::from_ptr(*argv.add(index)) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_of_main() {
        let argv = [c"program".as_ptr(), c"--option".as_ptr(), core::ptr::null()];
        // SAFETY: two strings; execve(2) may give none.
        let [two, none] = unsafe { [program_arguments(2, argv.as_ptr()), program_arguments(0, argv[2..].as_ptr())] };
        assert_eq!(two, [c"program", c"--option"]);
        assert!(none.is_empty());
    }
}
