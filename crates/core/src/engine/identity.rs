//! The program changes the identity of its threads.

use super::Engine;
use super::files::leave_table;
use crate::driver::watcher::WATCHER;
use crate::identity::{self, Identity};
use crate::identity_call::IdentityChange;
use crate::kernel_trace;
use crate::state::{LockOwner, RINGS, UringGuard};
use crate::submit::identity::{end_old_workers as end_workers_of_ring, start_missing_workers};
use uringlet_sys::process::{monotonic_ns, sleep_ns, thread_key};
use uringlet_sys::thread;

/// The most that a call waits for the engine's threads to end.
const END_TIMEOUT_NS: u64 = 50_000_000;
/// Of that, after the last of them has said that it ends.
const EXIT_NS: u64 = 2_000_000;

impl Engine {
    /// Before the program makes a call that may change the identity of the calling thread, or of
    /// the process. [`after_identity_call`](Self::after_identity_call) must follow on the same
    /// thread. No system call in a process without a ring.
    pub fn before_identity_call(&'static self, change: IdentityChange) {
        kernel_trace::before_identity_call();
        if !identity::has_ring() || self.is_foreign_process() {
            return;
        }
        if identity::has_captured() {
            let identity = identity::of_this_thread();
            RINGS.all().filter_map(|ring| ring.lock(LockOwner::Worker)).for_each(|guard| guard.io_wq.keep_captured(identity));
        }
        identity::begin_change(change.scope);
        if pauses_watcher(change) {
            WATCHER.pause(monotonic_ns() + END_TIMEOUT_NS);
        }
        if change.wants_lone_thread {
            end_old_workers();
            wait_until_alone();
        }
    }

    /// After the call: `result` is negative if it failed, and nothing has changed. No system call
    /// in a process without a ring.
    pub fn after_identity_call(&'static self, change: IdentityChange, result: isize) {
        kernel_trace::after_identity_call();
        let scope = change.has_happened(result).then_some(change.scope);
        let has_unshared = scope.is_some() && change.unshares_files;
        if !identity::has_ring() {
            if has_unshared {
                identity::note_unshared_before();
            }
            return identity::note_change_before(scope);
        }
        if self.is_foreign_process() {
            return;
        }
        if has_unshared {
            if !thread::is_program_alone() {
                identity::end_change(None, true);
                return leave_table();
            }
            identity::note_changed_files();
        }
        identity::end_change(scope, change.is_filter);
        if scope.is_some() {
            end_old_workers();
            WATCHER.renew(identity::of_this_thread());
        }
        if pauses_watcher(change) {
            WATCHER.resume(identity::of_this_thread());
        }
    }
}

/// Whether the watcher's thread has to be gone when the call is made. With a descriptor table of
/// its own, the only thread must not find one that works on the old table.
fn pauses_watcher(change: IdentityChange) -> bool {
    change.is_filter || change.wants_lone_thread || (change.unshares_files && thread::is_program_alone())
}

/// As [`end_workers_of_ring`], in all rings. The calling thread starts those that lack and have its
/// identity.
fn end_old_workers() {
    let identity = identity::of_this_thread();
    let own = LockOwner::WorkerOf(identity);
    for ring in RINGS.all() {
        if let Some(mut guard) = ring.lock(own) {
            leave_new_worker(&guard, identity);
            end_workers_of_ring(&mut guard);
            // A new one is made when there is work.
            guard.uringlet_workers = None;
            if guard.lacks_worker {
                start_missing_workers(&mut guard);
            }
        }
    }
}

/// Requests of the calling thread are in flight that may come to another thread, which needs a
/// worker with the new identity for them.
fn leave_new_worker(guard: &UringGuard, identity: Identity) {
    if identity::is_diverged() && guard.leaves_dependent && guard.has_requests_of(thread_key()) {
        guard.io_wq.keep_worker(identity);
    }
}

/// Waits for the engine's threads to be gone: the call is for a process of one thread. One that is
/// at work stays, and the kernel refuses the call, as it does while its own ring has a worker.
fn wait_until_alone() {
    const STEP_NS: u64 = 50_000;
    let mut deadline = monotonic_ns() + END_TIMEOUT_NS;
    let mut has_engine_threads = true;
    while thread::count() != Some(1) && monotonic_ns() < deadline {
        if has_engine_threads && thread::count_of_engine() == 0 {
            has_engine_threads = false;
            deadline = monotonic_ns() + EXIT_NS;
        }
        sleep_ns(STEP_NS);
    }
}
