//! The program changes the identity of its threads.

use super::Engine;
use crate::driver::watcher::WATCHER;
use crate::identity::{self, IdentityScope};
use crate::state::{LockOwner, RINGS};

impl Engine {
    /// Before a call that may change the identity of the calling thread, or of the process: its
    /// credentials, filters, namespaces, directories. [`identity_changed`](Self::identity_changed)
    /// must follow. No system call in a process without a ring.
    pub fn before_identity_change(&'static self) {
        if !identity::has_ring() || self.is_foreign_process() {
            return;
        }
        if identity::has_captured() {
            let identity = identity::of_this_thread();
            RINGS.all().filter_map(|ring| ring.lock(LockOwner::Worker)).for_each(|guard| guard.io_wq.keep_captured(identity));
        }
        identity::begin_change();
    }

    /// After such a call; `None`: it has failed, and nothing has changed. Follows
    /// [`before_identity_change`](Self::before_identity_change) on the same thread. No system call
    /// in a process without a ring.
    pub fn identity_changed(&'static self, scope: Option<IdentityScope>) {
        let Some(scope) = scope else { return };
        if !identity::has_ring() {
            if scope == IdentityScope::Thread {
                identity::note_change_before();
            }
        } else if !self.is_foreign_process() {
            identity::end_change(scope);
            end_old_threads();
        }
    }

    /// The calling thread has a descriptor table of its own now: after unshare(2) with
    /// `CLONE_FILES`, or close_range(2) with `CLOSE_RANGE_UNSHARE`.
    pub fn files_unshared(&'static self) {
        self.identity_changed(Some(IdentityScope::Thread));
    }
}

/// Ends the engine's threads of identities that have ended, as soon as they have done what was
/// queued for them. The calling thread has one of the identities that have begun.
fn end_old_threads() {
    for ring in RINGS.all() {
        if let Some(mut guard) = ring.lock(LockOwner::Worker) {
            guard.io_wq.end_old();
            guard.lacks_worker |= guard.io_wq.lacks_worker();
            // A new one is made when there is work.
            guard.uringlet_workers = None;
        }
    }
    WATCHER.renew(identity::of_this_thread());
}
