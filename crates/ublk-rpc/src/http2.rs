//! Settings of HTTP/2 that client and store share.

use std::time::Duration;

/// HTTP/2's window of a stream, bytes: the longest message fits.
pub(crate) const WINDOW: u32 = 2 << 20;
/// How often an idle connection is tried.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);
