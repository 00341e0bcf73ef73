//! The rings of this process, by place and by descriptor.
//!
//! A place outlives the ring in it and is used again. Which numbers are rings stands in `fd_table`; a ring counts those
//! that are known to be its own.

use super::guard::UringGuard;
use super::punted::Punted;
use super::readiness::ANY_READABLE;
use super::ring::Ring;
use crate::ring_resources::LockOwner;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use uringlet_sys::lock::Mutex;
use uringlet_sys::static_table::StaticTable;
use uringlet_sys::{Errno, fd_table, io};

/// The places of this process.
#[cfg(not(loom))]
pub(crate) static RINGS: RingTable = RingTable::new();

#[cfg(loom)]
loom::lazy_static! {
    /// The places of a model's run.
    pub(crate) static ref RINGS: RingTable = RingTable::new();
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RingTable {
    rings: StaticTable<Ring>,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    used: u32,
    free: Vec<u32>,
    next_generation: u64,
}

impl RingTable {
    uringlet_sys::const_unless_loom! {
        fn new() -> Self {
            Self { rings: StaticTable::new(), taken: Mutex::new(Taken { used: 0, free: Vec::new(), next_generation: 1 }) }
        }
    }

    /// The place with this index.
    #[inline]
    pub(crate) fn get(&'static self, index: u32) -> Option<&'static Ring> {
        self.rings.get(index)
    }

    /// Every place, used or not.
    pub(crate) fn all(&'static self) -> impl Iterator<Item = &'static Ring> {
        let used = self.taken.lock().used;
        (0..used).filter_map(|index| self.rings.get(index))
    }

    /// As [`all`](Self::all), while the places are held.
    pub(crate) fn all_held(&'static self) -> impl Iterator<Item = &'static Ring> {
        (0..).map_while(|index| self.rings.get(index))
    }

    /// fork(2): nobody is in here while this lasts.
    pub(crate) fn lock_for_fork(&'static self) {
        self.taken.lock_for_fork();
    }

    /// After fork(2), in parent and child: undoes [`lock_for_fork`](Self::lock_for_fork).
    pub(crate) fn unlock_after_fork(&'static self) {
        self.taken.unlock_after_fork();
    }

    /// A free place, and a generation for the ring that moves in.
    pub(crate) fn take(&'static self) -> Result<(&'static Ring, u64), Errno> {
        let mut taken = self.taken.lock();
        taken.next_generation += 1;
        let generation = taken.next_generation;
        if let Some(index) = taken.free.pop() {
            return self.rings.get(index).map(|ring| (ring, generation)).ok_or(Errno::ENFILE);
        }
        let index = taken.used;
        let ring = self.rings.set(index, Box::new(Ring::new(index))).ok_or(Errno::ENFILE)?;
        taken.used += 1;
        Ok((ring, generation))
    }

    /// A ring has ended: its place is free.
    pub(crate) fn give(&'static self, ring: &'static Ring) {
        self.taken.lock().free.push(ring.index);
    }

    /// The ring behind a descriptor: by the table, or, for a number that came by ways unseen, by the file's identity.
    #[inline]
    pub(crate) fn find(&'static self, fd: i32) -> Result<&'static Ring, Errno> {
        match fd_table::ring_index(fd) {
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
            .all()
            .find(|ring| ring.lock(LockOwner::Worker).is_some_and(|guard| guard.fd.as_ref().is_some_and(|ours| ours.ino() == Ok(ino))));
        let Some(ring) = found else {
            let is_path_only = io::file_flags(fd)? & io::O_PATH != 0;
            return Err(if is_path_only { Errno::EBADF } else { Errno::EOPNOTSUPP });
        };
        self.name(ring, fd);
        Ok(ring)
    }

    /// A number is known to be the ring's.
    pub(crate) fn name(&'static self, ring: &'static Ring, fd: i32) {
        fd_table::set_ring_index(fd, Some(ring.index));
        if let Some(mut guard) = ring.lock(LockOwner::Worker) {
            guard.known_fds += 1;
        }
    }

    /// A number is about to be a ring's no longer. Whose last known one it was, if it was.
    pub(crate) fn lose_number(&'static self, fd: i32) -> Option<(&'static Ring, u64)> {
        let ring = self.rings.get(fd_table::ring_index(fd)?)?;
        fd_table::set_ring_index(fd, None);
        let mut guard = ring.lock(LockOwner::Worker)?;
        guard.known_fds = guard.known_fds.saturating_sub(1);
        (guard.known_fds == 0).then_some((ring, guard.generation))
    }

    /// A number was handed to poll, select or epoll_ctl: a ring's readiness is kept from now on. One table load if it is none.
    #[inline]
    pub(crate) fn note_polled(&'static self, fd: i32) {
        if let Some(index) = fd_table::ring_index(fd) {
            self.start_flagging(index, fd);
        }
    }

    #[cold]
    fn start_flagging(&'static self, index: u32, fd: i32) {
        let Some(ring) = self.rings.get(index) else { return };
        if ring.is_polled.load(Acquire) {
            return;
        }
        if let Some(mut guard) = ring.lock(LockOwner::Worker)
            && guard.fd.as_mut().is_some_and(|ours| ours.track_readiness(fd).is_ok())
            && !ring.is_polled.swap(true, AcqRel)
            && !guard.res.is_drained()
        {
            guard.flag_readable(ring);
        }
    }

    /// Takes back the readiness of rings whose CQ is empty again.
    pub(crate) fn settle_readiness(&'static self) {
        // A read-modify-write: whoever flags a ring stores its flag, then this one. Either we read that, and see the ring's
        // flag below, or it comes after us and stays.
        ANY_READABLE.swap(false, AcqRel);
        for ring in self.all() {
            if ring.is_flagged.load(Acquire)
                && let Some(guard) = ring.lock(LockOwner::Worker)
            {
                guard.settle_readable(ring);
                if ring.is_flagged.load(Relaxed) {
                    ANY_READABLE.store(true, Release);
                }
            }
        }
    }
}

impl Punted {
    /// Locks the request's ring, if it is still there.
    pub(crate) fn lock(&self) -> Option<UringGuard> {
        let ring = RINGS.get(self.ring_index)?;
        ring.lock(LockOwner::Worker).filter(|guard| guard.generation == self.ring_generation)
    }
}
