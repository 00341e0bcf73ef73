//! One device, from ADD_DEV until its number is free again. See README.md.
//!
//! Whether a teardown may finish depends on two atomics, which two threads write in opposite order:
//!
//! ```text
//!   begin_teardown, `state` locked                    perform, after the last request's done()
//!     is_tearing_down = true                            in_flight: 1 -> 0
//!     every queue: mode Hold or Fail                    is_tearing_down?
//!   `state` unlocked                                      is_idle: finish_if_idle
//!   perform
//!     is_idle: in_flight + 0, finish_if_idle
//! ```
//! `is_idle` adds 0, so the two changes of in_flight have an order: the later thread sees what the
//! earlier one did before, and finishes the teardown. If both do, the second one finds no teardown
//! under `state`. A queue that is still open while `is_tearing_down` is set can dispatch one more
//! request, even after in_flight was 0 for a moment. So `finish_if_idle` asks again under `state`,
//! which `begin_teardown` holds until every queue is closed. After that only requests that fail at
//! once are counted, and the thread that fails one looks again. Model:
//! `stop_races_with_last_commits`.
//!
//! A request is in flight until its client's `done` has returned: a teardown that finished earlier
//! would run inside one `done`, and its front ends would wait for clients that have yet to be told.

mod block;
mod lifecycle;
mod plug;
mod state;

use crate::deferred::{CommitCopy, DeferredAction, DeferredActions};
use crate::frontend::{FrontEnd, IoOp};
use crate::platform::{IoBuffers, Platform, ServerCommand, SlotRange, Transport};
use crate::queue::{QueueCtx, QueueInner, UblkQueue};
use crate::tag::TagFeatures;
use crate::wire::DeviceRecord;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use plug::Plug;
use state::DeviceState;
use uringlet_abi::ublk::{DevInfo, IoCmd, ioctl_nr};
use uringlet_sys::Errno;
use uringlet_sys::lock::{Mutex, futex_wait, futex_wake};
use uringlet_sys::sync::{AtomicBool, AtomicU32};

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

/// What a device needs of its driver.
pub(crate) trait DeviceOwner<P: Platform>: Send + Sync + core::fmt::Debug {
    fn front_ends(&self) -> &[Arc<dyn FrontEnd>];
    /// Removes the device: its number is free.
    fn remove(&self, id: u32);
}

/// See the module.
#[derive(Debug)]
pub struct UblkDevice<P: Platform> {
    /// As of ADD_DEV; the current state and pid are in `state`.
    info: DevInfo,
    features: TagFeatures,
    queues: Vec<UblkQueue<P::Command>>,
    buffers: P::Buffers,
    transport: P::Transport,
    /// Requests that the server has, or is about to get, and those whose client has yet to be told.
    in_flight: AtomicU32,
    /// A teardown waits until no request is in flight.
    is_tearing_down: AtomicBool,
    state: Mutex<DeviceState>,
    /// Counts changes that control commands wait for: the futex word.
    event_seq: AtomicU32,
    owner: Arc<dyn DeviceOwner<P>>,
    weak_self: Weak<Self>,
}

impl<P: Platform> UblkDevice<P> {
    pub(crate) fn new(info: DevInfo, buffers: P::Buffers, owner: Arc<dyn DeviceOwner<P>>) -> Arc<Self> {
        Arc::new_cyclic(|weak_self| Self {
            info,
            features: TagFeatures::of(info.flags),
            queues: (0..info.nr_hw_queues).map(|_| UblkQueue::new(info.queue_depth)).collect(),
            buffers,
            transport: P::Transport::default(),
            in_flight: AtomicU32::new(0),
            is_tearing_down: AtomicBool::new(false),
            state: Mutex::new(DeviceState::new()),
            event_seq: AtomicU32::new(0),
            owner,
            weak_self: Weak::clone(weak_self),
        })
    }

    /// The reply to GET_DEV_INFO.
    #[must_use]
    pub fn info(&self) -> DevInfo {
        let state = self.state.lock();
        DevInfo { state: state.dev_state, ublksrv_pid: state.pid, ..self.info }
    }

    /// What another broker needs to adopt it. `None`: it is not live.
    #[must_use]
    pub fn record(&self) -> Option<DeviceRecord> {
        let state = self.state.lock();
        let info = DevInfo { state: state.dev_state, ublksrv_pid: state.pid, ..self.info };
        state.is_started.then(|| DeviceRecord { info, params: *state.params.bytes() })
    }

    pub(crate) fn info_id(&self) -> u32 {
        self.info.dev_id
    }

    pub(crate) fn max_io_bytes(&self) -> u32 {
        self.info.max_io_buf_bytes
    }

    /// The memory shared with the server.
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

    /// Whether the device was started and not stopped. Its server may be lost for the moment.
    pub fn is_live(&self) -> bool {
        self.state().is_started
    }

    /// Takes every lock of the device: for fork(2).
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
        QueueCtx { buffers: &self.buffers, in_flight: &self.in_flight, features: self.features, queue }
    }

    fn queue(&self, queue: u16) -> Option<&UblkQueue<P::Command>> {
        self.queues.get(queue as usize)
    }

    /// Runs `f` with a plug and then unplugs it: both peers learn what `f` has completed.
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

    /// One step of a queue under its lock, then the actions that it has deferred.
    fn step<R>(
        &self,
        queue: u16,
        plug: &mut Plug,
        f: impl FnOnce(&mut QueueInner<P::Command>, &QueueCtx<'_, P::Buffers>, &mut DeferredActions<P::Command>) -> R,
    ) -> Option<R> {
        let mut actions = DeferredActions::new();
        let result = f(&mut self.queue(queue)?.inner.lock(), &self.ctx(queue), &mut actions);
        self.perform(&mut actions, plug);
        Some(result)
    }

    /// The same step on every queue. Returns the deferred actions of all.
    fn step_all(
        &self,
        mut f: impl FnMut(&mut QueueInner<P::Command>, &QueueCtx<'_, P::Buffers>, &mut DeferredActions<P::Command>),
    ) -> DeferredActions<P::Command> {
        let mut actions = DeferredActions::new();
        for (number, queue) in self.queues.iter().enumerate() {
            f(&mut queue.inner.lock(), &self.ctx(number as u16), &mut actions);
        }
        actions
    }

    /// Performs deferred actions with a plug of their own. No lock is held.
    fn perform_and_unplug(&self, mut actions: DeferredActions<P::Command>) {
        self.plugged(|plug| self.perform(&mut actions, plug));
    }

    /// Performs deferred actions, and those that they add. No lock is held.
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
                    self.in_flight.fetch_sub(1, SeqCst);
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
        if self.is_tearing_down.load(SeqCst) && self.is_idle() {
            self.finish_if_idle(plug);
        }
    }

    /// Whether no request is in flight: see the module.
    fn is_idle(&self) -> bool {
        self.in_flight.fetch_add(0, SeqCst) == 0
    }

    /// Copies a commit's data to where the client expects it. Returns the number of bytes.
    fn copy_commit_data(&self, copy: &mut CommitCopy) -> Result<u32, Errno> {
        let CommitCopy { range, data, addr, op, requested, stash } = copy;
        if self.features.copies_data {
            return Ok(self.buffers.copy_from_server(*range, *data, *addr));
        }
        // USER_COPY: the server uses the slot's beginning for each piece. READ data of earlier
        // pieces goes into the stash; the rest of a WRITE moves to the beginning.
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

    // The server --------------------------------------------------------------------------------

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

    /// The ring of a waiting command ends, so the server is lost. The command is completed if it
    /// still waits.
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
        self.perform_and_unplug(actions);
        self.notify();
        self.remove_if_gone();
    }

    /// Allows the next server to open and fetch.
    fn finish_close(&self, state: &mut DeviceState, actions: &mut DeferredActions<P::Command>) {
        state.is_close_pending = false;
        state.is_open = false;
        self.reset_all(actions);
    }

    fn reset_all(&self, actions: &mut DeferredActions<P::Command>) {
        self.queues.iter().for_each(|queue| queue.inner.lock().reset(actions));
    }

    /// Whether every tag was fetched by a server that is not lost. Cannot change while `state` is
    /// locked.
    pub(crate) fn is_ready(&self) -> bool {
        self.queues.iter().all(|queue| queue.inner.lock().is_ready())
    }

    /// Whether a teardown waits for requests in flight: for tests.
    #[cfg(test)]
    pub(crate) fn is_tearing_down(&self) -> bool {
        self.is_tearing_down.load(SeqCst)
    }

    /// Wakes the control commands that wait for a change of the device.
    pub(crate) fn notify(&self) {
        self.event_seq.fetch_add(1, AcqRel);
        futex_wake(&self.event_seq, u32::MAX);
    }

    /// Waits until `is_so` holds, or until `cancelled` is set. The canceller calls
    /// [`notify`](Self::notify) after it has set the flag.
    ///
    /// # Errors
    /// `EINTR`: a signal, or `cancelled`.
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

    /// DEL_DEV, after the device was stopped. Its number is free once the char device is closed.
    pub(crate) fn delete(&self) {
        let mut actions = DeferredActions::new();
        {
            let mut state = self.state();
            state.is_deleted = true;
            // Commands that are still on their way end, too.
            self.cancel_all(&mut actions);
        }
        self.perform_and_unplug(actions);
        self.remove_if_gone();
    }
}
