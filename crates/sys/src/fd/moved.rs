//! Descriptors of the engine that have moved to another number, because the program took theirs.
//!
//! A holder knows its descriptor by the first number that it had. As long as nothing has moved,
//! that is the number, at the cost of one load.
//!
//! ```text
//!   wake-up, without a lock            the program takes a number
//!   IN_USE += 1                        the new number is published
//!   reads the number                   (fence)
//!   writes to it                       waits while IN_USE > 0
//!   IN_USE -= 1                        dup2: the old number is the program's
//! ```
//!
//! Either the wake-up reads the new number, or it is counted and waited for. Other uses are under a
//! lock of a ring or of the watcher, which the program's thread takes after the publication.

use super::leaving::{LeavingNumber, wait_until_left};
use crate::fd_table;
use crate::io;
use crate::linux::general::F_DUPFD_CLOEXEC;
use crate::lock::Mutex;
use crate::process::{self, sleep_ns};
use alloc::collections::BTreeMap;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, fence};
use syscalls::Errno;

/// Internal numbers start here if the limits allow: programs expect the lowest free numbers for
/// their own descriptors.
pub(crate) const FIRST_INTERNAL: u32 = 900;

/// The next choice if those are used up: few programs have so many descriptors.
const NEXT_INTERNAL: u32 = 128;

/// A duplicate with a number for the engine: one that the program would not get either, or any if
/// the limits are too low for those.
pub(super) fn duplicate(fd: i32) -> Result<i32, Errno> {
    let own = io::fcntl(fd, F_DUPFD_CLOEXEC, FIRST_INTERNAL).or_else(|_| beyond_soft_limit(fd));
    let own = own.or_else(|_| io::fcntl(fd, F_DUPFD_CLOEXEC, NEXT_INTERNAL)).or_else(|_| io::dup_cloexec(fd));
    own.map(io::number_of)
}

/// A duplicate with a number from the soft limit on open files on, which is the hard one for a
/// moment: in the kernel a registered file counts against neither.
#[cold]
fn beyond_soft_limit(fd: i32) -> Result<usize, Errno> {
    /// Threads that do the same at once may lower the limit again too early for each other.
    const TRIES: u32 = 16;
    let mut own = Err(Errno::EMFILE);
    for _ in 0..TRIES {
        own = process::with_hard_nofile_limit(|soft| io::fcntl(fd, F_DUPFD_CLOEXEC, soft))?;
        if !matches!(own, Err(Errno::EMFILE | Errno::EINVAL)) {
            break;
        }
    }
    own
}

#[cfg(not(loom))]
static ANY_MOVED: AtomicBool = AtomicBool::new(false);

/// Numbers in use without a lock.
static IN_USE: AtomicU32 = AtomicU32::new(0);

/// A use of a number, for its life.
#[derive(Debug)]
pub(super) struct NumberInUse(());

impl NumberInUse {
    #[inline]
    pub(super) fn begin() -> Self {
        IN_USE.fetch_add(1, SeqCst);
        Self(())
    }
}

impl Drop for NumberInUse {
    #[inline]
    fn drop(&mut self) {
        IN_USE.fetch_sub(1, Release);
    }
}

/// Waits for uses that may have begun with an old number. None sleeps for long.
fn wait_for_uses() {
    const PAUSE_NS: u64 = 20_000;
    const PAUSES: u32 = 500;
    fence(SeqCst);
    for _ in 0..PAUSES {
        if IN_USE.load(Acquire) == 0 {
            return;
        }
        sleep_ns(PAUSE_NS);
    }
}

/// The present number of each descriptor that has moved, by its first one.
#[cfg(not(loom))]
static MOVED: Mutex<BTreeMap<i32, i32>> = Mutex::new(BTreeMap::new());

#[cfg(loom)]
loom::lazy_static! {
    static ref ANY_MOVED: AtomicBool = AtomicBool::new(false);
    static ref MOVED: Mutex<BTreeMap<i32, i32>> = Mutex::new(BTreeMap::new());
}

/// The present number of the descriptor that first had this one.
#[inline]
pub(super) fn current(first: i32) -> i32 {
    if ANY_MOVED.load(Acquire) { look_up(first) } else { first }
}

#[cold]
fn look_up(first: i32) -> i32 {
    MOVED.lock().get(&first).copied().unwrap_or(first)
}

/// Whether a descriptor that has moved is known by this number.
pub(super) fn is_taken(number: i32) -> bool {
    ANY_MOVED.load(Acquire) && MOVED.lock().contains_key(&number)
}

/// The descriptor that first had this number is about to be closed. Returns its last one.
pub(super) fn leave(first: i32) -> LeavingNumber {
    // A number is left under the lock: it is closed or moves, not both.
    let mut moved = MOVED.lock();
    LeavingNumber::begin(moved.remove(&first).unwrap_or(first))
}

/// A descriptor that has another number now.
#[derive(Debug)]
#[must_use]
pub struct MovedNumber {
    /// The other number.
    pub new: i32,
    /// The old number is the program's when this is dropped.
    pub old: LeavingNumber,
}

/// The program is about to take a number of the engine's: its descriptor moves to another one.
/// `None`: the number is not the engine's any more. Until the program takes it, the old number is
/// good as well. Transfers on a registered file that have begun with the old one are for the caller
/// to wait for.
///
/// # Errors
/// `EMFILE`.
pub fn move_away(number: i32) -> Result<Option<MovedNumber>, Errno> {
    let mut moved = MOVED.lock();
    if !fd_table::is_internal(number) {
        return Ok(None);
    }
    let first = moved.iter().find(|&(_, &now)| now == number).map_or(number, |(&first, _)| first);
    let new = duplicate(number)?;
    wait_until_left(new);
    fd_table::set_internal(new);
    moved.insert(first, new);
    ANY_MOVED.store(true, Release);
    let old = LeavingNumber::begin(number);
    drop(moved);
    wait_for_uses();
    Ok(Some(MovedNumber { new, old }))
}

/// Before fork(2): no descriptor moves, and none is about to be closed but by a thread that has
/// begun.
pub fn lock_for_fork() {
    MOVED.lock_for_fork();
}

/// Undoes [`lock_for_fork`], in the parent and in the child.
pub fn unlock_after_fork() {
    MOVED.unlock_after_fork();
}

/// In a forked child: the threads that used numbers or were leaving them are not there.
pub fn reset_in_child() {
    IN_USE.store(0, SeqCst);
    fd_table::end_all_leaving();
}

/// In a copy of a process: if a thread that the copy does not have was moving a descriptor, all are
/// known by their first numbers again.
pub fn recover_in_copy() {
    MOVED.recover_in_copy(|torn| {
        core::mem::forget(torn);
        BTreeMap::new()
    });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::event::EventFd;
    use super::*;

    fn moved_away(number: i32) -> (i32, LeavingNumber) {
        let MovedNumber { new, old } = move_away(number).unwrap().unwrap();
        (new, old)
    }

    #[test]
    fn a_descriptor_that_moved_is_found_and_its_old_number_used_again() {
        fd_table::init().unwrap();
        let event = EventFd::new().unwrap();
        let first = event.number();
        let (second, old) = moved_away(first);
        assert_eq!(event.number(), second);
        assert!(!fd_table::is_internal(first) && fd_table::is_leaving(first) && is_taken(first));
        drop(old);
        assert!(fd_table::is_unused(first));
        assert!(move_away(first).unwrap().is_none());
        io::close(first).unwrap();
        assert!(io::is_eventfd(event.number()));
        // One that gets the number moves on, since another is known by it.
        let other = EventFd::new().unwrap();
        assert_ne!(other.number(), first);
        let (third, _) = moved_away(second);
        io::close(second).unwrap();
        assert_eq!(event.number(), third);
        drop(event);
        assert!(io::file_flags(third).is_err());
        assert!(!is_taken(first));
    }
}
