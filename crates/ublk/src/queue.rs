//! The tags of one queue, under one lock: where the server's commands meet the clients' requests.
//!
//! Every method of [`QueueInner`] is a step under the lock. It leaves calls to be made without the
//! lock in [`DeferredActions`]. A tag in Copying or Completing belongs to the thread that performs
//! its copy, until that calls `dispatch_copy_done` or `commit_copy_done`.

use crate::deferred::{CommitCopy, DeferredAction, DeferredActions};
use crate::frontend::{BlockClient, BlockLimits, BlockRequest, DataLocation, IoOp, IoSlot, SECTOR};
use crate::platform::{IoBuffers, ServerCommand, SlotRange};
use crate::status::client_errno;
use crate::tag::{QueueSetup, Tag, TagFeatures, TagIo, TagState};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use uringlet_abi::ublk::{IoCmd, IoDesc, io, iod};
use uringlet_sys::Errno;
use uringlet_sys::lock::Mutex;
use uringlet_sys::sync::AtomicU32;

/// What happens to requests that the server does not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DispatchMode {
    /// Dispatch them.
    Open,
    /// Keep them queued.
    Hold,
    /// Fail them with EIO.
    Fail,
}

/// The parts of the device that a step uses.
#[derive(Debug)]
pub(crate) struct QueueCtx<'a, A> {
    pub(crate) buffers: &'a A,
    /// Requests in flight, over all queues.
    pub(crate) in_flight: &'a AtomicU32,
    pub(crate) features: TagFeatures,
    /// The queue's number.
    pub(crate) queue: u16,
}

/// A queue: its tags under a lock.
#[derive(Debug)]
pub(crate) struct UblkQueue<C> {
    pub(crate) inner: Mutex<QueueInner<C>>,
}

impl<C: ServerCommand> UblkQueue<C> {
    pub(crate) fn new(depth: u16) -> Self {
        Self { inner: Mutex::new(QueueInner::new(depth)) }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct QueueInner<C> {
    tags: Vec<Tag<C>>,
    free: Vec<u16>,
    /// Clients that wait for a free slot.
    slot_waiters: VecDeque<Arc<dyn BlockClient>>,
    mode: DispatchMode,
    pub(crate) limits: BlockLimits,
    /// Number of fetched tags.
    fetched: u16,
    /// The server is lost: Dispatched requests no longer belong to it.
    is_server_lost: bool,
    /// Armed commands are completed with -ENODEV, now and when new ones arrive.
    is_cancelling: bool,
    /// Counts servers. A copy that began under an earlier server has no effect.
    epoch: u32,
}

impl<C: ServerCommand> QueueInner<C> {
    fn new(depth: u16) -> Self {
        Self {
            tags: (0..depth).map(|_| Tag::new()).collect(),
            // The lowest number comes first.
            free: (0..depth).rev().collect(),
            slot_waiters: VecDeque::new(),
            mode: DispatchMode::Fail,
            limits: BlockLimits::default(),
            fetched: 0,
            is_server_lost: false,
            is_cancelling: false,
            epoch: 0,
        }
    }

    fn tag(&mut self, tag: u16) -> &mut Tag<C> {
        &mut self.tags[tag as usize]
    }

    /// Whether all tags were fetched.
    pub(crate) fn is_fetched(&self) -> bool {
        self.fetched as usize == self.tags.len()
    }

    /// Whether all tags were fetched by a server that is not lost.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_fetched() && !self.is_server_lost
    }

    /// Whether some command waits for a request.
    pub(crate) fn has_idle_command(&self) -> bool {
        self.tags.iter().any(|tag| tag.command.is_some() && !tag.state.is_busy())
    }

    // Front ends
    // -------------------------------------------------------------------------------------

    pub(crate) fn alloc_slot(&mut self, queue: u16, client: &Arc<dyn BlockClient>) -> Option<IoSlot> {
        let Some(tag) = self.free.pop() else {
            self.slot_waiters.push_back(Arc::clone(client));
            return None;
        };
        self.tag(tag).state = TagState::Allocated;
        Some(IoSlot { queue, tag })
    }

    pub(crate) fn free_slot(&mut self, slot: &IoSlot, actions: &mut DeferredActions<C>) {
        let tag = self.tag(slot.tag);
        debug_assert_eq!(tag.state, TagState::Allocated);
        tag.state = TagState::Free;
        self.free.push(slot.tag);
        if let Some(client) = self.slot_waiters.pop_front() {
            actions.push(DeferredAction::SlotFreed { client, queue: slot.queue });
        }
    }

    /// Validates a client's request and queues it.
    pub(crate) fn submit<A: IoBuffers>(&mut self, ctx: &QueueCtx<'_, A>, tag: u16, mut tag_io: TagIo, actions: &mut DeferredActions<C>) {
        match admit(&tag_io.request, &self.limits, ctx.features) {
            Ok(Admission::Dispatch { flags, flush_after }) => {
                tag_io.request.flags = flags;
                tag_io.flush_after = flush_after;
                self.enqueue(ctx, tag, tag_io, actions);
            }
            Ok(Admission::CompleteNow) => self.finish_now(ctx, tag, tag_io, Ok(()), actions),
            Err(errno) => self.finish_now(ctx, tag, tag_io, Err(errno), actions),
        }
    }

    fn finish_now<A: IoBuffers>(
        &mut self,
        ctx: &QueueCtx<'_, A>,
        tag: u16,
        tag_io: TagIo,
        result: Result<(), Errno>,
        actions: &mut DeferredActions<C>,
    ) {
        self.tag(tag).tag_io = Some(TagIo { flush_after: false, ..tag_io });
        self.finish(ctx, tag, result, actions);
    }

    fn enqueue<A: IoBuffers>(&mut self, ctx: &QueueCtx<'_, A>, tag: u16, tag_io: TagIo, actions: &mut DeferredActions<C>) {
        let slot = self.tag(tag);
        slot.tag_io = Some(tag_io);
        slot.state = TagState::Queued;
        self.route_queued(ctx, tag, actions);
    }

    /// Dispatches, keeps or fails a queued request, as the mode says.
    fn route_queued<A: IoBuffers>(&mut self, ctx: &QueueCtx<'_, A>, tag: u16, actions: &mut DeferredActions<C>) {
        match self.mode {
            DispatchMode::Fail => self.finish(ctx, tag, Err(Errno::EIO), actions),
            DispatchMode::Hold => {}
            DispatchMode::Open => self.dispatch(ctx, tag, actions),
        }
    }

    /// Gives a queued request to the server, if the tag has a command.
    fn dispatch<A: IoBuffers>(&mut self, ctx: &QueueCtx<'_, A>, number: u16, actions: &mut DeferredActions<C>) {
        let epoch = self.epoch;
        let tag = &mut self.tags[number as usize];
        let Some(tag_io) = &tag.tag_io else { return };
        if tag.state != TagState::Queued || tag.command.is_none() {
            return;
        }
        let is_write = tag_io.request.op == IoOp::Write;
        ctx.buffers.write_iod(ctx.queue, number, &tag_io.iod(tag.addr), tag_io.done);
        ctx.in_flight.fetch_add(1, SeqCst);
        if is_write && ctx.features.copies_data && !ctx.features.need_get_data {
            tag.state = TagState::Copying;
            actions.push(dispatch_copy(ctx.queue, number, tag_io, tag.addr, epoch));
            return;
        }
        let asks = is_write && ctx.features.need_get_data;
        tag.state = if asks { TagState::NeedData } else { TagState::Dispatched };
        let res = if asks { io::RES_NEED_GET_DATA } else { io::RES_OK };
        actions.complete_command(tag.command.take(), res);
    }

    /// `bytes` of a WRITE's data are in the server's buffer.
    pub(crate) fn dispatch_copy_done<A: IoBuffers>(
        &mut self,
        ctx: &QueueCtx<'_, A>,
        number: u16,
        epoch: u32,
        bytes: u32,
        actions: &mut DeferredActions<C>,
    ) {
        let is_server_lost = self.is_server_lost || self.epoch != epoch;
        let tag = &mut self.tags[number as usize];
        let Some(tag_io) = &tag.tag_io else { return };
        if is_server_lost {
            // The server was lost during the copy: the request waits for the next server, or fails.
            tag.state = TagState::Queued;
            ctx.in_flight.fetch_sub(1, SeqCst);
            self.route_queued(ctx, number, actions);
            return self.cancel_if_closing(number, actions);
        }
        if bytes < (SECTOR as u32).min(tag_io.left) {
            // Differs: a faulting buffer is EIO. The kernel retries for ever.
            return self.finish(ctx, number, Err(Errno::EIO), actions);
        }
        if bytes < tag_io.left {
            let iod = tag_io.iod(tag.addr);
            ctx.buffers.write_iod(ctx.queue, number, &IoDesc { nr_sectors: bytes >> 9, ..iod }, tag_io.done);
        }
        tag.state = TagState::Dispatched;
        actions.complete_command(tag.command.take(), io::RES_OK);
    }

    // The server
    // -------------------------------------------------------------------------------------

    /// An I/O command. A refused command is completed. Returns whether it was the FETCH_REQ that
    /// made the queue complete.
    pub(crate) fn command<A: IoBuffers>(
        &mut self,
        ctx: &QueueCtx<'_, A>,
        nr: Option<u8>,
        cmd: &IoCmd,
        (command, task): (C, u64),
        actions: &mut DeferredActions<C>,
    ) -> bool {
        let setup = if self.is_fetched() { QueueSetup::Done } else { QueueSetup::Fetching };
        let epoch = self.epoch;
        let Some(tag) = self.tags.get_mut(cmd.tag as usize) else {
            actions.push(DeferredAction::Complete(command, -Errno::EINVAL.into_raw()));
            return false;
        };
        let nr = match tag.check(ctx.features, nr, cmd.addr, task, setup) {
            Ok(nr) => nr,
            Err(errno) => {
                actions.push(DeferredAction::Complete(command, -errno.into_raw()));
                return false;
            }
        };
        tag.command = Some(command);
        tag.addr = cmd.addr;
        match nr {
            io::FETCH_REQ => {
                tag.task = Some(task);
                self.fetched += 1;
                self.dispatch_if_open(ctx, cmd.tag, actions);
            }
            io::NEED_GET_DATA => {
                tag.state = TagState::Copying;
                if let Some(tag_io) = &tag.tag_io {
                    ctx.buffers.write_iod(ctx.queue, cmd.tag, &tag_io.iod(tag.addr), tag_io.done);
                    actions.push(dispatch_copy(ctx.queue, cmd.tag, tag_io, tag.addr, epoch));
                }
            }
            _ => self.commit(ctx, cmd.tag, cmd.result, actions),
        }
        self.cancel_if_closing(cmd.tag, actions);
        setup == QueueSetup::Fetching && self.is_fetched()
    }

    fn dispatch_if_open<A: IoBuffers>(&mut self, ctx: &QueueCtx<'_, A>, number: u16, actions: &mut DeferredActions<C>) {
        if self.tag(number).state == TagState::Queued && self.mode == DispatchMode::Open {
            self.dispatch(ctx, number, actions);
        }
    }

    /// COMMIT_AND_FETCH_REQ: the server has handled `result` bytes, or failed.
    fn commit<A: IoBuffers>(&mut self, ctx: &QueueCtx<'_, A>, number: u16, result: i32, actions: &mut DeferredActions<C>) {
        let tag = &mut self.tags[number as usize];
        let Some(tag_io) = &mut tag.tag_io else { return };
        let op = tag_io.request.op;
        if result < 0 {
            return self.finish(ctx, number, Err(client_errno(result)), actions);
        }
        if !op.has_data() {
            return self.finish(ctx, number, Ok(()), actions);
        }
        if result == 0 && op == IoOp::Read {
            return self.finish(ctx, number, Err(Errno::EIO), actions);
        }
        let bytes = (result as u32).min(tag_io.left);
        let moves = if ctx.features.copies_data { op == IoOp::Read } else { bytes < tag_io.left || !tag_io.stash.is_empty() };
        if !moves {
            return self.commit_copy_done(ctx, number, Ok(bytes), Vec::new(), actions);
        }
        tag.state = TagState::Completing;
        actions.push(DeferredAction::CommitCopy(CommitCopy {
            range: SlotRange { queue: ctx.queue, tag: number, offset: tag_io.done, len: bytes },
            data: tag_io.request.data,
            addr: tag.addr,
            op,
            requested: tag_io.left,
            stash: core::mem::take(&mut tag_io.stash),
        }));
    }

    /// The data of a commit has been copied.
    pub(crate) fn commit_copy_done<A: IoBuffers>(
        &mut self,
        ctx: &QueueCtx<'_, A>,
        number: u16,
        bytes: Result<u32, Errno>,
        stash: Vec<u8>,
        actions: &mut DeferredActions<C>,
    ) {
        let tag = &mut self.tags[number as usize];
        let Some(tag_io) = &mut tag.tag_io else { return };
        match bytes {
            Err(errno) => self.finish(ctx, number, Err(errno), actions),
            // Differs: a faulting buffer is EIO. The kernel reads again for ever.
            Ok(0) if tag_io.request.op == IoOp::Read => self.finish(ctx, number, Err(Errno::EIO), actions),
            Ok(bytes) => {
                tag_io.stash = stash;
                if tag_io.advance(bytes) {
                    self.finish(ctx, number, Ok(()), actions);
                } else {
                    tag.state = TagState::Queued;
                    ctx.in_flight.fetch_sub(1, SeqCst);
                    self.route_queued(ctx, number, actions);
                }
            }
        }
        self.cancel_if_closing(number, actions);
    }

    /// Ends a request, or continues with the flush that emulates FUA.
    fn finish<A: IoBuffers>(&mut self, ctx: &QueueCtx<'_, A>, number: u16, result: Result<(), Errno>, actions: &mut DeferredActions<C>) {
        let tag = &mut self.tags[number as usize];
        let Some(mut tag_io) = tag.tag_io.take() else { return };
        let is_counted = tag.state.is_busy();
        if tag_io.flush_after && result.is_ok() {
            if is_counted {
                ctx.in_flight.fetch_sub(1, SeqCst);
            }
            tag_io.become_flush();
            return self.enqueue(ctx, number, tag_io, actions);
        }
        // Counted until its client has been told.
        if !is_counted {
            ctx.in_flight.fetch_add(1, SeqCst);
        }
        tag.state = TagState::Allocated;
        let TagIo { client, cookie, .. } = tag_io;
        actions.push(DeferredAction::Done { client, cookie, slot: IoSlot { queue: ctx.queue, tag: number }, result });
    }

    // Teardown
    // --------------------------------------------------------------------------------------

    /// Sets what happens to requests from now on, including those that are queued.
    pub(crate) fn set_mode<A: IoBuffers>(&mut self, ctx: &QueueCtx<'_, A>, mode: DispatchMode, actions: &mut DeferredActions<C>) {
        self.mode = mode;
        for number in 0..self.tags.len() as u16 {
            if self.tag(number).state == TagState::Queued {
                self.route_queued(ctx, number, actions);
            }
        }
    }

    /// The server is lost: its requests are queued for the next one, or fail.
    pub(crate) fn server_lost<A: IoBuffers>(&mut self, ctx: &QueueCtx<'_, A>, actions: &mut DeferredActions<C>) {
        self.is_server_lost = true;
        for number in 0..self.tags.len() as u16 {
            let tag = self.tag(number);
            if !matches!(tag.state, TagState::Dispatched | TagState::NeedData) {
                continue;
            }
            if ctx.features.reissues {
                tag.state = TagState::Queued;
                ctx.in_flight.fetch_sub(1, SeqCst);
                self.route_queued(ctx, number, actions);
            } else {
                self.finish(ctx, number, Err(Errno::EIO), actions);
            }
        }
    }

    /// The ring of a tag's command ends before START_DEV: the device cannot start with this server.
    pub(crate) fn server_lost_before_start(&mut self, number: u16) {
        self.is_server_lost |= self.tags.get(number as usize).is_some_and(|tag| tag.command.is_some());
    }

    /// Completes the armed commands, and later ones when they arrive: no request comes any more.
    pub(crate) fn cancel_all(&mut self, actions: &mut DeferredActions<C>) {
        self.is_cancelling = true;
        for number in 0..self.tags.len() as u16 {
            self.cancel_if_closing(number, actions);
        }
    }

    /// Completes one armed command: its ring is about to end.
    pub(crate) fn cancel_armed(&mut self, number: u16, actions: &mut DeferredActions<C>) {
        if let Some(tag) = self.tags.get_mut(number as usize)
            && !tag.state.is_busy()
        {
            actions.complete_command(tag.command.take(), io::RES_ABORT);
        }
    }

    fn cancel_if_closing(&mut self, number: u16, actions: &mut DeferredActions<C>) {
        if self.is_cancelling || self.is_server_lost {
            self.cancel_armed(number, actions);
        }
    }

    /// Allows the next server to fetch.
    pub(crate) fn reset(&mut self, actions: &mut DeferredActions<C>) {
        self.cancel_all(actions);
        self.tags.iter_mut().for_each(Tag::forget_server);
        self.fetched = 0;
        self.is_server_lost = false;
        self.is_cancelling = false;
        self.epoch = self.epoch.wrapping_add(1);
    }
}

impl<C> DeferredActions<C> {
    /// Defers the completion of a command, if there is one.
    fn complete_command(&mut self, command: Option<C>, res: i32) {
        if let Some(command) = command {
            self.push(DeferredAction::Complete(command, res));
        }
    }
}

/// How a valid request continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Dispatch {
        flags: u32,
        flush_after: bool,
    },
    /// It has no effect, and is done.
    CompleteNow,
}

/// Validates a request like the block layer, and emulates FUA where the server lacks it.
fn admit(request: &BlockRequest, limits: &BlockLimits, features: TagFeatures) -> Result<Admission, Errno> {
    let BlockRequest { op, sector, sectors, data, .. } = *request;
    let flags = request.flags & iod::F_ALL;
    if op == IoOp::Flush {
        return Ok(if limits.has_cache { Admission::Dispatch { flags: 0, flush_after: false } } else { Admission::CompleteNow });
    }
    let longest = limits.max_sectors_of(op);
    if longest == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if op.is_change() && limits.is_read_only {
        return Err(Errno::EPERM);
    }
    let block = u64::from(limits.logical_block.max(SECTOR as u32)) / SECTOR;
    let is_aligned = sector.is_multiple_of(block) && u64::from(sectors).is_multiple_of(block);
    if sectors == 0 || sectors > longest || !is_aligned || (data != DataLocation::Slot && !features.copies_data) {
        return Err(Errno::EINVAL);
    }
    if sector.checked_add(u64::from(sectors)).is_none_or(|end| end > limits.sectors) {
        return Err(Errno::EIO);
    }
    // Without a cache everything is durable. With a cache and without FUA, a flush follows.
    let knows_fua = limits.has_cache && limits.has_fua;
    let flush_after = flags & iod::F_FUA != 0 && limits.has_cache && !limits.has_fua;
    Ok(Admission::Dispatch { flags: if knows_fua { flags } else { flags & !iod::F_FUA }, flush_after })
}

fn dispatch_copy<C>(queue: u16, tag: u16, tag_io: &TagIo, addr: u64, epoch: u32) -> DeferredAction<C> {
    let range = SlotRange { queue, tag, offset: tag_io.done, len: tag_io.left };
    DeferredAction::DispatchCopy { range, data: tag_io.request.data, addr, epoch }
}
