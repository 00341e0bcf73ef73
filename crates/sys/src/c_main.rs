//! A program entry that bypasses std's.

/// Makes `$main` the program's entry. The C runtime calls it; no code of std runs before.
///
/// std's own entry ignores SIGPIPE and opens descriptors 0 to 2 if they are closed. A program that
/// replaces itself by execve(2) must do neither.
#[macro_export]
macro_rules! c_main {
    ($main:path) => {
        // SAFETY: a program defines `main` once.
        #[unsafe(no_mangle)]
        extern "C" fn main(_argc: ::core::ffi::c_int, _argv: *const *const ::core::ffi::c_char) -> ::core::ffi::c_int {
            let status: u8 = $main();
            ::core::ffi::c_int::from(status)
        }
    };
}
