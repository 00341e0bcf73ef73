//! fork and exec: no thread is inside the engine while the process is copied.

use super::Engine;
use crate::driver::watcher::WATCHER;
use crate::state::{LockOwner, RINGS, sharing};
use crate::submit::cancel;
use crate::throttle::THROTTLE;
use crate::virtual_file;
use uringlet_sys::process;

impl Engine {
    /// Whether this process uses rings that another one made. Never in a vfork child.
    #[must_use]
    pub fn shares_rings(&'static self) -> bool {
        sharing::is_heir() && !self.is_foreign_process()
    }

    /// Before execve(2): what this process has in flight on rings of others ends, and they are told.
    pub fn before_exec(&'static self) {
        for ring in RINGS.all() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker)
                && guard.is_shared()
            {
                cancel::cancel_everything(&mut guard);
            }
        }
    }

    /// fork(2): no thread is inside the engine until the other end of this.
    pub fn before_fork(&'static self) {
        RINGS.lock_for_fork();
        WATCHER.lock_for_fork();
        for ring in RINGS.all_held() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker) {
                guard.was_forked = true;
            }
            ring.lock_for_fork();
        }
        // Asked under a ring's lock.
        THROTTLE.lock_for_fork();
        virtual_file::lock_for_fork();
    }

    /// fork(2) is done: in the parent.
    pub fn after_fork_in_parent(&'static self) {
        virtual_file::unlock_after_fork();
        THROTTLE.unlock_after_fork();
        for ring in RINGS.all_held() {
            ring.unlock_after_fork();
        }
        WATCHER.unlock_after_fork();
        RINGS.unlock_after_fork();
    }

    /// fork(2) is done: in the child, which has none of the engine's threads.
    pub fn after_fork_in_child(&'static self) {
        process::forget_pid();
        // The copy of the table is as narrow as the child's descriptors allow.
        self.prepare();
        sharing::forget_heritage();
        self.after_fork_in_parent();
        WATCHER.forget();
        for ring in RINGS.all() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker) {
                guard.forget_parents_requests();
            }
        }
    }
}
