//! HTTP/2 settings that client and store share.

use std::time::Duration;

/// A stream's window, bytes: room for the longest message.
pub(crate) const WINDOW: u32 = 2 << 20;
/// Interval of pings on an idle connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);
