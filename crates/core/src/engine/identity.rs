//! The program changes the identity of its threads.

use super::Engine;
use crate::identity::IdentityScope;
use crate::state::{LockOwner, RINGS};

impl Engine {
    /// Before a call that may change the identity of the calling thread, or of the process: its
    /// credentials, filters, namespaces, directories. [`identity_changed`](Self::identity_changed)
    /// must follow. No system call in a process without a ring.
    pub fn before_identity_change(&'static self) {}

    /// After such a call; `None`: it has failed, and nothing has changed. Follows
    /// [`before_identity_change`](Self::before_identity_change) on the same thread. No system call
    /// in a process without a ring.
    pub fn identity_changed(&'static self, scope: Option<IdentityScope>) {
        if scope.is_some() {
            renew_workers();
        }
    }

    /// The calling thread has a descriptor table of its own now: after unshare(2) with
    /// `CLONE_FILES`, or close_range(2) with `CLOSE_RANGE_UNSHARE`.
    pub fn files_unshared(&'static self) {
        renew_workers();
    }
}

fn renew_workers() {
    for ring in RINGS.all() {
        if let Some(guard) = ring.lock(LockOwner::Worker) {
            guard.io_wq.renew_credentials();
            if let Some(workers) = &guard.uringlet_workers {
                workers.pool().renew_credentials();
            }
        }
    }
}
