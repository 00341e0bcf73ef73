//! Before the program makes a ring.

use crate::{exec, in_use, signals, symbols};

/// From now on the calls that concern rings are seen, and signals are put off while the program's
/// threads are in ours.
pub(crate) fn prepare() {
    in_use::begin();
    exec::keep_descriptor();
    signals::intercept();
    symbols::before_ring();
}
