//! With whose rights a request runs: those of the thread that submitted it.
//!
//! A thread's *identity* is all that the kernel asks about who it is: credentials, capabilities,
//! keyrings, filters, Landlock domain, namespaces, working directory, root, umask. A thread of the
//! engine has the identity of the thread that started it, and keeps it. Identities have numbers
//! here; what differs in them is not looked at. A number is given once: a thread that changes is
//! somebody else from then on, also if it changes back.
//!
//! ```text
//!   uniform    one identity for all threads      every change that libc makes in all threads;
//!              of the program                    any change in a process of one thread
//!   diverged   an identity for each thread       from the first change of one thread among several:
//!              that submits                      a thread may have inherited anything since
//! ```
//!
//! A process stays diverged. A thread's key names it without a system call. It may name a later
//! thread, too, and is checked by the thread's number where the thread itself asks.
//!
//! Between the announcement of a change and its end the process has a third number: threads that
//! libc has changed already and others are not told apart then.
//!
//! `docs/decisions/0021` has the rules that follow for workers and the watcher.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use uringlet_sys::lock::Mutex;
use uringlet_sys::process::{effective_user_and_group, thread_key, tid};
use uringlet_sys::thread;

/// The threads that a change of identity affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityScope {
    /// Only the calling thread: a system call.
    Thread,
    /// All threads of the process: libc's setuid(3) and its kin, a filter with TSYNC.
    Process,
}

/// An identity. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u32);

/// In place of the number of the process' identity: it has diverged.
const DIVERGED: u32 = 0;

/// The number of the process' identity, or [`DIVERGED`].
static CURRENT: AtomicU32 = AtomicU32::new(1);
/// The last number that was given.
static LAST: AtomicU32 = AtomicU32::new(1);
/// The process has made a ring. Before that nobody asks for identities.
static HAS_RING: AtomicBool = AtomicBool::new(false);
/// A thread has changed alone before the first ring.
static CHANGED_BEFORE: AtomicBool = AtomicBool::new(false);
/// That was its descriptor table.
static UNSHARED_BEFORE: AtomicBool = AtomicBool::new(false);

/// A thread has left the descriptor table of the others: see `engine::files`.
static HAS_SPLIT_FILES: AtomicBool = AtomicBool::new(false);
/// The only thread of the program has another descriptor table than threads of the engine that
/// were started before.
static HAS_CHANGED_FILES: AtomicBool = AtomicBool::new(false);

/// Requests have captured identities, at some time.
static HAS_CAPTURED: AtomicBool = AtomicBool::new(false);

#[cfg(not(loom))]
static KNOWN: Mutex<Known> = Mutex::new(Known::new());

#[cfg(loom)]
loom::lazy_static! {
    static ref KNOWN: Mutex<Known> = Mutex::new(Known::new());
}

/// Effective user and group.
type User = (u32, u32);

/// The user of the calling thread, in place of the one that was noted.
fn user_now(_: Option<User>) -> Option<User> {
    Some(effective_user_and_group())
}

/// What is known of identities.
#[derive(Debug)]
struct Known {
    /// The user of the process' identity.
    user: Option<User>,
    /// Changes that go on.
    changing: u32,
    /// The process had one thread when the last change of one thread began.
    was_alone: bool,
    /// In a diverged process: the threads that have submitted since.
    threads: Vec<ThreadIdentity>,
}

#[derive(Debug)]
struct ThreadIdentity {
    key: u64,
    /// 0: it has not asked itself yet.
    tid: u32,
    identity: Identity,
    user: Option<User>,
}

impl Identity {
    fn new() -> Self {
        // A number comes again after four thousand million changes.
        Self(LAST.fetch_add(1, Relaxed).wrapping_add(1).max(1))
    }
}

impl Known {
    const fn new() -> Self {
        Self { user: None, changing: 0, was_alone: false, threads: Vec::new() }
    }

    /// The entry of a thread by its key.
    fn of(&mut self, key: u64) -> &mut ThreadIdentity {
        let at = self.threads.iter().position(|thread| thread.key == key).unwrap_or_else(|| {
            self.threads.retain(|thread| thread.tid == 0 || thread::is_alive(thread.tid));
            self.threads.push(ThreadIdentity { key, tid: 0, identity: Identity::new(), user: None });
            self.threads.len() - 1
        });
        &mut self.threads[at]
    }

    /// The entry of the calling thread. An earlier thread may have had its key.
    fn of_this_thread(&mut self) -> &mut ThreadIdentity {
        let (thread, tid) = (self.of(thread_key()), tid());
        if thread.tid != tid {
            if thread.tid != 0 {
                thread.renew();
            }
            thread.tid = tid;
        }
        thread
    }
}

impl ThreadIdentity {
    fn renew(&mut self) {
        self.identity = Identity::new();
        self.user = None;
    }
}

/// Whether threads of the program have identities of their own. One relaxed load.
#[inline]
pub(crate) fn is_diverged() -> bool {
    CURRENT.load(Relaxed) == DIVERGED
}

/// The identity of the process, if all threads of the program have the same one.
#[inline]
fn of_process() -> Option<Identity> {
    match CURRENT.load(Acquire) {
        DIVERGED => None,
        number => Some(Identity(number)),
    }
}

/// The present identity of the thread of the program that has this key.
#[inline]
pub(crate) fn of_thread(key: u64) -> Identity {
    of_process().unwrap_or_else(|| KNOWN.lock().of(key).identity)
}

/// The identity of the calling thread, which is the program's.
#[inline]
pub(crate) fn of_this_thread() -> Identity {
    of_process().unwrap_or_else(|| {
        let mut known = KNOWN.lock();
        let thread = known.of_this_thread();
        // From now on workers may be started with it.
        thread.user.get_or_insert_with(effective_user_and_group);
        thread.identity
    })
}

/// The thread that has this identity alone; 0 if it is not known.
pub(crate) fn thread_of(identity: Identity) -> u32 {
    if !is_diverged() {
        return 0;
    }
    KNOWN.lock().threads.iter().find(|thread| thread.identity == identity).map_or(0, |thread| thread.tid)
}

/// Whether no thread of the program has this identity any more.
pub(crate) fn has_ended(identity: Identity) -> bool {
    match of_process() {
        Some(current) => current != identity,
        None => KNOWN.lock().threads.iter().all(|thread| thread.identity != identity),
    }
}

/// The process makes a ring.
pub(crate) fn note_ring() {
    if HAS_RING.swap(true, AcqRel) {
        return;
    }
    KNOWN.lock().user = Some(effective_user_and_group());
    let (has_changed, has_unshared) = (CHANGED_BEFORE.load(Relaxed), UNSHARED_BEFORE.load(Relaxed));
    if (has_changed || has_unshared) && !thread::is_program_alone() {
        CURRENT.store(DIVERGED, Release);
        HAS_SPLIT_FILES.store(has_unshared, Release);
    }
}

/// Whether the process has made a ring. One load.
pub(crate) fn has_ring() -> bool {
    HAS_RING.load(Acquire)
}

/// A request acts with an identity that its submitter may not have any more.
pub(crate) fn note_captured() {
    HAS_CAPTURED.store(true, Release);
}

/// Whether there may be such requests.
pub(crate) fn has_captured() -> bool {
    HAS_CAPTURED.load(Acquire)
}

/// Whether threads of the program have different descriptor tables. One relaxed load.
#[inline]
pub(crate) fn has_split_files() -> bool {
    HAS_SPLIT_FILES.load(Relaxed)
}

/// A thread has a descriptor table of its own.
pub(crate) fn note_split_files() {
    HAS_SPLIT_FILES.store(true, Release);
}

/// Whether threads of the engine may have another descriptor table than the program's only thread.
pub(crate) fn has_changed_files() -> bool {
    HAS_CHANGED_FILES.load(Acquire)
}

/// See [`has_changed_files`].
pub(crate) fn note_changed_files() {
    HAS_CHANGED_FILES.store(true, Release);
}

/// A thread had a descriptor table of its own before the first ring.
pub(crate) fn note_unshared_before() {
    UNSHARED_BEFORE.store(true, Relaxed);
}

/// A change before the first ring, if it has happened.
pub(crate) fn note_change_before(scope: Option<IdentityScope>) {
    if scope == Some(IdentityScope::Thread) {
        CHANGED_BEFORE.store(true, Relaxed);
    }
}

/// A change is about to begin on the calling thread: what is queued from now on is not mixed with
/// what was queued before.
///
/// All that needs a system call is asked now: what begins may be a filter.
pub(crate) fn begin_change(scope: IdentityScope) {
    let is_alone = is_first_of_thread(scope) && thread::is_program_alone();
    renew(if is_diverged() { IdentityScope::Thread } else { IdentityScope::Process }, user_now);
    let mut known = KNOWN.lock();
    known.changing += 1;
    known.was_alone = is_alone;
}

/// A change has ended on the calling thread; `None`: it has failed. `keeps_user`: it was none of
/// user or group.
pub(crate) fn end_change(scope: Option<IdentityScope>, keeps_user: bool) {
    let was_alone = {
        let mut known = KNOWN.lock();
        known.changing = known.changing.saturating_sub(1);
        known.was_alone
    };
    let Some(scope) = scope else { return };
    let of = if is_first_of_thread(scope) && was_alone { IdentityScope::Process } else { scope };
    renew(of, |former| if keeps_user { former } else { user_now(former) });
}

/// Whether a thread changes alone in a process that has not diverged yet.
fn is_first_of_thread(scope: IdentityScope) -> bool {
    scope == IdentityScope::Thread && !is_diverged()
}

fn renew(scope: IdentityScope, user: impl Fn(Option<User>) -> Option<User>) {
    let mut known = KNOWN.lock();
    match scope {
        IdentityScope::Thread => {
            let of_process = known.user;
            CURRENT.store(DIVERGED, Release);
            let thread = known.of_this_thread();
            let former = thread.user.or(of_process);
            thread.renew();
            thread.user = user(former);
        }
        IdentityScope::Process if is_diverged() => known.threads.iter_mut().for_each(ThreadIdentity::renew),
        IdentityScope::Process => {
            known.user = user(known.user);
            CURRENT.store(Identity::new().0, Release);
        }
    }
}

/// Compares the calling thread's user and group with those that its identity began with. If they
/// differ, there was a change that nobody has told the engine about.
///
/// Returns whether there was one.
pub(crate) fn check_this_thread() -> bool {
    let user = effective_user_and_group();
    let noted = {
        let mut known = KNOWN.lock();
        match is_diverged() {
            _ if known.changing > 0 => None,
            true => known.of_this_thread().user,
            false => known.user,
        }
    };
    let has_changed = noted.is_some_and(|noted| noted != user);
    if has_changed {
        let is_alone = !is_diverged() && thread::is_program_alone();
        renew(if is_alone { IdentityScope::Process } else { IdentityScope::Thread }, |_| Some(user));
    }
    has_changed
}

/// In a forked child, which has one thread. Returns the identity that the thread had in its parent.
pub(crate) fn reset_in_child() -> Identity {
    let former = of_thread(thread_key());
    let mut known = KNOWN.lock();
    known.threads.clear();
    known.changing = 0;
    known.user = has_ring().then(effective_user_and_group);
    CURRENT.store(Identity::new().0, Release);
    former
}

/// For fork(2): keeps all other threads out of the table.
pub(crate) fn lock_for_fork() {
    KNOWN.lock_for_fork();
}

/// In a copy of a process: what a thread that the copy does not have was changing begins anew.
pub(crate) fn recover_in_copy() {
    KNOWN.recover_in_copy(|torn| {
        core::mem::forget(torn);
        Known::new()
    });
}

/// After fork(2), in parent and child.
pub(crate) fn unlock_after_fork() {
    KNOWN.unlock_after_fork();
}
