//! fork and exec: all locks of the engine are held while the process is copied.

use super::Engine;
use crate::driver::watcher::WATCHER;
use crate::identity;
use crate::kernel_trace;
use crate::state::{LockOwner, RINGS, Ring, UringGuard, sharing, task_policy};
use crate::submit::{Depth, cancel, left_timeouts, run_ready};
use crate::throttle::THROTTLE;
use crate::virtual_file;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::{Errno, fd, heap, process, thread};

/// This process, or one that it is a copy of, has no heap: see [`Engine::own`].
static HAS_NO_HEAP: AtomicBool = AtomicBool::new(false);

impl Engine {
    /// Whether this process uses rings of its parent. Never in a vfork child.
    #[must_use]
    pub fn shares_rings(&'static self) -> bool {
        sharing::is_forked_child() && !self.is_foreign_process()
    }

    /// Before execve(2): cancels what this process has in flight on rings that it shares with
    /// others.
    pub fn before_exec(&'static self) {
        self.end_requests(|_| ());
    }

    /// In exit(3): as [`before_exec`](Self::before_exec), but time-outs go on without this process.
    pub fn before_exit(&'static self) {
        self.end_requests(left_timeouts::leave);
    }

    /// What `leave` leaves is cancelled.
    fn end_requests(&'static self, leave: fn(&mut UringGuard)) {
        for ring in RINGS.all() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker)
                && guard.is_shared()
            {
                leave(&mut guard);
                cancel::cancel_everything(&mut guard);
                run_ready(&mut guard, Depth::Driving);
            }
        }
    }

    /// Makes the process the owner of its copy of the engine. Does something in a forked child in
    /// which no handler of fork(2) has run only: `_Fork`, clone(2), a raw call.
    ///
    /// # Errors
    /// `ENOMEM`: another thread of the parent was in the heap at that moment, and there is no room
    /// for another heap.
    #[inline]
    pub fn own(&'static self) -> Result<(), Errno> {
        if process::is_unclaimed_copy() { self.own_copy() } else { Ok(()) }
    }

    /// At the fork no lock was taken. What another thread was changing is rebuilt, or leaked.
    #[cold]
    fn own_copy(&'static self) -> Result<(), Errno> {
        if process::begin_claim() {
            if HAS_NO_HEAP.load(Relaxed) || heap::recover_in_copy().is_err() {
                HAS_NO_HEAP.store(true, Relaxed);
                process::give_up_claim();
                return Err(Errno::ENOMEM);
            }
            // First: what is rebuilt closes descriptors.
            fd::recover_in_copy();
            RINGS.all_held().for_each(Ring::recover_in_copy);
            RINGS.recover_in_copy();
            WATCHER.recover_in_copy();
            THROTTLE.recover_in_copy();
            identity::recover_in_copy();
            task_policy::recover_in_copy();
            virtual_file::recover_in_copy();
            kernel_trace::recover_in_copy();
            self.reset_copy();
            self.prepare_child();
        }
        if process::is_unclaimed_copy() { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Before fork(2): keeps all other threads out of the engine until one of the functions below.
    pub fn before_fork(&'static self) {
        if self.own().is_err() {
            return;
        }
        RINGS.lock_for_fork();
        WATCHER.lock_for_fork();
        for ring in RINGS.all_held() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker) {
                guard.was_forked = true;
                if guard.needs_watch() {
                    guard.say_whether_served();
                }
            }
            ring.lock_for_fork();
        }
        // Locked after the rings: these locks are taken under a ring's lock.
        THROTTLE.lock_for_fork();
        identity::lock_for_fork();
        task_policy::lock_for_fork();
        virtual_file::lock_for_fork();
        kernel_trace::lock_for_fork();
        fd::lock_for_fork();
    }

    /// After fork(2), in the parent.
    pub fn after_fork_in_parent(&'static self) {
        if HAS_NO_HEAP.load(Relaxed) {
            return;
        }
        fd::unlock_after_fork();
        kernel_trace::unlock_after_fork();
        virtual_file::unlock_after_fork();
        task_policy::unlock_after_fork();
        identity::unlock_after_fork();
        THROTTLE.unlock_after_fork();
        for ring in RINGS.all_held() {
            ring.unlock_after_fork();
        }
        WATCHER.unlock_after_fork();
        RINGS.unlock_after_fork();
    }

    /// After fork(2), in the child, which has none of the engine's threads.
    pub fn after_fork_in_child(&'static self) {
        if HAS_NO_HEAP.load(Relaxed) {
            return;
        }
        // The child's copy of the descriptor table is as small as its descriptors allow.
        self.prepare_child();
        self.after_fork_in_parent();
        self.reset_copy();
    }

    /// Drops what is the parent's.
    fn reset_copy(&'static self) {
        uringlet_sys::trace::forget_in_child();
        kernel_trace::forget_in_child();
        fd::reset_in_child();
        sharing::reset_forked_child();
        thread::forget_all();
        let former = identity::reset_in_child();
        WATCHER.forget();
        for ring in RINGS.all() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker) {
                guard.reset_in_child(former);
            }
        }
    }
}
