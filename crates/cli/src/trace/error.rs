//! Why there is no trace.

use crate::status::Status;

/// The reason.
#[derive(Debug)]
pub(super) struct TraceError(pub(super) String);

/// Exit status if there is none: as `uringlet run`.
pub(super) const FAILED: Status = 125;
