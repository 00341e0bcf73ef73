//! The ranges of the options.

use std::ops::RangeInclusive;

/// Length of a message, bytes.
pub(super) const SIZES: RangeInclusive<usize> = 1..=65_536;
/// At most what a ring of 16,384 entries has room for.
pub(super) const CONNECTIONS: RangeInclusive<usize> = 1..=10_000;
