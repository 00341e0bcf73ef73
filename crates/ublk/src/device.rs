//! One device: its life, from ADD_DEV to the day its number is free again. See README.md.

mod lifecycle;

use crate::deferred::{CommitCopy, DeferredAction, DeferredActions};
use crate::frontend::{BlockClient, BlockDevice, BlockLimits, BlockRequest, FrontEnd, IoOp, IoSlot, SlotExtent};
use crate::params::DeviceParams;
use crate::platform::{IoBuffers, Platform, ServerCommand, SlotRange, Transport};
use crate::queue::{Inner, QueueCtx, UblkQueue};
use crate::tag::{TagFeatures, TagIo};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use uringlet_abi::ublk::{DevInfo, IoCmd, io, ioctl_nr, state};
use uringlet_sys::Errno;
use uringlet_sys::lock::{Mutex, futex_wait, futex_wake};
use uringlet_sys::sync::{AtomicBool, AtomicU32};

/// What a device becomes when its last request in flight is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teardown {
    Stop,
    Quiesce,
    FailIo,
}

/// What changes in a device's life.
#[derive(Debug)]
pub(crate) struct DeviceState {
    pub(crate) dev_state: u16,
    pub(crate) pid: i32,
    pub(crate) params: DeviceParams,
    /// Front ends know it.
    pub(crate) is_started: bool,
    /// The char device is open.
    pub(crate) is_open: bool,
    pub(crate) is_deleted: bool,
    /// A whole queue was fetched since ADD_DEV or START_USER_RECOVERY.
    pub(crate) had_server: bool,
    teardown: Option<Teardown>,
    /// STOP_DEV has come: front ends write what they keep, requests still go to the server. Nothing but an end follows.
    is_stopping: bool,
    /// The char device was closed meanwhile.
    is_close_pending: bool,
    /// Front ends are being told of the beginning: of an end after that.
    is_notifying_start: bool,
    /// Front ends are being told of the end, or will be.
    is_notifying_stop: bool,
}

/// A server's I/O command.
#[derive(Debug)]
pub struct IoCommand<C> {
    /// The thread that sends it: only the task that fetched a tag may use it.
    pub task: u64,
    /// As in the SQE.
    pub cmd_op: u32,
    /// As in the SQE.
    pub cmd: IoCmd,
    /// Completed exactly once.
    pub command: C,
}

/// What all devices of a driver share.
pub(crate) trait DeviceOwner<P: Platform>: Send + Sync + core::fmt::Debug {
    fn front_ends(&self) -> &[Arc<dyn FrontEnd>];
    /// The device's number is free.
    fn remove(&self, id: u32);
}

/// See the module.
#[derive(Debug)]
pub struct UblkDevice<P: Platform> {
    /// Of ADD_DEV; state and pid are in `state`.
    info: DevInfo,
    features: TagFeatures,
    queues: Vec<UblkQueue<P::Command>>,
    buffers: P::Buffers,
    transport: P::Transport,
    /// Requests in flight.
    busy: AtomicU32,
    /// An end waits for them.
    is_tearing_down: AtomicBool,
    state: Mutex<DeviceState>,
    /// Counts changes that somebody may wait for.
    event_seq: AtomicU32,
    owner: Arc<dyn DeviceOwner<P>>,
    weak_self: Weak<Self>,
}

impl<P: Platform> UblkDevice<P> {
    pub(crate) fn new(info: DevInfo, buffers: P::Buffers, owner: Arc<dyn DeviceOwner<P>>) -> Arc<Self> {
        let state = DeviceState {
            dev_state: state::DEAD,
            pid: -1,
            params: DeviceParams::empty(),
            is_started: false,
            is_open: false,
            is_deleted: false,
            had_server: false,
            teardown: None,
            is_stopping: false,
            is_close_pending: false,
            is_notifying_start: false,
            is_notifying_stop: false,
        };
        Arc::new_cyclic(|weak_self| Self {
            info,
            features: TagFeatures::of(info.flags),
            queues: (0..info.nr_hw_queues).map(|_| UblkQueue::new(info.queue_depth)).collect(),
            buffers,
            transport: P::Transport::default(),
            busy: AtomicU32::new(0),
            is_tearing_down: AtomicBool::new(false),
            state: Mutex::new(state),
            event_seq: AtomicU32::new(0),
            owner,
            weak_self: Weak::clone(weak_self),
        })
    }

    /// As GET_DEV_INFO tells it.
    #[must_use]
    pub fn info(&self) -> DevInfo {
        let state = self.state.lock();
        DevInfo { state: state.dev_state, ublksrv_pid: state.pid, ..self.info }
    }

    pub(crate) fn info_id(&self) -> u32 {
        self.info.dev_id
    }

    pub(crate) fn max_io_bytes(&self) -> u32 {
        self.info.max_io_buf_bytes
    }

    /// The shared file.
    pub fn buffers(&self) -> &P::Buffers {
        &self.buffers
    }

    /// How completions reach the server.
    pub fn transport(&self) -> &P::Transport {
        &self.transport
    }

    pub(crate) fn state(&self) -> uringlet_sys::lock::MutexGuard<'_, DeviceState> {
        self.state.lock()
    }

    /// Whether it was started and not stopped: with a server or, for a while, without.
    pub fn is_live(&self) -> bool {
        self.state().is_started
    }

    /// Takes every lock: for fork(2).
    pub(crate) fn lock_for_fork(&self) {
        self.state.lock_for_fork();
        self.queues.iter().for_each(|queue| queue.inner.lock_for_fork());
    }

    /// Undoes [`lock_for_fork`](Self::lock_for_fork).
    pub(crate) fn unlock_after_fork(&self) {
        self.queues.iter().for_each(|queue| queue.inner.unlock_after_fork());
        self.state.unlock_after_fork();
    }

    pub(crate) fn has(&self, feature: u64) -> bool {
        self.info.flags & feature != 0
    }

    fn ctx(&self, queue: u16) -> QueueCtx<'_, P::Buffers> {
        QueueCtx { buffers: &self.buffers, busy: &self.busy, features: self.features, queue }
    }

    fn queue(&self, queue: u16) -> Option<&UblkQueue<P::Command>> {
        self.queues.get(queue as usize)
    }

    /// Runs `f` with a plug, and unplugs it: both peers learn then what `f` has completed.
    fn plugged<R>(&self, f: impl FnOnce(&mut Plug) -> R) -> R {
        let mut plug = Plug::default();
        let result = f(&mut plug);
        self.unplug_all(&mut plug);
        result
    }

    fn unplug_all(&self, plug: &mut Plug) {
        plug.unplug_clients();
        if core::mem::take(&mut plug.has_completions) {
            self.transport.unplug();
        }
    }

    /// One step of a queue, under its lock, and then the actions that it has deferred.
    fn step<R>(
        &self,
        queue: u16,
        plug: &mut Plug,
        f: impl FnOnce(&mut Inner<P::Command>, &QueueCtx<'_, P::Buffers>, &mut DeferredActions<P::Command>) -> R,
    ) -> Option<R> {
        let mut actions = DeferredActions::new();
        let result = f(&mut self.queue(queue)?.inner.lock(), &self.ctx(queue), &mut actions);
        self.perform(&mut actions, plug);
        Some(result)
    }

    /// The same step of every queue, before anything of what they bring on.
    fn step_all(
        &self,
        mut f: impl FnMut(&mut Inner<P::Command>, &QueueCtx<'_, P::Buffers>, &mut DeferredActions<P::Command>),
    ) -> DeferredActions<P::Command> {
        let mut actions = DeferredActions::new();
        for (number, queue) in self.queues.iter().enumerate() {
            f(&mut queue.inner.lock(), &self.ctx(number as u16), &mut actions);
        }
        actions
    }

    /// Performs actions of steps, with a plug of their own. No lock is held.
    fn perform_unplugged(&self, mut actions: DeferredActions<P::Command>) {
        self.plugged(|plug| self.perform(&mut actions, plug));
    }

    /// Performs actions, and those that they bring on. No lock is held.
    fn perform(&self, actions: &mut DeferredActions<P::Command>, plug: &mut Plug) {
        while let Some(action) = actions.pop() {
            match action {
                DeferredAction::Complete(command, res) => {
                    command.complete(res);
                    plug.has_completions = true;
                }
                DeferredAction::Done { client, cookie, slot, result } => {
                    client.done(cookie, slot, result);
                    plug.add(client);
                }
                DeferredAction::SlotFreed { client, queue } => client.slot_freed(queue),
                DeferredAction::DispatchCopy { range, data, addr, epoch } => {
                    let bytes = self.buffers.copy_to_server(range, data, addr);
                    let Some(queue) = self.queue(range.queue) else { continue };
                    queue.inner.lock().dispatch_copy_done(&self.ctx(range.queue), range.tag, epoch, bytes, actions);
                }
                DeferredAction::CommitCopy(mut copy) => {
                    let bytes = self.copy_commit_data(&mut copy);
                    let CommitCopy { range, stash, .. } = copy;
                    let Some(queue) = self.queue(range.queue) else { continue };
                    queue.inner.lock().commit_copy_done(&self.ctx(range.queue), range.tag, bytes, stash, actions);
                }
            }
        }
        if self.is_tearing_down.load(SeqCst) && self.busy.load(SeqCst) == 0 {
            self.finish_if_idle(plug);
        }
    }

    /// Moves the data of a commit to where the client looks for it.
    fn copy_commit_data(&self, copy: &mut CommitCopy) -> Result<u32, Errno> {
        let CommitCopy { range, data, addr, op, requested, stash } = copy;
        if self.features.copies_data {
            return Ok(self.buffers.copy_from_server(*range, *data, *addr));
        }
        // Each piece begins at the slot's beginning: what was read before is kept aside, what is left to write moves there.
        let at = |offset, len| SlotRange { offset, len, ..*range };
        if *op == IoOp::Write {
            let mut rest = alloc::vec![0; (*requested - range.len) as usize];
            self.buffers.read(at(range.len, *requested - range.len), &mut rest)?;
            self.buffers.write(at(0, *requested - range.len), &rest)?;
            return Ok(range.len);
        }
        let before = stash.len();
        stash.resize(before + range.len as usize, 0);
        self.buffers.read(at(0, range.len), &mut stash[before..])?;
        if range.len == *requested {
            self.buffers.write(at(0, stash.len() as u32), stash)?;
        }
        Ok(range.len)
    }

    // The server's side ---------------------------------------------------------------------------------------------

    /// I/O commands of `/dev/ublkcN`. Each is completed later, or at once if it is refused.
    pub fn io_commands(&self, commands: impl IntoIterator<Item = IoCommand<P::Command>>) {
        self.plugged(|plug| commands.into_iter().for_each(|command| self.io_command(command, plug)));
    }

    fn io_command(&self, IoCommand { task, cmd_op, cmd, command }: IoCommand<P::Command>, plug: &mut Plug) {
        if self.queue(cmd.q_id).is_none() {
            plug.has_completions = true;
            return command.complete(-Errno::EINVAL.into_raw());
        }
        let nr = ioctl_nr(cmd_op);
        let is_ready = self.step(cmd.q_id, plug, |inner, ctx, actions| inner.command(ctx, nr, &cmd, (command, task), actions));
        if is_ready == Some(true) {
            self.state().had_server = true;
            self.notify();
        }
    }

    /// The ring of a slot_waiters command ends: the server is lost. Its command is completed, if it still waits.
    pub fn cancel_io_command(&self, cmd: &IoCmd) {
        self.plugged(|plug| {
            self.lose_server(Some(cmd), plug);
            self.step(cmd.q_id, plug, |inner, _, actions| inner.cancel_armed(cmd.tag, actions));
        });
    }

    /// Opens the char device.
    ///
    /// # Errors
    /// `EBUSY` it is open; `ENOENT` it is deleted.
    pub fn open(&self) -> Result<(), Errno> {
        let mut state = self.state();
        match (state.is_deleted, state.is_open) {
            (true, _) => Err(Errno::ENOENT),
            (_, true) => Err(Errno::EBUSY),
            (false, false) => {
                state.is_open = true;
                Ok(())
            }
        }
    }

    /// The char device's last descriptor was closed.
    pub fn close(&self) {
        self.plugged(|plug| self.lose_server(None, plug));
        let actions = {
            let mut state = self.state();
            state.is_close_pending = true;
            let mut actions = DeferredActions::new();
            if state.teardown.is_none() {
                self.finish_close(&mut state, &mut actions);
            }
            actions
        };
        self.perform_unplugged(actions);
        self.notify();
        self.remove_if_gone();
    }

    /// The next server may open and fetch.
    fn finish_close(&self, state: &mut DeviceState, actions: &mut DeferredActions<P::Command>) {
        state.is_close_pending = false;
        state.is_open = false;
        self.reset_all(actions);
    }

    fn reset_all(&self, actions: &mut DeferredActions<P::Command>) {
        self.queues.iter().for_each(|queue| queue.inner.lock().reset(actions));
    }

    /// Whether every tag was fetched, by a server that is there. It stays so as long as `state` is locked.
    pub(crate) fn is_ready(&self) -> bool {
        self.queues.iter().all(|queue| queue.inner.lock().is_ready())
    }

    /// Whether an end waits for requests in flight: for tests.
    #[cfg(test)]
    pub(crate) fn is_tearing_down(&self) -> bool {
        self.is_tearing_down.load(SeqCst)
    }

    /// Something has changed that somebody may wait for.
    pub(crate) fn notify(&self) {
        self.event_seq.fetch_add(1, AcqRel);
        futex_wake(&self.event_seq, u32::MAX);
    }

    /// Waits until `is_so`, or `cancelled` is set, after which somebody calls [`notify`](Self::notify).
    ///
    /// # Errors
    /// `EINTR`, in both senses.
    pub(crate) fn wait(&self, cancelled: &AtomicBool, is_so: impl Fn(&Self) -> bool) -> Result<(), Errno> {
        loop {
            let seen = self.event_seq.load(Acquire);
            if is_so(self) {
                return Ok(());
            }
            if cancelled.load(Acquire) {
                return Err(Errno::EINTR);
            }
            if futex_wait(&self.event_seq, seen, u64::MAX) == Err(Errno::EINTR) {
                return Err(Errno::EINTR);
            }
        }
    }

    fn remove_if_gone(&self) {
        let is_gone = {
            let state = self.state();
            state.is_deleted && !state.is_open && state.teardown.is_none() && !state.is_notifying_stop
        };
        if is_gone {
            self.owner.remove(self.info.dev_id);
        }
    }

    /// DEL_DEV, after the device was stopped: its number is free when the char device is closed.
    pub(crate) fn delete(&self) {
        self.state().is_deleted = true;
        self.remove_if_gone();
    }
}

impl<P: Platform> BlockDevice for UblkDevice<P> {
    fn id(&self) -> u32 {
        self.info.dev_id
    }

    fn limits(&self) -> BlockLimits {
        self.queues.first().map(|queue| queue.inner.lock().limits).unwrap_or_default()
    }

    fn queues(&self) -> (u16, u16) {
        (self.info.nr_hw_queues, self.info.queue_depth)
    }

    fn alloc_slot(&self, queue: u16, client: &Arc<dyn BlockClient>) -> Option<IoSlot> {
        let queue = queue % self.info.nr_hw_queues;
        self.queue(queue)?.inner.lock().alloc_slot(queue, client)
    }

    fn free_slot(&self, slot: IoSlot) {
        self.plugged(|plug| self.step(slot.queue, plug, |inner, _, actions| inner.free_slot(&slot, actions)));
    }

    fn busy_poll(&self, enough: &mut dyn FnMut() -> bool) {
        self.transport.busy_poll(enough);
    }

    fn slot_extent(&self, slot: &IoSlot) -> SlotExtent {
        self.buffers.slot_extent(slot.queue, slot.tag)
    }

    fn read(&self, slot: &IoSlot, at: u32, bytes: &mut [u8]) -> Result<(), Errno> {
        self.buffers.read(slot_range(slot, at, bytes.len())?, bytes)
    }

    fn write(&self, slot: &IoSlot, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        self.buffers.write(slot_range(slot, at, bytes.len())?, bytes)
    }

    fn submit(&self, slot: IoSlot, request: BlockRequest, client: &Arc<dyn BlockClient>, cookie: u64) {
        let tag_io = TagIo::new(request, Arc::clone(client), cookie);
        let mut plug = Plug::default();
        self.step(slot.queue, &mut plug, |inner, ctx, actions| inner.submit(ctx, slot.tag, tag_io, actions));
        // The server's part waits for the front end's unplug.
        plug.unplug_clients();
    }

    fn unplug(&self) {
        self.transport.unplug();
    }
}

/// What a step has completed and the peers may not know of yet: as the plug of the kernel's block layer.
#[derive(Debug, Default)]
struct Plug {
    /// Clients with finished requests; the first one costs no allocation.
    client: Option<Arc<dyn BlockClient>>,
    more: Vec<Arc<dyn BlockClient>>,
    /// Commands of the server were completed.
    has_completions: bool,
}

impl Plug {
    fn add(&mut self, client: Arc<dyn BlockClient>) {
        if self.client.is_none() {
            self.client = Some(client);
        } else if !self.client.iter().chain(&self.more).any(|known| core::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&client))) {
            self.more.push(client);
        }
    }

    fn unplug_clients(&mut self) {
        self.client.take().into_iter().chain(self.more.drain(..)).for_each(|client| client.unplug());
    }
}

/// A piece of a slot, if it has that much room.
fn slot_range(slot: &IoSlot, at: u32, len: usize) -> Result<SlotRange, Errno> {
    let fits = u64::from(at) + len as u64 <= 1 << io::TAG_SHIFT;
    if fits { Ok(SlotRange { queue: slot.queue, tag: slot.tag, offset: at, len: len as u32 }) } else { Err(Errno::EINVAL) }
}
