//! Feature `before-main`: the program is attached before its `main`, by a constructor.

use crate::init;

/// Exit status of a program that `URINGLET_NOTICE=require` does not let run, as of `uringlet run`.
const REFUSED: i32 = 125;

#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there are no such constructors"))]
extern "C" fn construct() {
    let Err(error) = init() else { return };
    let notice = std::env::var_os("URINGLET_NOTICE").unwrap_or_default();
    if notice != "quiet" {
        eprintln!("uringlet: not attached: {error}");
    }
    if notice == "require" {
        std::process::exit(REFUSED);
    }
}
