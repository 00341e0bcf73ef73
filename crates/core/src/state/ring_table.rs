//! The rings of this process, by index and by descriptor.
//!
//! A slot outlives the ring in it and is used again. `fd_table` knows which descriptor numbers are
//! rings; a ring counts those that are known to be its own.

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

/// The rings of this process.
#[cfg(not(loom))]
pub(crate) static RINGS: RingTable = RingTable::new();

#[cfg(loom)]
loom::lazy_static! {
    /// The rings of a model's run.
    pub(crate) static ref RINGS: RingTable = RingTable::new();
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RingTable {
    rings: StaticTable<Ring>,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    used: u32,
    free: Vec<u32>,
    next_generation: u64,
}

impl RingTable {
    uringlet_sys::const_unless_loom! {
        fn new() -> Self {
            Self { rings: StaticTable::new(), slots: Mutex::new(Slots { used: 0, free: Vec::new(), next_generation: 1 }) }
        }
    }

    /// The slot with this index.
    #[inline]
    pub(crate) fn get(&'static self, index: u32) -> Option<&'static Ring> {
        self.rings.get(index)
    }

    /// Every slot, used or not.
    pub(crate) fn all(&'static self) -> impl Iterator<Item = &'static Ring> {
        let used = self.slots.lock().used;
        (0..used).filter_map(|index| self.rings.get(index))
    }

    /// As [`all`](Self::all), while the table is locked for a fork.
    pub(crate) fn all_held(&'static self) -> impl Iterator<Item = &'static Ring> {
        (0..).map_while(|index| self.rings.get(index))
    }

    /// For fork(2): keeps all other threads out of the table.
    pub(crate) fn lock_for_fork(&'static self) {
        self.slots.lock_for_fork();
    }

    /// After fork(2), in parent and child: undoes [`lock_for_fork`](Self::lock_for_fork).
    pub(crate) fn unlock_after_fork(&'static self) {
        self.slots.unlock_after_fork();
    }

    /// In a copy of a process, whose rings have been recovered: rebuilds what a thread that the
    /// copy does not have was changing.
    pub(crate) fn recover_in_copy(&'static self) {
        self.slots.recover_in_copy(|torn| {
            let used = self.all_held().count() as u32;
            let free = self.all_held().filter(|ring| ring.lock(LockOwner::Worker).is_none()).map(|ring| ring.index).collect();
            let next_generation = torn.next_generation + 1;
            core::mem::forget(torn);
            Slots { used, free, next_generation }
        });
    }

    /// A free slot, and a generation for the ring that it gets.
    pub(crate) fn take(&'static self) -> Result<(&'static Ring, u64), Errno> {
        let mut slots = self.slots.lock();
        slots.next_generation += 1;
        let generation = slots.next_generation;
        if let Some(index) = slots.free.pop() {
            return self.rings.get(index).map(|ring| (ring, generation)).ok_or(Errno::ENFILE);
        }
        let index = slots.used;
        let ring = self.rings.set(index, Box::new(Ring::new(index))).ok_or(Errno::ENFILE)?;
        slots.used += 1;
        Ok((ring, generation))
    }

    /// A ring has ended: its slot is free.
    pub(crate) fn give(&'static self, ring: &'static Ring) {
        self.slots.lock().free.push(ring.index);
    }

    /// The ring behind a descriptor: by the table, or by the file's identity if the engine did not
    /// see how the program got the number.
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
            .find(|ring| ring.lock(LockOwner::Worker).is_some_and(|guard| guard.fd.as_ref().is_some_and(|ours| ours.ino() == ino)));
        let Some(ring) = found else {
            return Err(io::file_flags(fd).err().unwrap_or(Errno::EOPNOTSUPP));
        };
        self.name(ring, fd);
        Ok(ring)
    }

    /// Notes that a number is the ring's.
    pub(crate) fn name(&'static self, ring: &'static Ring, fd: i32) {
        fd_table::set_ring_index(fd, Some(ring.index));
        if let Some(mut guard) = ring.lock(LockOwner::Worker) {
            guard.known_fds += 1;
        }
    }

    /// A number stops being a ring's. Returns the ring if this was its last known number.
    pub(crate) fn lose_number(&'static self, fd: i32) -> Option<(&'static Ring, u64)> {
        let ring = self.rings.get(fd_table::ring_index(fd)?)?;
        fd_table::set_ring_index(fd, None);
        let mut guard = ring.lock(LockOwner::Worker)?;
        guard.known_fds = guard.known_fds.saturating_sub(1);
        (guard.known_fds == 0).then_some((ring, guard.generation))
    }

    /// A number was passed to poll, select or epoll_ctl: if it is a ring, its readiness is kept up
    /// to date from now on. One table load if it is none.
    #[inline]
    pub(crate) fn note_polled(&'static self, fd: i32) {
        if let Some(index) = fd_table::ring_index(fd) {
            self.start_flagging(index, fd);
        }
    }

    /// As [`note_polled`](Self::note_polled), for another ring that polls it.
    pub(crate) fn note_polled_by_ring(&'static self, fd: i32) {
        let Some(index) = fd_table::ring_index(fd) else { return };
        if let Some(ring) = self.rings.get(index) {
            ring.is_polled_by_ring.store(true, Relaxed);
        }
        self.start_flagging(index, fd);
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

    /// Clears the readiness of rings whose CQ is empty again.
    pub(crate) fn settle_readiness(&'static self) {
        // A read-modify-write: a thread that flags a ring stores the ring's flag, then this one.
        // Either the swap reads that store, and the ring's flag is seen below, or the store comes
        // later and stays.
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
        ring.lock(LockOwner::WorkerOf(self.identity)).filter(|guard| guard.generation == self.ring_generation)
    }
}
