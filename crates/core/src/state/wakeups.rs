//! Wake-ups that wait until the ring's lock is released.

use super::ring::{EventfdCounts, Ring, RingState};
use crate::ring::cq::CqNotify;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use uringlet_abi::cq_flags;
use uringlet_sys::biased_lock::EventSeq;
use uringlet_sys::fd::{EngineFd, EventFd};
use uringlet_sys::lock::futex_wake;
use uringlet_sys::ring_memory::RingField;

/// The wake-ups to send once the lock is released. Its drop sends them; mostly there are none, and
/// it is one comparison.
#[derive(Debug, Default)]
pub(super) struct DeferredWakeups(Option<WakeTargets>);

/// The threads to wake.
#[derive(Debug)]
struct WakeTargets {
    ring: &'static Ring,
    /// Waiters other than the driver.
    waiters: bool,
    /// Those of them that do not wait on the futex.
    masked: Vec<Arc<EventFd>>,
    /// The driver's eventfd.
    driver: Option<Arc<EventFd>>,
    /// The program's eventfd.
    eventfd: Option<Arc<EngineFd>>,
    /// Waiters of other processes.
    others: Option<EventSeq>,
}

impl Drop for DeferredWakeups {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(targets) = self.0.take() {
            targets.wake();
        }
    }
}

impl WakeTargets {
    #[inline(never)]
    fn wake(self) {
        if self.waiters {
            self.ring.cq_wait_seq.fetch_add(1, AcqRel);
            futex_wake(&self.ring.cq_wait_seq, u32::MAX);
        }
        for waiter in &self.masked {
            waiter.signal();
        }
        if let Some(eventfd) = &self.driver {
            eventfd.signal();
        }
        if let Some(eventfd) = &self.eventfd {
            eventfd.signal();
        }
        if let Some(seq) = self.others {
            seq.wake();
        }
    }
}

impl RingState {
    /// Makes what was posted visible, and collects the wake-ups for it.
    #[inline(always)]
    pub(super) fn commit(&mut self, ring: &'static Ring) -> DeferredWakeups {
        let posted = self.res.cq.publish(&self.res.memory);
        DeferredWakeups((!posted.is_empty() && self.has_listeners(ring)).then(|| self.notify(ring, posted)))
    }

    /// Whether a thread may wait for what is posted, in whichever way.
    #[inline]
    fn has_listeners(&self, ring: &Ring) -> bool {
        self.waiters.sleeping > 0 || self.eventfd.is_some() || ring.is_polled.load(Relaxed) || self.is_shared()
    }

    #[inline(never)]
    fn notify(&mut self, ring: &'static Ring, posted: CqNotify) -> WakeTargets {
        let mut wakeups = WakeTargets { ring, waiters: false, masked: Vec::new(), driver: None, eventfd: None, others: None };
        if self.is_shared() {
            wakeups.others = Some(self.res.memory.biased_lock().notify());
        }
        if self.waiters.sleeping > 0 && (posted.must_wake || self.res.reaches(self.waiters.wake_tail)) {
            wakeups.waiters = self.waiters.sleeping > u32::from(self.waiters.has_driver);
            wakeups.masked.clone_from(&self.waiters.masked);
            // One notification per sleep is enough.
            if self.waiters.has_driver && !core::mem::replace(&mut self.waiters.driver_notified, true) {
                wakeups.driver = self.res.poller.as_ref().map(|p| Arc::clone(&p.wake_eventfd));
            }
        }
        if !posted.any && !posted.deferred {
            return wakeups;
        }
        let wants_event = self.res.memory.word(RingField::CqFlags).load(Relaxed) & cq_flags::EVENTFD_DISABLED == 0;
        if let Some(eventfd) = &mut self.eventfd
            && wants_event
            && (eventfd.counts == EventfdCounts::All || !self.res.lock_owner.is_submitter() || posted.is_async)
        {
            eventfd.is_signalled = true;
            wakeups.eventfd = Some(Arc::clone(&eventfd.fd));
        }
        self.flag_readable(ring);
        wakeups
    }
}
