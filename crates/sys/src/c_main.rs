//! A program's entry without std's.

/// Makes `$main` the program's entry: the C runtime calls it, and nothing of std runs before.
///
/// std's own entry ignores SIGPIPE and opens descriptors 0 to 2 if they are closed. A program that hands its process on by execve(2) must not.
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
