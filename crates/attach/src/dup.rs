//! What the engine has to know about dup(2) and fcntl(2).

use uringlet::ENGINE;
use uringlet_sys::Sysno;
use uringlet_sys::linux::general::{F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD};
use uringlet_sys::passthrough::pass_through;

use crate::convert::Register;

/// Whether this fcntl(2) command duplicates the descriptor.
pub(crate) fn is_dup_command(command: i32) -> bool {
    matches!(command.cast_unsigned(), F_DUPFD | F_DUPFD_CLOEXEC)
}

/// Before dup2(2) and dup3(2): they close `new`, but only if they succeed.
pub(crate) fn before_replace(old: i32, new: i32) {
    // SAFETY: asks for the descriptor's flags; no addresses.
    let is_open = |fd: i32| unsafe { pass_through(Sysno::fcntl, [fd.reg(), F_GETFD.reg(), 0, 0, 0, 0]) } >= 0;
    if old != new && !ENGINE.is_unused(new) && is_open(old) {
        ENGINE.before_replace(new);
    }
}
