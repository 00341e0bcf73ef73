//! What the skins tell around a call of the program that changes what a thread acts as.

use super::Engine;
use crate::identity_call::IdentityChange;

impl Engine {
    /// Before the program makes the call. [`after_identity_call`](Self::after_identity_call) must
    /// follow on the same thread.
    pub fn before_identity_call(&'static self, _change: IdentityChange) {
        self.before_identity_change();
    }

    /// After the call: `result` is negative if it failed.
    pub fn after_identity_call(&'static self, change: IdentityChange, result: isize) {
        let has_happened = change.has_happened(result);
        self.identity_changed(has_happened.then_some(change.scope));
        if has_happened && change.unshares_files {
            self.files_unshared();
        }
    }
}
