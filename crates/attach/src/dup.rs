//! What the engine has to know about fcntl(2).

use uringlet_sys::linux::general::{F_DUPFD, F_DUPFD_CLOEXEC};

/// Whether this fcntl(2) command duplicates the descriptor.
pub(crate) fn is_dup_command(command: i32) -> bool {
    matches!(command.cast_unsigned(), F_DUPFD | F_DUPFD_CLOEXEC)
}
