//! A ring that accounts for its requests: each gets its CQE, once.

use anyhow::{Context, bail, ensure};
use io_uring::squeue::Entry;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::numbers::Claim;

const ENTRIES: u32 = 32;
/// No request of this program takes this long on any machine.
const LOST_AFTER: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

/// The number of a request: its `user_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId(u64);

impl RequestId {
    pub(crate) fn user_data(self) -> u64 {
        self.0
    }
}

/// See the module.
pub(crate) struct AccountedRing {
    // Fields drop in this order: once the number is closed it may be another thread's.
    _number: Claim,
    ring: IoUring,
    next: u64,
    in_flight: BTreeMap<RequestId, &'static str>,
    /// Results that nobody has asked for yet.
    results: BTreeMap<RequestId, i32>,
    /// Requests whose results nobody will ask for.
    ignored: BTreeSet<RequestId>,
    completed: u64,
}

/// The setup flags of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RingFlavor {
    Plain,
    CoopTaskrun,
    DeferTaskrun,
}

pub(crate) const KINDS: [RingFlavor; 3] = [RingFlavor::Plain, RingFlavor::CoopTaskrun, RingFlavor::DeferTaskrun];

impl AccountedRing {
    pub(crate) fn new(kind: RingFlavor) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        match kind {
            RingFlavor::Plain => &mut builder,
            RingFlavor::CoopTaskrun => builder.setup_coop_taskrun(),
            RingFlavor::DeferTaskrun => builder.setup_single_issuer().setup_defer_taskrun(),
        };
        let ring = builder.build(ENTRIES)?;
        let number = Claim::of(ring.as_raw_fd());
        Ok(Self {
            ring,
            next: 1,
            in_flight: BTreeMap::new(),
            results: BTreeMap::new(),
            ignored: BTreeSet::new(),
            completed: 0,
            _number: number,
        })
    }

    pub(crate) fn raw(&self) -> &IoUring {
        &self.ring
    }

    /// How many requests have completed since the last call.
    pub(crate) fn take_completed(&mut self) -> u64 {
        std::mem::take(&mut self.completed)
    }

    /// Queues an SQE. What it points to must stay until its CQE.
    pub(crate) fn push(&mut self, entry: Entry, what: &'static str) -> anyhow::Result<RequestId> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        let id = RequestId(self.next);
        self.next += 1;
        // SAFETY: the callers keep buffers, paths and descriptors until the request has its CQE:
        // they wait for it, or leak them.
        unsafe { self.ring.submission().push(&entry.user_data(id.0)) }.context("the submission queue is full")?;
        self.in_flight.insert(id, what);
        Ok(id)
    }

    /// No step will ask for this request's result.
    pub(crate) fn ignore(&mut self, id: RequestId) {
        if self.results.remove(&id).is_none() {
            self.ignored.insert(id);
        }
    }

    /// Consumes all SQEs.
    pub(crate) fn submit(&mut self) -> anyhow::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if is_passing(&error) => self.reap()?,
                Err(error) => return Err(error).context("io_uring_enter to submit"),
            }
        }
        Ok(())
    }

    /// The result of a request. Submits first.
    pub(crate) fn wait(&mut self, id: RequestId) -> anyhow::Result<i32> {
        self.submit()?;
        let started = Instant::now();
        loop {
            self.reap()?;
            if let Some(result) = self.results.remove(&id) {
                return Ok(result);
            }
            let what = self.in_flight.get(&id).copied();
            let Some(what) = what else { bail!("request {} is unknown", id.0) };
            ensure!(
                started.elapsed() < LOST_AFTER,
                "LOST: no CQE for {what} ({}) in {} s; in flight: {:?}",
                id.0,
                LOST_AFTER.as_secs(),
                self.in_flight
            );
            self.enter()?;
        }
    }

    /// Waits until nothing is in flight.
    pub(crate) fn settle(&mut self) -> anyhow::Result<()> {
        self.submit()?;
        let started = Instant::now();
        loop {
            self.reap()?;
            let Some((id, what)) = self.in_flight.first_key_value() else { return Ok(()) };
            ensure!(started.elapsed() < LOST_AFTER, "LOST: no CQE for {what} ({}) in {} s", id.0, LOST_AFTER.as_secs());
            self.enter()?;
        }
    }

    /// Waits for a CQE, not for long.
    fn enter(&mut self) -> anyhow::Result<()> {
        let pause = Timespec::from(LOOK);
        match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&pause)) {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error).context("io_uring_enter to wait"),
        }
    }

    fn reap(&mut self) -> anyhow::Result<()> {
        let cqes: Vec<cqueue::Entry> = self.ring.completion().collect();
        for cqe in cqes {
            let id = RequestId(cqe.user_data());
            self.completed += 1;
            let what = self.in_flight.remove(&id);
            ensure!(what.is_some(), "a CQE for request {}, which is not in flight: {}", id.0, cqe.result());
            ensure!(!cqueue::more(cqe.flags()), "a CQE with IORING_CQE_F_MORE for a single-shot request ({what:?})");
            if !self.ignored.remove(&id) {
                self.results.insert(id, cqe.result());
            }
        }
        Ok(())
    }
}

/// Not a failure of the ring: a signal, the end of the pause, a full CQ.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN))
}
