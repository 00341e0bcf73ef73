//! `_exit`, which runs no destructors: the last look at rings of the kernel's.

use core::ffi::c_int;

use uringlet_sys::process;

use super::next::{EXIT, EXIT_C};
use crate::convert::Register;
use crate::kernel_rings;

macro_rules! exits {
    ($($name:ident = $next:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(non_snake_case, reason = "C's name")]
        unsafe extern "C" fn $name(status: c_int) -> ! {
            kernel_rings::look();
            $next.call([status.reg(), 0, 0, 0, 0, 0]);
            process::exit(status)
        })*
    };
}

exits! {
    _exit = EXIT;
    _Exit = EXIT_C;
}
