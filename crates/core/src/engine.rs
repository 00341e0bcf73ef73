//! The engine of a process: what happens to its rings when the program closes, duplicates, polls,
//! forks.

mod files;
mod fork;
mod identity;
#[cfg(all(test, loom, not(shuttle)))]
mod model;
mod numbers;
mod ring_fd;

use crate::driver::watcher::end_or_watch;
use crate::intercepted::{self, InterceptedCalls};
use crate::kernel_trace;
use crate::route::hint::AsyncHint;
use crate::state::home_table::has_other_table;
use crate::state::{ANY_READABLE, LockOwner, RINGS, Ring};
use crate::submit::{keep_file, unseen_closes};
use crate::virtual_file;
use crate::write::{self, WriteMode};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::fd::{any_number_lingers, before_programs_close, wait_until_left};
use uringlet_sys::{Errno, fd_table, io, process, refusal};

/// The one engine of this process.
pub static ENGINE: Engine = Engine { _one: () };

/// The entry points that ops use.
static INTERCEPTED: InterceptedCalls = InterceptedCalls { close: |fd| ENGINE.close(fd), note_polled: |fd| ENGINE.note_polled(fd) };

/// Flags of close_range(2).
const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// A system call's return value: its result, or -errno.
#[inline]
pub(crate) fn to_isize(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(n) => n as isize,
        Err(errno) => -(errno.into_raw() as isize),
    }
}

/// See the module. All methods, those of `lib.rs` too, work on the one [`ENGINE`].
#[derive(Debug)]
pub struct Engine {
    _one: (),
}

impl Engine {
    /// Before a ring is made.
    ///
    /// # Errors
    /// `EPERM` in a vfork child: the ring would be in the memory of its parent, its descriptors
    /// would not; in a thread that has left the descriptor table of the rings. `ENOMEM`: see
    /// [`own`](Self::own).
    pub(crate) fn init(&'static self) -> Result<(), Errno> {
        if !process::is_claimed() {
            process::claim();
        }
        self.own()?;
        if process::is_foreign() {
            refusal::tell(&["this process has the memory of its parent (docs/decisions/0025)"]);
            return Err(Errno::EPERM);
        }
        if has_other_table() {
            refusal::tell(&["this thread has left the descriptor table of the process' rings (docs/decisions/0021)"]);
            return Err(Errno::EPERM);
        }
        fd_table::init()?;
        crate::identity::note_ring();
        intercepted::register(&INTERCEPTED);
        Ok(())
    }

    /// Whether the engine has no facts about a number: closing and replacing it concerns nothing of
    /// the engine's. One table load, and one of a word that is hardly ever set.
    #[inline]
    #[must_use]
    pub fn is_unused(&'static self, fd: i32) -> bool {
        fd_table::is_unused(fd) && !any_number_lingers()
    }

    /// The program closes a number. `None`: the engine does not use it, make the plain call. One
    /// table load.
    #[inline]
    pub fn close(&'static self, fd: i32) -> Option<isize> {
        before_programs_close(fd);
        if fd_table::is_unused(fd) { None } else { self.close_known(fd) }
    }

    #[cold]
    fn close_known(&'static self, fd: i32) -> Option<isize> {
        wait_until_left(fd);
        if fd_table::is_internal(fd) {
            return (!self.is_foreign_process()).then_some(-(Errno::EBADF.into_raw() as isize));
        }
        if self.is_foreign_process() {
            return None;
        }
        if fd_table::ring_index(fd).is_some() {
            return Some(self.close_ring(fd));
        }
        self.before_replace(fd);
        None
    }

    fn close_ring(&'static self, fd: i32) -> isize {
        let last_of = RINGS.lose_number(fd);
        let result = io::close(fd);
        if let Some((ring, generation)) = last_of {
            end_or_watch(ring, generation);
        }
        to_isize(result)
    }

    /// A vfork child shares this memory, but closes descriptors of its own. So does a thread that
    /// has left the descriptor table of the rings.
    pub(crate) fn is_foreign_process(&'static self) -> bool {
        self.own().is_err() || process::is_foreign() || has_other_table()
    }

    /// Before a number is closed or replaced: requests that use it keep its file, and cached facts
    /// about it are dropped.
    pub fn before_replace(&'static self, fd: i32) {
        before_programs_close(fd);
        wait_until_left(fd);
        if fd_table::is_unused(fd) || fd_table::is_internal(fd) || self.is_foreign_process() {
            return;
        }
        if let Some((ring, generation)) = self.lose_number(fd) {
            end_or_watch(ring, generation);
        }
    }

    /// The program's closes will not be seen: what is known of a number may be another file's.
    pub fn expect_unseen_closes(&self) {
        unseen_closes::expect();
    }

    /// What [`before_replace`](Self::before_replace) does. Returns the ring that loses its last
    /// number.
    fn lose_number(&'static self, fd: i32) -> Option<(&'static Ring, u64)> {
        if fd_table::has_users(fd) {
            for ring in RINGS.all() {
                if let Some(mut guard) = ring.lock(LockOwner::Worker) {
                    let uses = keep_file(&mut guard, fd);
                    drop(guard);
                    uses.into_iter().for_each(|number_use| number_use.wait(ring));
                }
            }
        }
        fd_table::forget_kind(fd);
        virtual_file::forget(fd);
        kernel_trace::lose_number(fd);
        RINGS.lose_number(fd)
    }

    /// After a successful dup, dup2, dup3 or fcntl(F_DUPFD) of a number.
    pub fn duped(&'static self, old: i32, new: i32) {
        if fd_table::is_virtual(old) && !self.is_foreign_process() {
            return virtual_file::duped(old, new);
        }
        let Some(index) = fd_table::ring_index(old) else { return kernel_trace::duped(old, new) };
        if self.is_foreign_process() || new == old {
            return;
        }
        if let Some(ring) = RINGS.get(index) {
            RINGS.name(ring, new);
        }
    }

    /// close_range(2), except for the engine's own numbers. `None`: there are none in the range,
    /// make the plain call.
    pub fn close_range(&'static self, first: u32, last: u32, flags: u32) -> Option<isize> {
        if self.is_foreign_process() || first > last {
            return None;
        }
        // A table of its own, without the engine's descriptors, is of no use to the only thread.
        if flags & CLOSE_RANGE_UNSHARE != 0 && !self.unshare_files() {
            return None;
        }
        let flags = flags & !CLOSE_RANGE_UNSHARE;
        let closed_rings = if flags & CLOSE_RANGE_CLOEXEC == 0 { self.before_close_of(first, last) } else { Vec::new() };
        let result = close_others(first, last, flags);
        for (ring, generation) in closed_rings {
            end_or_watch(ring, generation);
        }
        Some(to_isize(result.map(|()| 0)))
    }

    /// Before all numbers of a range are closed, by one call: a number that is closed alone may be
    /// another thread's by the time of that call. Returns the rings that lose their last number.
    fn before_close_of(&'static self, first: u32, last: u32) -> Vec<(&'static Ring, u64)> {
        let numbers = (first..=last.min(fd_table::NUMBERS as u32 - 1)).map(u32::cast_signed);
        let tracked =
            numbers.filter(|&fd| !fd_table::is_unused(fd)).inspect(|&fd| wait_until_left(fd)).filter(|&fd| !fd_table::is_internal(fd));
        tracked.filter_map(|fd| self.lose_number(fd)).collect()
    }

    /// Whether a number is the engine's own.
    #[must_use]
    pub fn is_internal(&'static self, fd: i32) -> bool {
        fd_table::is_internal(fd)
    }

    /// The number is the engine's from now on: the program cannot close it.
    pub fn keep_number(&'static self, fd: i32) {
        if fd_table::init().is_ok() {
            fd_table::keep(fd);
        }
    }

    /// Some polled ring may be flagged readable. One relaxed load.
    #[inline]
    #[must_use]
    pub fn any_readable(&'static self) -> bool {
        ANY_READABLE.load(Relaxed)
    }

    /// Before poll, select or epoll_wait: clears the readiness of rings whose CQ is empty again.
    pub fn settle_readiness(&'static self) {
        if self.is_foreign_process() {
            return;
        }
        RINGS.settle_readiness();
    }

    /// A number was passed to poll, select or epoll_ctl: if it is a ring, its readiness is kept up
    /// to date from now on. One table load if it is none.
    #[inline]
    pub fn note_polled(&'static self, fd: i32) {
        RINGS.note_polled(fd);
    }

    /// Called once, before the program's own code.
    pub fn claim_process(&'static self) {
        process::claim();
    }

    /// Called after that if the program may make rings: work that is expensive once there are
    /// threads.
    pub fn expect_rings(&'static self) {
        uringlet_sys::fd::grow_fd_table();
    }

    /// A child that has its parent's rings.
    fn prepare_child(&'static self) {
        self.claim_process();
        self.expect_rings();
    }

    /// Sets the meaning of `IOSQE_ASYNC` from now on, in all rings.
    pub fn set_async_hint(&'static self, hint: AsyncHint) {
        hint.set();
    }

    /// How rings made from now on execute buffered writes, unless they choose a mode themselves
    /// (`IORING_SETUP_URINGLET`).
    pub fn set_mode(&'static self, mode: WriteMode) {
        write::set_mode(mode);
    }

    /// After setrlimit(2).
    pub fn limits_changed(&'static self) {
        process::refresh_file_size_limit();
    }
}

/// close_range(2) of all numbers of a range but the engine's own.
fn close_others(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    let mut from = first;
    loop {
        let next = fd_table::next_internal(from).filter(|&fd| fd <= last);
        let until = next.map_or(last, |fd| fd.wrapping_sub(1));
        if next != Some(from) {
            io::close_range(from, until, flags)?;
        }
        match next {
            Some(fd) if fd < last => from = fd + 1,
            _ => return Ok(()),
        }
    }
}
