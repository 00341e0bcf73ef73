//! The program's own system calls, made by this object.

use uringlet_sys::Sysno;
use uringlet_sys::passthrough::pass_through;

/// Issues the call as the program asked for it.
pub(crate) fn issue(nr: Sysno, args: [usize; 6]) -> isize {
    // SAFETY: the program's own call with the program's own arguments.
    unsafe { pass_through(nr, args) }
}
