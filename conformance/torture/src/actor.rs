//! A thread of a process: it takes random steps, and each step checks what it did.

use anyhow::Context;
use conformance_rng::Rng;
use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use crate::identity::{self, CallWay, OpenAnswer};
use crate::pool::{COUNTED, FilePool, Ledger, SLOT_BYTES, USERS};
use crate::ring::{AccountedRing, KINDS, RequestId};

const SALT: u64 = 0x746f_7274_7572_6500;
/// The random numbers of one life's threads lie this far apart.
const THREADS_MAX: u64 = 64;

/// What all threads of a process share.
pub(crate) struct World {
    pub(crate) pool: FilePool,
    pub(crate) ledger: &'static Ledger,
    pub(crate) threads: usize,
    pub(crate) ends: Instant,
    /// A ring that all of them use.
    pub(crate) shared: Mutex<AccountedRing>,
    /// Held for reading during a step; for writing, while something changes for all threads.
    pub(crate) quiet: RwLock<()>,
    /// Only root can change identities.
    pub(crate) is_root: bool,
}

impl World {
    /// Counts something of [`COUNTED`].
    pub(crate) fn count(&self, what: &str, n: u64) {
        if let Some(at) = COUNTED.iter().position(|name| *name == what) {
            self.ledger.counts[at].fetch_add(n, Relaxed);
        }
    }
}

/// Which of a thread's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Own,
    Shared,
}

/// See the module.
pub(crate) struct Actor<'w> {
    pub(crate) me: usize,
    pub(crate) world: &'w World,
    pub(crate) rng: Rng,
    pub(crate) own: AccountedRing,
    /// It has a working directory and a umask of its own.
    pub(crate) has_own_directory: bool,
    is_confined: bool,
    /// For transfers: nothing in flight uses it between two steps.
    pub(crate) buffer: Box<[u8; SLOT_BYTES]>,
    /// Names of files that it makes.
    pub(crate) names: u64,
}

impl<'w> Actor<'w> {
    pub(crate) fn new(world: &'w World, seed: u64, me: usize) -> anyhow::Result<Self> {
        let mut rng = Rng::new(seed.wrapping_mul(THREADS_MAX) + me as u64, SALT);
        let _quiet = world.quiet.read().unwrap_or_else(PoisonError::into_inner);
        let own = AccountedRing::new(rng.pick(&KINDS)).context("a ring of a thread's own")?;
        let buffer = Box::new([0; SLOT_BYTES]);
        // Now: a worker that exists already would keep the directory of before, the kernel's too.
        let has_own_directory = rng.percent(50) && identity::unshare_directory();
        Ok(Self { me, world, rng, own, has_own_directory, is_confined: false, buffer, names: 0 })
    }

    /// The time is over.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.world.ends
    }

    /// The thread, for reports.
    pub(crate) fn describe(&self) -> String {
        format!("thread {}, user {}, confined {}", self.me, identity::effective_user(), self.is_confined)
    }

    /// Counts what its rings have completed.
    pub(crate) fn count_requests(&mut self) {
        let requests = self.own.take_completed() + self.shared().take_completed();
        self.world.count("requests", requests);
    }

    pub(crate) fn shared(&self) -> MutexGuard<'w, AccountedRing> {
        self.world.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses one of its rings.
    pub(crate) fn with<T>(&mut self, whose: Whose, f: impl FnOnce(&mut AccountedRing) -> T) -> T {
        match whose {
            Whose::Own => f(&mut self.own),
            Whose::Shared => f(&mut self.shared()),
        }
    }

    pub(crate) fn any_ring(&mut self) -> Whose {
        self.rng.pick(&[Whose::Own, Whose::Own, Whose::Shared])
    }

    /// Submits one request, and waits for it.
    pub(crate) fn ask(&mut self, whose: Whose, entry: Entry, what: &'static str) -> anyhow::Result<i32> {
        let flags = if self.rng.percent(40) { Flags::ASYNC } else { Flags::empty() };
        // Under one lock: the thread that submits an SQE is the one whose rights count.
        let id = self.with(whose, |ring| {
            let id = ring.push(entry.flags(flags), what)?;
            ring.submit().map(|()| id)
        })?;
        self.wait(whose, id)
    }

    pub(crate) fn wait(&mut self, whose: Whose, id: RequestId) -> anyhow::Result<i32> {
        self.with(whose, |ring| ring.wait(id))
    }

    /// A change that only this thread sees.
    pub(crate) fn change_identity(&mut self) -> anyhow::Result<()> {
        self.world.count("identities", 1);
        match self.rng.below(20) {
            0 if !self.is_confined && self.world.is_root => {
                // Not all threads: the others show that it is this one alone.
                let folder = self.rng.pick(&[0, 1]);
                let dir = if folder == 0 { self.world.pool.dir.clone() } else { self.world.pool.commons.clone() };
                self.is_confined = self.me % 2 == 1 && identity::confine(&crate::pool::c_path(&dir));
                Ok(())
            }
            1..=3 => self.change_directory(),
            _ => self.change_user(),
        }
    }

    pub(crate) fn change_user(&mut self) -> anyhow::Result<()> {
        if !self.world.is_root {
            return Ok(());
        }
        identity::become_user(self.rng.pick(&USERS), self.rng.pick(&[CallWay::Raw, CallWay::Inline]))
    }

    fn change_directory(&mut self) -> anyhow::Result<()> {
        if self.has_own_directory {
            let folder = self.index_below(self.world.pool.folders.len());
            // SAFETY: a string that ends in NUL; the directory and mask are this thread's alone.
            unsafe {
                libc::chdir(self.world.pool.folders[folder].as_ptr());
                libc::umask(self.rng.pick(&[0o007, 0o070]));
            }
        }
        Ok(())
    }

    /// A file to open: of the pool, or in the thread's own working directory.
    pub(crate) fn any_path(&mut self) -> CString {
        if self.has_own_directory && self.rng.percent(40) {
            return c"here".to_owned();
        }
        let owned = &self.world.pool.owned;
        owned[self.index_below(owned.len())].clone()
    }

    /// What a plain open by this thread answers now.
    pub(crate) fn expected(&self, path: &CStr, flags: i32) -> OpenAnswer {
        OpenAnswer::plain(path, flags)
    }

    /// One of `0..n`.
    pub(crate) fn index_below(&mut self, n: usize) -> usize {
        u64::try_from(n).map_or(0, |n| usize::try_from(self.rng.below(n)).unwrap_or(0))
    }

    /// Closes its ring with whatever is in flight, and makes a new one.
    pub(crate) fn new_ring(&mut self) -> anyhow::Result<()> {
        self.world.count("rings", 1);
        let (reader, _writer) = crate::numbers::pipe()?;
        // The read has a buffer that outlives it: the ring ends before the kernel lets go of it.
        let buffer: &'static mut [u8; 8] = Box::leak(Box::new([0; 8]));
        self.own.settle()?;
        for _ in 0..self.rng.below(4) {
            let entry = opcode::Read::new(types::Fd(reader.number()), buffer.as_mut_ptr(), 8).build();
            self.own.push(entry, "a read that its ring's end cancels")?;
        }
        self.own.submit()?;
        let completed = self.own.take_completed();
        self.own = AccountedRing::new(self.rng.pick(&KINDS)).context("a further ring")?;
        self.world.count("requests", completed);
        Ok(())
    }
}
