//! fork and exec: all locks of the engine are held while the process is copied.

use super::Engine;
use crate::driver::watcher::WATCHER;
use crate::state::{LockOwner, RINGS, sharing};
use crate::submit::cancel;
use crate::throttle::THROTTLE;
use crate::virtual_file;
use uringlet_sys::process;

impl Engine {
    /// Whether this process uses rings of its parent. Never in a vfork child.
    #[must_use]
    pub fn shares_rings(&'static self) -> bool {
        sharing::is_forked_child() && !self.is_foreign_process()
    }

    /// Before execve(2): cancels what this process has in flight on rings that it shares with
    /// others.
    pub fn before_exec(&'static self) {
        for ring in RINGS.all() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker)
                && guard.is_shared()
            {
                cancel::cancel_everything(&mut guard);
            }
        }
    }

    /// Before fork(2): keeps all other threads out of the engine until one of the functions below.
    pub fn before_fork(&'static self) {
        RINGS.lock_for_fork();
        WATCHER.lock_for_fork();
        for ring in RINGS.all_held() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker) {
                guard.was_forked = true;
            }
            ring.lock_for_fork();
        }
        // Locked after the rings: these locks are taken under a ring's lock.
        THROTTLE.lock_for_fork();
        virtual_file::lock_for_fork();
    }

    /// After fork(2), in the parent.
    pub fn after_fork_in_parent(&'static self) {
        virtual_file::unlock_after_fork();
        THROTTLE.unlock_after_fork();
        for ring in RINGS.all_held() {
            ring.unlock_after_fork();
        }
        WATCHER.unlock_after_fork();
        RINGS.unlock_after_fork();
    }

    /// After fork(2), in the child, which has none of the engine's threads.
    pub fn after_fork_in_child(&'static self) {
        process::forget_pid();
        // The child's copy of the descriptor table is as small as its descriptors allow.
        self.prepare();
        sharing::reset_forked_child();
        self.after_fork_in_parent();
        WATCHER.forget();
        for ring in RINGS.all() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker) {
                guard.reset_in_child();
            }
        }
    }
}
