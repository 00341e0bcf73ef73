//! Ring resources available to an op during issue: the CQ, registered files and buffers, readiness,
//! the write budget. The requests are beside them in the ring's state (`state`), behind the same
//! lock.

use crate::apoll::Poller;
use crate::identity::{self, Identity};
use crate::ring::cq::{Cq, CqeExtra, WaitingCqe};
use crate::rsrc::buf_ring::BufGroups;
use crate::rsrc::buffers::{BufferNode, BufferTable};
use crate::rsrc::files::{FileNode, FileTable};
use crate::rsrc::zcrx::ZcrxTable;
use crate::throttle::RingThrottle;
use crate::timer::Timers;
use crate::write::WriteMode;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use uringlet_abi::{Cqe, Opcode, setup, sq_flags};
use uringlet_sys::fault_plan::FaultCounts;
use uringlet_sys::fd::EventFd;
use uringlet_sys::ring_memory::{RingField, RingMemory};
use uringlet_sys::trace::{self, RecordKind, TraceRecord};
use uringlet_sys::{Errno, clock::ticks, process, program_tid::program_tid};

/// Which kind of thread holds a ring's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockOwner {
    /// A thread of the program inside enter() or register().
    Submitter,
    /// A worker that was started with this identity.
    WorkerOf(Identity),
    /// The watcher. Its identity, if known: with that it may start workers, and do nothing else.
    Watcher(Option<Identity>),
    /// Any other thread: a close, the completion of a command.
    Worker,
}

impl LockOwner {
    /// The calling thread, which has the lock, as the program knows it.
    pub(crate) fn tid(self) -> u32 {
        if self.is_submitter() { program_tid() } else { process::tid() }
    }

    #[inline]
    pub(crate) fn is_submitter(self) -> bool {
        self == Self::Submitter
    }

    /// The identity of the thread, if known.
    pub(crate) fn identity(self) -> Option<Identity> {
        match self {
            Self::Submitter => Some(identity::of_this_thread()),
            Self::WorkerOf(identity) => Some(identity),
            Self::Watcher(identity) => identity,
            Self::Worker => None,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RingResources {
    /// The ring's index in the ring table, and in the statistics.
    pub(crate) ring_index: u32,
    /// The kind of thread that holds the lock.
    pub(crate) lock_owner: LockOwner,
    pub(crate) memory: RingMemory,
    /// `IORING_SETUP_*`.
    pub(crate) setup: u32,
    /// The number of the last request that a tracer was told of.
    pub(crate) traced: u32,
    pub(crate) cq: Cq,
    /// CQEs that wait for the submitter's next GETEVENTS (`DEFER_TASKRUN`).
    pub(crate) deferred: VecDeque<WaitingCqe>,
    /// `DEFER_TASKRUN`: the program was notified of events of its files, and has not entered since.
    pub(crate) event_pending: bool,
    pub(crate) poller: Option<Poller>,
    /// The poller's eventfd, made before the poller: a child that is forked before the first wait
    /// has it as well.
    pub(crate) wake_eventfd: Option<Arc<EventFd>>,
    /// In a forked child: wakes the maker's driver.
    pub(crate) maker_wake: Option<Arc<EventFd>>,
    pub(crate) timers: Timers,
    pub(crate) files: FileTable,
    pub(crate) buffers: BufferTable,
    pub(crate) buf_groups: BufGroups,
    pub(crate) zcrx: ZcrxTable,
    /// Requests may hold files or buffers that have to be released when they complete.
    pub(crate) has_nodes: bool,
    /// What is issued now had to wait for its turn (`state::ready`).
    pub(crate) runs_ready: bool,
    /// How buffered writes are executed.
    pub(crate) mode: WriteMode,
    /// What may be written without a look at the machine's dirty pages.
    pub(crate) throttle: RingThrottle,
    /// How far the ring is in the plan of what is done to its requests, if there is one.
    pub(crate) faults: Option<Box<FaultCounts>>,
}

impl RingResources {
    /// The resources of a new ring.
    pub(crate) fn new(memory: RingMemory, setup: u32) -> Self {
        Self {
            ring_index: 0,
            lock_owner: LockOwner::Worker,
            memory,
            setup,
            traced: 0,
            cq: Cq::default(),
            deferred: VecDeque::new(),
            event_pending: false,
            poller: None,
            wake_eventfd: None,
            maker_wake: None,
            timers: Timers::default(),
            files: FileTable::default(),
            buffers: BufferTable::default(),
            buf_groups: BufGroups::default(),
            zcrx: ZcrxTable::default(),
            has_nodes: false,
            runs_ready: false,
            mode: WriteMode::default(),
            throttle: RingThrottle::default(),
            faults: None,
        }
    }

    /// In a forked child: drops what is deferred and armed, which is the parent's.
    pub(crate) fn reset_in_child(&mut self) {
        self.timers = Timers::default();
        self.poller = None;
        let wake_eventfd = self.wake_eventfd.take();
        self.maker_wake = self.maker_wake.take().or(wake_eventfd);
        self.deferred.clear();
        self.throttle.forget_writes();
    }

    /// Posts a CQE, or keeps it for the submitter (`DEFER_TASKRUN`).
    #[inline(always)]
    pub(crate) fn post(&mut self, cqe: Cqe) {
        if self.setup & setup::DEFER_TASKRUN == 0 {
            self.cq.post(&self.memory, cqe);
        } else {
            self.post_or_defer(cqe);
        }
        if self.timers.counts_completions() {
            self.timers.note_posted();
        }
    }

    /// Notes that there is something for the submitter's next GETEVENTS.
    pub(crate) fn note_deferred(&mut self) {
        self.set_sq_flag(sq_flags::TASKRUN, self.setup & setup::TASKRUN_FLAG != 0);
        self.cq.note_deferred();
    }

    #[inline(never)]
    fn post_or_defer(&mut self, cqe: Cqe) {
        if !self.lock_owner.is_submitter() {
            return self.defer(WaitingCqe { cqe, extra: None });
        }
        // A request's last CQE, for example of a cancel, must not overtake its earlier ones.
        if !self.deferred.is_empty() {
            self.run_deferred();
        }
        self.cq.post(&self.memory, cqe);
    }

    fn defer(&mut self, waiting: WaitingCqe) {
        self.deferred.push_back(waiting);
        self.note_deferred();
    }

    /// As [`post`](Self::post), for a CQE with a second half, on a ring that has such CQEs.
    #[cold]
    pub(crate) fn post_big(&mut self, cqe: Cqe, extra: CqeExtra) {
        if self.setup & setup::DEFER_TASKRUN != 0 && !self.lock_owner.is_submitter() {
            self.defer(WaitingCqe { cqe, extra: Some(extra) });
        } else {
            if !self.deferred.is_empty() {
                self.run_deferred();
            }
            self.cq.post_big(&self.memory, cqe, extra);
        }
        if self.timers.counts_completions() {
            self.timers.note_posted();
        }
    }

    /// A slot or a request gives up a file. The last one closes its descriptor and posts its tag.
    pub(crate) fn release_file(&mut self, node: Arc<FileNode>) {
        let Some(node) = Arc::into_inner(node) else { return };
        // The program may have the file open elsewhere: then closing the engine's number would not
        // remove it from the epoll set.
        if let Some(poller) = &mut self.poller {
            poller.remove_file(node.fd.number());
        }
        self.post_tag(node.tag);
    }

    /// A slot or a request gives up a buffer. The last one posts its tag.
    pub(crate) fn release_buffer(&mut self, node: Arc<BufferNode>) {
        if let Some(node) = Arc::into_inner(node) {
            self.post_tag(node.tag);
        }
    }

    /// As [`post`](Self::post), as if the CQ were full.
    #[cold]
    pub(crate) fn post_behind(&mut self, cqe: Cqe) {
        if self.setup & setup::DEFER_TASKRUN != 0 && !self.lock_owner.is_submitter() {
            return self.post(cqe);
        }
        self.cq.post_behind(&self.memory, cqe);
        if self.timers.counts_completions() {
            self.timers.note_posted();
        }
    }

    /// Tells a tracer of a CQE that no request of this ring has asked for: another ring's message,
    /// or the tag of a resource that is not used any more.
    #[inline]
    pub(crate) fn trace_posted(&self, posted: Cqe) {
        if trace::is_on() {
            self.trace_cqe(posted, TraceRecord { detail: TraceRecord::NO_REQUEST, ..TraceRecord::default() });
        }
    }

    /// Tells a tracer of one of several CQEs that a request posts in one try. `traced_as`: see
    /// `IssueCx`.
    #[cold]
    pub(crate) fn trace_shot(&self, (request, road): (u32, u8), opcode: Opcode, shot: Cqe) {
        let mut record = TraceRecord { request, road, detail: TraceRecord::MORE, ..TraceRecord::default() };
        record.payload[2] = opcode as u64;
        self.trace_cqe(shot, record);
    }

    #[cold]
    fn trace_cqe(&self, cqe: Cqe, mut record: TraceRecord) {
        record.kind = RecordKind::Completion as u8;
        (record.ring, record.ticks) = (self.ring_index, ticks());
        (record.pid, record.tid) = (process::pid(), self.lock_owner.tid());
        record.payload[0] = cqe.user_data;
        record.payload[1] = u64::from(cqe.res.cast_unsigned()) | u64::from(cqe.flags) << 32;
        trace::with_buffer(|writer| writer.record(&record));
    }

    fn post_tag(&mut self, tag: u64) {
        if tag != 0 {
            self.trace_posted(Cqe { user_data: tag, res: 0, flags: 0 });
            self.post(Cqe { user_data: tag, res: 0, flags: 0 });
        }
    }

    /// Whether there is room for one more CQE. If not, a multishot request ends, so that unread
    /// CQEs do not pile up.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        let waiting = self.cq.ready(&self.memory) as usize + self.deferred.len();
        waiting < self.memory.geometry().cq_entries as usize && !self.cq.has_overflow()
    }

    /// For how many CQEs with a second half there is room, at least.
    pub(crate) fn big_room(&self) -> usize {
        (self.cq.big_room(&self.memory) as usize).saturating_sub(self.deferred.len())
    }

    /// Whether there is nothing for the program, neither in the CQ nor by entering for events.
    pub(crate) fn is_drained(&self) -> bool {
        self.cq.ready(&self.memory) == 0 && !self.cq.has_overflow() && self.deferred.is_empty() && !self.event_pending
    }

    /// Whether the CQ tail, deferred CQEs included, has reached `tail`.
    pub(crate) fn reaches(&self, tail: u32) -> bool {
        let now = self.cq.tail().wrapping_add(self.deferred.len() as u32);
        now.wrapping_sub(tail) as i32 >= 0
    }

    /// On the submitter's side: moves deferred CQEs into the CQ, and overflowed ones as far as
    /// there is room.
    #[inline]
    pub(crate) fn run_deferred(&mut self) {
        if self.setup & (setup::DEFER_TASKRUN | setup::TASKRUN_FLAG) != 0 || self.cq.has_overflow() {
            self.flush_deferred();
        }
    }

    #[inline(never)]
    fn flush_deferred(&mut self) {
        while let Some(WaitingCqe { cqe, extra }) = self.deferred.pop_front() {
            match extra {
                Some(extra) => self.cq.post_big(&self.memory, cqe, extra),
                None => self.cq.post(&self.memory, cqe),
            }
        }
        self.set_sq_flag(sq_flags::TASKRUN, false);
        self.cq.flush_overflow(&self.memory);
    }

    pub(crate) fn set_sq_flag(&self, flag: u32, on: bool) {
        let flags = self.memory.word(RingField::SqFlags);
        let is_on = flags.load(Relaxed) & flag != 0;
        if on && !is_on {
            flags.fetch_or(flag, AcqRel);
        } else if !on && is_on {
            flags.fetch_and(!flag, AcqRel);
        }
    }

    /// The poller, made on first use.
    ///
    /// # Errors
    /// Those of [`Poller::new`]; `EAGAIN` in a vfork child, whose descriptors are not the ring's.
    pub(crate) fn poller(&mut self) -> Result<&mut Poller, Errno> {
        if self.poller.is_none() {
            if process::is_foreign() {
                return Err(Errno::EAGAIN);
            }
            let wake_eventfd = match &self.wake_eventfd {
                Some(made) => Arc::clone(made),
                None => Arc::new(EventFd::new()?),
            };
            self.poller = Some(Poller::new(wake_eventfd)?);
        }
        self.poller.as_mut().ok_or(Errno::ENOMEM)
    }

    /// Whether a receive from this file would find nothing, for all that is known.
    pub(crate) fn known_empty(&mut self, fd: i32) -> bool {
        self.poller.as_mut().is_some_and(|p| p.known_empty(fd))
    }

    /// Whether a receive from this file has to go behind others that wait for it: in the kernel
    /// what the chain's requests before it have woken comes first.
    pub(crate) fn is_behind_others(&self, fd: i32) -> bool {
        self.runs_ready && self.poller.as_ref().is_some_and(|p| p.is_awaited(fd))
    }

    /// Whether a receive that gets less than it asked for empties this file.
    pub(crate) fn short_read_drains(&mut self, fd: i32) -> bool {
        self.poller.as_mut().is_some_and(|p| p.short_read_drains(fd))
    }

    /// A receive has emptied it.
    pub(crate) fn note_empty(&mut self, fd: i32) {
        if let Some(poller) = &mut self.poller {
            poller.note_empty(fd);
        }
    }

    /// The number was given to a new file.
    pub(crate) fn note_new_file(&mut self, fd: i32) {
        if let Some(poller) = &mut self.poller {
            poller.invalidate(fd);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use uringlet_sys::ring_memory::Geometry;

    #[test]
    fn deferred_cqes_are_not_overtaken() {
        let geometry = Geometry { sq_entries: 2, cq_entries: 4, sqe_shift: 6, cqe_shift: 4, has_sq_array: true };
        let mut res = RingResources::new(RingMemory::new(geometry).unwrap(), setup::DEFER_TASKRUN);
        res.post(Cqe::default());
        assert_eq!((res.cq.tail(), res.deferred.len()), (0, 1));
        res.lock_owner = LockOwner::Submitter;
        res.post(Cqe::default());
        assert_eq!((res.cq.tail(), res.deferred.len()), (2, 0));
    }
}
