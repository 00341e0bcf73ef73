//! The engine of a process: its rings, the descriptors they hide behind, fork and exit.

mod fork;

use crate::driver::watcher::Watcher;
use crate::ops::hint::AsyncHint;
use crate::ring::{ANY_READABLE, Context, Ring, RingState, UringGuard};
use crate::submit::{command, dispatch};
use crate::virtual_file;
use crate::write::Mode;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use uringlet_abi::setup;
use uringlet_sys::fd::{EngineFd, RingFd};
use uringlet_sys::lock::Mutex;
use uringlet_sys::static_table::StaticTable;
use uringlet_sys::{Errno, fd_table, io, process};

/// The one engine of this process.
#[cfg(not(loom))]
pub static ENGINE: Engine = Engine::new();

#[cfg(loom)]
loom::lazy_static! {
    /// The one engine of a model's run.
    pub static ref ENGINE: Engine = Engine::new();
}

/// Places for rings.
#[derive(Debug)]
struct Places {
    used: u32,
    free: Vec<u32>,
    next_generation: u64,
}

/// See the module. All methods of `lib.rs` work on the one [`ENGINE`].
#[derive(Debug)]
pub struct Engine {
    rings: StaticTable<Ring>,
    places: Mutex<Places>,
    pub(crate) watcher: Watcher,
    /// Rings registered by `IORING_REGISTER_RING_FDS`: place + 1, 0 for none.
    pub(crate) registered: [core::sync::atomic::AtomicU32; crate::register::RING_FD_SLOTS],
    /// Of rings made from now on.
    mode: core::sync::atomic::AtomicU32,
}

impl Engine {
    uringlet_sys::const_unless_loom! {
        fn new() -> Self {
            Self {
                rings: StaticTable::new(),
                places: Mutex::new(Places { used: 0, free: Vec::new(), next_generation: 1 }),
                watcher: Watcher::new(),
                registered: [const { core::sync::atomic::AtomicU32::new(0) }; crate::register::RING_FD_SLOTS],
                mode: core::sync::atomic::AtomicU32::new(Mode::Adaptive as u32),
            }
        }
    }

    /// The place with this index.
    #[inline]
    pub(crate) fn ring(&'static self, index: u32) -> Option<&'static Ring> {
        self.rings.get(index)
    }

    /// Every place, used or not.
    fn places(&'static self) -> impl Iterator<Item = &'static Ring> {
        let used = self.places.lock().used;
        (0..used).filter_map(|index| self.rings.get(index))
    }

    /// A free place, and a generation for the ring that moves in.
    pub(crate) fn take_place(&'static self) -> Result<(&'static Ring, u64), Errno> {
        let mut places = self.places.lock();
        places.next_generation += 1;
        let generation = places.next_generation;
        if let Some(index) = places.free.pop() {
            return self.rings.get(index).map(|ring| (ring, generation)).ok_or(Errno::ENFILE);
        }
        let index = places.used;
        let ring = self.rings.set(index, Box::new(Ring::new(index))).ok_or(Errno::ENFILE)?;
        places.used += 1;
        Ok((ring, generation))
    }

    pub(crate) fn give_place(&'static self, ring: &'static Ring) {
        self.places.lock().free.push(ring.index);
    }

    /// The ring behind a descriptor: by the table, or, for a number that came by ways unseen, by the file's identity.
    #[inline]
    pub(crate) fn find(&'static self, fd: i32) -> Result<&'static Ring, Errno> {
        match fd_table::ring(fd) {
            Some(index) => self.rings.get(index).ok_or(Errno::EBADF),
            None => self.identify(fd),
        }
    }

    #[cold]
    fn identify(&'static self, fd: i32) -> Result<&'static Ring, Errno> {
        if fd_table::is_internal(fd) {
            return Err(Errno::EBADF);
        }
        let ino = io::fstat(fd)?.ino;
        let found = self
            .places()
            .find(|ring| ring.lock(Context::Other).is_some_and(|guard| guard.fd.as_ref().is_some_and(|ours| ours.ino() == Ok(ino))));
        let Some(ring) = found else {
            let is_path_only = io::file_flags(fd)? & io::O_PATH != 0;
            return Err(if is_path_only { Errno::EBADF } else { Errno::EOPNOTSUPP });
        };
        self.name(ring, fd);
        Ok(ring)
    }

    /// A ring lives on without a descriptor.
    pub(crate) fn give_up_descriptor(&'static self, ring: &'static Ring) {
        if let Some(mut guard) = ring.lock(Context::Other) {
            guard.known_fds = 0;
            guard.fd = None;
        }
    }

    /// A registered number was given up: a ring that has no other name ends.
    pub(crate) fn end_if_unnamed(&'static self, ring: &'static Ring) {
        if let Some(guard) = ring.lock(Context::Other) {
            self.end_unless_named(guard);
        }
    }

    /// The watcher has seen that nobody has a descriptor of this ring any more: or of an earlier one in its place.
    pub(crate) fn orphaned(&'static self, place: u32) {
        if let Some(ring) = self.rings.get(place) {
            self.end_if_unnamed(ring);
        }
    }

    /// A ring's time is over when nothing names it: at once, or when the last thread inside leaves.
    fn end_unless_named(&'static self, guard: UringGuard) {
        let is_orphaned = guard.fd.as_ref().is_none_or(RingFd::is_orphaned);
        if guard.known_fds == 0 && (is_orphaned || guard.is_idle_heir()) {
            self.end_unless_registered(guard);
        }
    }

    /// Without a descriptor a ring lives on if it has a registered number.
    fn end_unless_registered(&'static self, mut guard: UringGuard) {
        if !crate::register::is_registered(guard.ring.index) {
            // What came before this close is posted: the program may read its CQ mapping without any further call.
            crate::driver::poll_before_close(&mut guard);
            guard.is_closing = true;
            self.finish_close(guard);
        }
    }

    /// Whoever is done with a ring: if something is armed there, somebody must be on watch.
    pub(crate) fn leave(&'static self, guard: UringGuard) {
        crate::driver::watcher::on_leave(guard);
    }

    /// Ends a closing ring if nobody is inside.
    pub(crate) fn finish_close(&'static self, mut guard: UringGuard) {
        if guard.waiters.inside > 0 || guard.baton.is_none() {
            return;
        }
        crate::register::interrupt_workers(&mut guard);
        let ring = guard.ring;
        crate::register::forget_ring(ring.index);
        dispose(guard.end());
        self.give_place(ring);
    }

    /// The program closes a number. `None`: nothing depends on it, do the plain call. One table load.
    #[inline]
    pub fn close(&'static self, fd: i32) -> Option<isize> {
        if fd_table::is_blank(fd) { None } else { self.close_known(fd) }
    }

    #[cold]
    fn close_known(&'static self, fd: i32) -> Option<isize> {
        if fd_table::is_internal(fd) {
            return (!self.is_foreign_process()).then_some(-(Errno::EBADF.into_raw() as isize));
        }
        if self.is_foreign_process() {
            return None;
        }
        if fd_table::ring(fd).is_some() {
            return Some(self.close_ring(fd));
        }
        self.before_replace(fd);
        None
    }

    fn close_ring(&'static self, fd: i32) -> isize {
        let last_of = self.lose_number(fd);
        let result = io::close(fd);
        if let Some((ring, generation)) = last_of {
            self.end_if_closed(ring, generation);
        }
        crate::to_isize(result)
    }

    /// A number is about to be a ring's no longer. Whose last known one it was, if it was.
    fn lose_number(&'static self, fd: i32) -> Option<(&'static Ring, u64)> {
        let ring = self.rings.get(fd_table::ring(fd)?)?;
        fd_table::set_ring(fd, None);
        let mut guard = ring.lock(Context::Other)?;
        guard.known_fds = guard.known_fds.saturating_sub(1);
        (guard.known_fds == 0).then_some((ring, guard.generation))
    }

    /// The last known number of a ring is gone. If somebody holds a duplicate we do not know, or a child does, the
    /// watcher hears of its end.
    fn end_if_closed(&'static self, ring: &'static Ring, generation: u64) {
        let Some(mut guard) = ring.lock(Context::Other).filter(|guard| guard.generation == generation) else { return };
        let Some(fd) = &mut guard.fd else { return };
        fd.end_readiness();
        let is_orphaned = fd.is_orphaned();
        let writer = fd.writer();
        ring.is_polled.store(false, Relaxed);
        if is_orphaned || guard.is_idle_heir() {
            return self.end_unless_registered(guard);
        }
        drop(guard);
        self.watcher.watch_close(writer, ring.index);
    }

    /// A vfork child shares this memory, but closes descriptors of its own.
    pub(crate) fn is_foreign_process(&'static self) -> bool {
        process::pid_now() != process::pid()
    }

    /// Before a number is closed or replaced: requests that use it keep its file; what was known of it is forgotten.
    pub fn before_replace(&'static self, fd: i32) {
        if fd_table::is_blank(fd) || fd_table::is_internal(fd) || self.is_foreign_process() {
            return;
        }
        if fd_table::has_users(fd) {
            for ring in self.places() {
                if let Some(mut guard) = ring.lock(Context::Other) {
                    dispatch::keep_file(&mut guard, fd);
                }
            }
        }
        fd_table::forget_kind(fd);
        virtual_file::forget(fd);
        if let Some((ring, generation)) = self.lose_number(fd) {
            self.end_if_closed(ring, generation);
        }
    }

    /// After a successful dup, dup2, dup3 or fcntl(F_DUPFD) of a number.
    pub fn duped(&'static self, old: i32, new: i32) {
        if fd_table::is_virtual(old) && !self.is_foreign_process() {
            return virtual_file::duped(old, new);
        }
        let Some(index) = fd_table::ring(old) else { return };
        if self.is_foreign_process() || new == old {
            return;
        }
        if let Some(ring) = self.rings.get(index) {
            self.name(ring, new);
        }
    }

    /// A number is known to be the ring's.
    pub(crate) fn name(&'static self, ring: &'static Ring, fd: i32) {
        fd_table::set_ring(fd, Some(ring.index));
        if let Some(mut guard) = ring.lock(Context::Other) {
            guard.known_fds += 1;
        }
    }

    /// close_range(2), sparing the engine's own numbers. `None`: there are none in the range, do the plain call.
    pub fn close_range(&'static self, first: u32, last: u32, flags: u32) -> Option<isize> {
        const CLOSE_RANGE_UNSHARE: u32 = 2;
        if self.is_foreign_process() || flags & CLOSE_RANGE_UNSHARE != 0 || first > last {
            return None;
        }
        for fd in first..=last.min(fd_table::NUMBERS as u32 - 1) {
            if !fd_table::is_blank(fd as i32) && !fd_table::is_internal(fd as i32) {
                self.close_or_keep(fd as i32, flags);
            }
        }
        let mut from = first;
        loop {
            let next = fd_table::next_internal(from).filter(|&fd| fd <= last);
            let until = next.map_or(last, |fd| fd.wrapping_sub(1));
            if next != Some(from)
                && let Err(errno) = io::close_range(from, until, flags)
            {
                return Some(-(errno.into_raw() as isize));
            }
            match next {
                Some(fd) if fd < last => from = fd + 1,
                _ => return Some(0),
            }
        }
    }

    fn close_or_keep(&'static self, fd: i32, flags: u32) {
        const CLOSE_RANGE_CLOEXEC: u32 = 4;
        if flags & CLOSE_RANGE_CLOEXEC == 0 && self.close_known(fd).is_none() {
            let _ = io::close(fd);
        }
    }

    /// Whether a number is the engine's own.
    #[must_use]
    pub fn is_internal(&'static self, fd: i32) -> bool {
        fd_table::is_internal(fd)
    }

    /// Some polled ring may be flagged readable. One relaxed load.
    #[inline]
    #[must_use]
    pub fn any_readable(&'static self) -> bool {
        ANY_READABLE.load(Relaxed)
    }

    /// Before poll, select or epoll_wait: takes back the readiness of rings whose CQ is empty again.
    pub fn settle_readiness(&'static self) {
        if self.is_foreign_process() {
            return;
        }
        // A read-modify-write: whoever flags a ring stores its flag, then this one. Either we read that, and see the ring's
        // flag below, or it comes after us and stays.
        ANY_READABLE.swap(false, AcqRel);
        for ring in self.places() {
            if ring.is_flagged.load(Acquire)
                && let Some(guard) = ring.lock(Context::Other)
            {
                guard.settle_readable(ring);
                if ring.is_flagged.load(Relaxed) {
                    ANY_READABLE.store(true, Release);
                }
            }
        }
    }

    /// A number was handed to poll, select or epoll_ctl: a ring's readiness is kept from now on. One table load if it is none.
    #[inline]
    pub fn note_polled(&'static self, fd: i32) {
        if let Some(index) = fd_table::ring(fd) {
            self.start_flagging(index, fd);
        }
    }

    #[cold]
    fn start_flagging(&'static self, index: u32, fd: i32) {
        let Some(ring) = self.rings.get(index) else { return };
        if ring.is_polled.load(Acquire) {
            return;
        }
        if let Some(mut guard) = ring.lock(Context::Other)
            && guard.fd.as_mut().is_some_and(|ours| ours.begin_readiness(fd).is_ok())
            && !ring.is_polled.swap(true, AcqRel)
            && (guard.cq.ready(&guard.memory) > 0 || guard.cq.has_overflow())
        {
            guard.flag_readable(ring);
        }
    }

    /// Once, before the program's own code: what is cheap now and dear when there are threads.
    pub fn prepare(&'static self) {
        uringlet_sys::fd::widen_table();
    }

    /// What becomes of `IOSQE_ASYNC` from now on, in all rings.
    pub fn set_async_hint(&'static self, hint: AsyncHint) {
        hint.set();
    }

    /// How rings made from now on execute buffered writes, unless they ask for a way themselves (`IORING_SETUP_URINGLET`).
    pub fn set_mode(&'static self, mode: Mode) {
        self.mode.store(mode as u32, Relaxed);
    }

    /// The mode of a ring with these `IORING_SETUP_*` flags.
    pub(crate) fn mode_for(&'static self, flags: u32) -> Mode {
        match self.mode.load(Relaxed) {
            _ if flags & setup::URINGLET != 0 => Mode::Uringlet,
            mode if mode == Mode::Uringlet as u32 => Mode::Uringlet,
            mode if mode == Mode::Workers as u32 => Mode::Workers,
            _ => Mode::Adaptive,
        }
    }

    /// After setrlimit(2).
    pub fn limits_changed(&'static self) {
        process::ask_file_size_limit();
    }

    /// After setuid(2) and its kin: workers with the old credentials end.
    pub fn credentials_changed(&'static self) {
        for ring in self.places() {
            if let Some(guard) = ring.lock(Context::Other) {
                guard.io_wq.renew();
                if let Some(attendants) = &guard.attendants {
                    attendants.pool().renew();
                }
            }
        }
    }
}

/// Frees a ring's state. Files close, AIO in flight is waited for: with no lock held.
fn dispose(state: RingState) {
    command::cancel_all(&state);
    for (_, parked) in state.parked.iter() {
        parked.unmark(state.place);
    }
    drop(state);
}

/// close(2) on the program's behalf, from `IORING_OP_CLOSE`.
pub(crate) fn close_for_program(fd: i32) -> Result<usize, Errno> {
    match ENGINE.close(fd) {
        None => io::close(fd),
        Some(result) if result < 0 => Err(Errno::new(-result as i32)),
        Some(result) => Ok(result as usize),
    }
}

/// A registered eventfd's or file's own duplicate.
pub(crate) fn dup_for_engine(fd: i32) -> Result<EngineFd, Errno> {
    if fd_table::is_internal(fd) { Err(Errno::EBADF) } else { virtual_file::own_duplicate(fd) }
}
