//! The tags of one queue, under one lock: where commands meet requests.
//!
//! Every method of [`Inner`] is a step under the lock; what it brings on it leaves in [`Actions`], for whoever releases
//! the lock. A tag in Copying or Landing belongs to the thread that has its action, until that calls `copied` or `landed`.

use crate::actions::{Action, Actions, Landing};
use crate::frontend::{BlockClient, BlockLimits, BlockRequest, DataLocation, IoOp, IoSlot, SECTOR};
use crate::platform::{IoBuffers, ServerCommand, SlotRange};
use crate::status::client_errno;
use crate::tag::{Phase, Rules, Tag, Work};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use uringlet_abi::ublk::{IoCmd, IoDesc, io, iod};
use uringlet_sys::Errno;
use uringlet_sys::lock::Mutex;
use uringlet_sys::sync::AtomicU32;

/// What becomes of requests that no server has yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They go to the server.
    Open,
    /// They wait for a server.
    Hold,
    /// EIO.
    Fail,
}

/// What a step needs of the device.
#[derive(Debug)]
pub(crate) struct Cx<'a, A> {
    pub(crate) buffers: &'a A,
    /// Requests in flight, of all queues.
    pub(crate) busy: &'a AtomicU32,
    pub(crate) rules: Rules,
    /// The queue's number.
    pub(crate) queue: u16,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Queue<C> {
    pub(crate) inner: Mutex<Inner<C>>,
}

impl<C: ServerCommand> Queue<C> {
    pub(crate) fn new(depth: u16) -> Self {
        Self { inner: Mutex::new(Inner::new(depth)) }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Inner<C> {
    tags: Vec<Tag<C>>,
    free: Vec<u16>,
    /// Who wants a slot.
    waiting: VecDeque<Arc<dyn BlockClient>>,
    mode: Mode,
    pub(crate) limits: BlockLimits,
    /// Tags that were fetched.
    fetched: u16,
    /// The server is gone: what it had is no longer with it.
    is_lost: bool,
    /// No command stays armed.
    is_cancelling: bool,
    /// Counts servers: a copy for an earlier one is for nobody.
    epoch: u32,
}

impl<C: ServerCommand> Inner<C> {
    fn new(depth: u16) -> Self {
        Self {
            tags: (0..depth).map(|_| Tag::new()).collect(),
            // The lowest number first.
            free: (0..depth).rev().collect(),
            waiting: VecDeque::new(),
            mode: Mode::Fail,
            limits: BlockLimits::default(),
            fetched: 0,
            is_lost: false,
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

    /// Whether its server is complete, and there.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_fetched() && !self.is_lost
    }

    /// Whether some command waits for a request.
    pub(crate) fn has_idle_command(&self) -> bool {
        self.tags.iter().any(|tag| tag.command.is_some() && !tag.phase.is_busy())
    }

    // The front end's side ------------------------------------------------------------------------------------------

    pub(crate) fn take(&mut self, queue: u16, client: &Arc<dyn BlockClient>) -> Option<IoSlot> {
        let Some(tag) = self.free.pop() else {
            self.waiting.push_back(Arc::clone(client));
            return None;
        };
        self.tag(tag).phase = Phase::Taken;
        Some(IoSlot { queue, tag })
    }

    pub(crate) fn release(&mut self, slot: &IoSlot, actions: &mut Actions<C>) {
        let tag = self.tag(slot.tag);
        debug_assert_eq!(tag.phase, Phase::Taken);
        tag.phase = Phase::Free;
        self.free.push(slot.tag);
        if let Some(client) = self.waiting.pop_front() {
            actions.push(Action::Free { client, queue: slot.queue });
        }
    }

    /// A client's request: checked, and on its way.
    pub(crate) fn submit<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, tag: u16, mut work: Work, actions: &mut Actions<C>) {
        match check(&work.request, &self.limits, cx.rules) {
            Ok(Fate::Server { flags, flush_after }) => {
                work.request.flags = flags;
                work.flush_after = flush_after;
                self.enqueue(cx, tag, work, actions);
            }
            Ok(Fate::Nothing) => self.end_at_once(cx, tag, work, Ok(()), actions),
            Err(errno) => self.end_at_once(cx, tag, work, Err(errno), actions),
        }
    }

    fn end_at_once<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, tag: u16, work: Work, result: Result<(), Errno>, actions: &mut Actions<C>) {
        self.tag(tag).work = Some(Work { flush_after: false, ..work });
        self.end(cx, tag, result, actions);
    }

    fn enqueue<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, tag: u16, work: Work, actions: &mut Actions<C>) {
        let slot = self.tag(tag);
        slot.work = Some(work);
        slot.phase = Phase::Queued;
        self.go_on(cx, tag, actions);
    }

    /// A queued request goes wherever it may.
    fn go_on<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, tag: u16, actions: &mut Actions<C>) {
        match self.mode {
            Mode::Fail => self.end(cx, tag, Err(Errno::EIO), actions),
            Mode::Hold => {}
            Mode::Open => self.dispatch(cx, tag, actions),
        }
    }

    /// A queued request goes to the server, if a command is there.
    fn dispatch<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, number: u16, actions: &mut Actions<C>) {
        let epoch = self.epoch;
        let tag = &mut self.tags[number as usize];
        let Some(work) = &tag.work else { return };
        if tag.phase != Phase::Queued || tag.command.is_none() {
            return;
        }
        let is_write = work.request.op == IoOp::Write;
        cx.buffers.write_iod(cx.queue, number, &work.iod(tag.addr), work.done);
        cx.busy.fetch_add(1, SeqCst);
        if is_write && cx.rules.copies && !cx.rules.asks_for_data {
            tag.phase = Phase::Copying;
            actions.push(copy(cx.queue, number, work, tag.addr, epoch));
            return;
        }
        let asks = is_write && cx.rules.asks_for_data;
        tag.phase = if asks { Phase::Wants } else { Phase::Served };
        let res = if asks { io::RES_NEED_GET_DATA } else { io::RES_OK };
        actions.extend_with(tag.command.take(), res);
    }

    /// WRITE data of `bytes` has reached the server's buffer.
    pub(crate) fn copied<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, number: u16, epoch: u32, bytes: u32, actions: &mut Actions<C>) {
        let is_lost = self.is_lost || self.epoch != epoch;
        let tag = &mut self.tags[number as usize];
        let Some(work) = &tag.work else { return };
        if is_lost {
            // It never got there: it waits for the next server, or fails.
            tag.phase = Phase::Queued;
            cx.busy.fetch_sub(1, SeqCst);
            self.go_on(cx, number, actions);
            return self.cancel_if_gone(number, actions);
        }
        if bytes < (SECTOR as u32).min(work.left) {
            // A bad buffer. The kernel tries again for ever.
            return self.end(cx, number, Err(Errno::EIO), actions);
        }
        if bytes < work.left {
            let iod = work.iod(tag.addr);
            cx.buffers.write_iod(cx.queue, number, &IoDesc { nr_sectors: bytes >> 9, ..iod }, work.done);
        }
        tag.phase = Phase::Served;
        actions.extend_with(tag.command.take(), io::RES_OK);
    }

    // The server's side ---------------------------------------------------------------------------------------------

    /// An I/O command. It is complete if it was refused. Whether the queue has all its tags fetched by it.
    pub(crate) fn command<A: IoBuffers>(
        &mut self,
        cx: &Cx<'_, A>,
        nr: Option<u8>,
        cmd: &IoCmd,
        (command, task): (C, u64),
        actions: &mut Actions<C>,
    ) -> bool {
        let all_fetched = self.is_fetched();
        let epoch = self.epoch;
        let Some(tag) = self.tags.get_mut(cmd.tag as usize) else {
            actions.push(Action::Complete(command, -Errno::EINVAL.into_raw()));
            return false;
        };
        let nr = match tag.check(cx.rules, nr, cmd.addr, task, all_fetched) {
            Ok(nr) => nr,
            Err(errno) => {
                actions.push(Action::Complete(command, -errno.into_raw()));
                return false;
            }
        };
        tag.command = Some(command);
        tag.addr = cmd.addr;
        match nr {
            io::FETCH_REQ => {
                tag.task = Some(task);
                self.fetched += 1;
                self.go_on_if_queued(cx, cmd.tag, actions);
            }
            io::NEED_GET_DATA => {
                tag.phase = Phase::Copying;
                if let Some(work) = &tag.work {
                    cx.buffers.write_iod(cx.queue, cmd.tag, &work.iod(tag.addr), work.done);
                    actions.push(copy(cx.queue, cmd.tag, work, tag.addr, epoch));
                }
            }
            _ => self.commit(cx, cmd.tag, cmd.result, actions),
        }
        self.cancel_if_gone(cmd.tag, actions);
        !all_fetched && self.is_fetched()
    }

    fn go_on_if_queued<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, number: u16, actions: &mut Actions<C>) {
        if self.tag(number).phase == Phase::Queued && self.mode == Mode::Open {
            self.dispatch(cx, number, actions);
        }
    }

    /// The server says what became of a request.
    fn commit<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, number: u16, result: i32, actions: &mut Actions<C>) {
        let tag = &mut self.tags[number as usize];
        let Some(work) = &mut tag.work else { return };
        let op = work.request.op;
        if result < 0 {
            return self.end(cx, number, Err(client_errno(result)), actions);
        }
        if !op.has_data() {
            return self.end(cx, number, Ok(()), actions);
        }
        if result == 0 && op == IoOp::Read {
            return self.end(cx, number, Err(Errno::EIO), actions);
        }
        let bytes = (result as u32).min(work.left);
        let moves = if cx.rules.copies { op == IoOp::Read } else { bytes < work.left || !work.stash.is_empty() };
        if !moves {
            return self.landed(cx, number, Ok(bytes), Vec::new(), actions);
        }
        tag.phase = Phase::Landing;
        actions.push(Action::Land(Landing {
            span: SlotRange { queue: cx.queue, tag: number, offset: work.done, len: bytes },
            data: work.request.data,
            addr: tag.addr,
            op,
            asked: work.left,
            stash: core::mem::take(&mut work.stash),
        }));
    }

    /// A commit's data is where it belongs.
    pub(crate) fn landed<A: IoBuffers>(
        &mut self,
        cx: &Cx<'_, A>,
        number: u16,
        bytes: Result<u32, Errno>,
        stash: Vec<u8>,
        actions: &mut Actions<C>,
    ) {
        let tag = &mut self.tags[number as usize];
        let Some(work) = &mut tag.work else { return };
        match bytes {
            Err(errno) => self.end(cx, number, Err(errno), actions),
            // Nothing of a READ could be taken: a bad buffer. The kernel reads again for ever.
            Ok(0) if work.request.op == IoOp::Read => self.end(cx, number, Err(Errno::EIO), actions),
            Ok(bytes) => {
                work.stash = stash;
                if work.advance(bytes) {
                    self.end(cx, number, Ok(()), actions);
                } else {
                    tag.phase = Phase::Queued;
                    cx.busy.fetch_sub(1, SeqCst);
                    self.go_on(cx, number, actions);
                }
            }
        }
        self.cancel_if_gone(number, actions);
    }

    /// A request is over, or goes on as the flush that belongs to it.
    fn end<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, number: u16, result: Result<(), Errno>, actions: &mut Actions<C>) {
        let tag = &mut self.tags[number as usize];
        if tag.phase.is_busy() {
            cx.busy.fetch_sub(1, SeqCst);
        }
        let Some(mut work) = tag.work.take() else { return };
        if work.flush_after && result.is_ok() {
            work.become_flush();
            return self.enqueue(cx, number, work, actions);
        }
        tag.phase = Phase::Taken;
        let Work { client, cookie, .. } = work;
        actions.push(Action::Done { client, cookie, slot: IoSlot { queue: cx.queue, tag: number }, result });
    }

    // Ends ----------------------------------------------------------------------------------------------------------

    /// What becomes of requests from now on, those that wait included.
    pub(crate) fn set_mode<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, mode: Mode, actions: &mut Actions<C>) {
        self.mode = mode;
        for number in 0..self.tags.len() as u16 {
            if self.tag(number).phase == Phase::Queued {
                self.go_on(cx, number, actions);
            }
        }
    }

    /// The server is gone: what it had waits for the next one, or fails. The mode says so.
    pub(crate) fn lose<A: IoBuffers>(&mut self, cx: &Cx<'_, A>, actions: &mut Actions<C>) {
        self.is_lost = true;
        for number in 0..self.tags.len() as u16 {
            let tag = self.tag(number);
            if !matches!(tag.phase, Phase::Served | Phase::Wants) {
                continue;
            }
            if cx.rules.reissues {
                tag.phase = Phase::Queued;
                cx.busy.fetch_sub(1, SeqCst);
                self.go_on(cx, number, actions);
            } else {
                self.end(cx, number, Err(Errno::EIO), actions);
            }
        }
    }

    /// The ring of a tag's command ends before the device was started: nobody starts it with this server.
    pub(crate) fn lose_early(&mut self, number: u16) {
        self.is_lost |= self.tags.get(number as usize).is_some_and(|tag| tag.command.is_some());
    }

    /// Ends the armed commands, and those that will be: no request comes any more.
    pub(crate) fn cancel(&mut self, actions: &mut Actions<C>) {
        self.is_cancelling = true;
        for number in 0..self.tags.len() as u16 {
            self.cancel_if_gone(number, actions);
        }
    }

    /// Ends one armed command: its ring is about to end.
    pub(crate) fn cancel_one(&mut self, number: u16, actions: &mut Actions<C>) {
        if let Some(tag) = self.tags.get_mut(number as usize)
            && !tag.phase.is_busy()
        {
            actions.extend_with(tag.command.take(), io::RES_ABORT);
        }
    }

    fn cancel_if_gone(&mut self, number: u16, actions: &mut Actions<C>) {
        if self.is_cancelling || self.is_lost {
            self.cancel_one(number, actions);
        }
    }

    /// The next server may fetch.
    pub(crate) fn reset(&mut self, actions: &mut Actions<C>) {
        self.cancel(actions);
        self.tags.iter_mut().for_each(Tag::forget_server);
        self.fetched = 0;
        self.is_lost = false;
        self.is_cancelling = false;
        self.epoch = self.epoch.wrapping_add(1);
    }
}

impl<C> Actions<C> {
    /// Ends a command, if there is one.
    fn extend_with(&mut self, command: Option<C>, res: i32) {
        if let Some(command) = command {
            self.push(Action::Complete(command, res));
        }
    }
}

/// Where a good request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Server {
        flags: u32,
        flush_after: bool,
    },
    /// It is done.
    Nothing,
}

/// As the block layer checks requests, and does for a device what that cannot do itself.
fn check(request: &BlockRequest, limits: &BlockLimits, rules: Rules) -> Result<Fate, Errno> {
    let BlockRequest { op, sector, sectors, data, .. } = *request;
    let flags = request.flags & iod::F_ALL;
    if op == IoOp::Flush {
        return Ok(if limits.has_cache { Fate::Server { flags: 0, flush_after: false } } else { Fate::Nothing });
    }
    let longest = limits.longest(op);
    if longest == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if op.is_change() && limits.is_read_only {
        return Err(Errno::EPERM);
    }
    let block = u64::from(limits.logical_block.max(SECTOR as u32)) / SECTOR;
    let is_aligned = sector.is_multiple_of(block) && u64::from(sectors).is_multiple_of(block);
    if sectors == 0 || sectors > longest || !is_aligned || (data != DataLocation::Slot && !rules.copies) {
        return Err(Errno::EINVAL);
    }
    if sector.checked_add(u64::from(sectors)).is_none_or(|end| end > limits.sectors) {
        return Err(Errno::EIO);
    }
    // Without a cache everything is durable; with one, a server that does not know FUA is asked to flush.
    let knows_fua = limits.has_cache && limits.has_fua;
    let flush_after = flags & iod::F_FUA != 0 && limits.has_cache && !limits.has_fua;
    Ok(Fate::Server { flags: if knows_fua { flags } else { flags & !iod::F_FUA }, flush_after })
}

fn copy<C>(queue: u16, tag: u16, work: &Work, addr: u64, epoch: u32) -> Action<C> {
    let span = SlotRange { queue, tag, offset: work.done, len: work.left };
    Action::Copy { span, data: work.request.data, addr, epoch }
}
