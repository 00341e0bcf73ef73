//! What the runtimes of sanitizers ask for at their start.

use core::ffi::{CStr, c_char};

/// Options of a shared AddressSanitizer runtime. It refuses to start behind another preloaded
/// object, whose functions might hide its own. Those here hide none: they call the ones that come
/// next. A program's own function of this name comes before this one.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __asan_default_options() -> *const c_char {
    const OPTIONS: &CStr = c"verify_asan_link_order=0";
    OPTIONS.as_ptr()
}
