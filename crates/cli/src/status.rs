//! The exit status of a command.

/// As shells understand it: 0 is success.
pub(crate) type Status = u8;
