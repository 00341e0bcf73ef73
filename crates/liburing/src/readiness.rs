//! Whether a ring's fd is readable in poll(2).

use uringlet_core::ENGINE;

/// Clears the readiness of rings whose CQ is empty: the program has seen it so. Called where this
/// library finds an empty CQ and before the program waits for descriptors.
pub(crate) fn settle_readiness() {
    if ENGINE.any_readable() {
        ENGINE.settle_readiness();
    }
}
