//! One device: its life, from ADD_DEV to the day its number is free again. See README.md.

mod ends;

use crate::actions::{Action, Actions, Landing};
use crate::frontend::{BlockClient, BlockDevice, BlockLimits, BlockRequest, FrontEnd, IoOp, IoSlot, SlotExtent};
use crate::params::DeviceParams;
use crate::platform::{IoBuffers, Platform, ServerCommand, SlotRange, Transport};
use crate::queue::{Cx, Inner, Queue};
use crate::tag::{Rules, Work};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use uringlet_abi::ublk::{DevInfo, IoCmd, io, ioctl_nr, state};
use uringlet_sys::Errno;
use uringlet_sys::lock::{Mutex, futex_wait, futex_wake};
use uringlet_sys::sync::{AtomicBool, AtomicU32};

/// What a device becomes when its last request in flight is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stop,
    Quiesce,
    FailIo,
}

/// What changes in a device's life.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) state: u16,
    pub(crate) pid: i32,
    pub(crate) params: DeviceParams,
    /// Front ends know it.
    pub(crate) is_started: bool,
    /// The char device is open.
    pub(crate) is_open: bool,
    pub(crate) is_deleted: bool,
    /// A whole queue was fetched since ADD_DEV or START_USER_RECOVERY.
    pub(crate) had_server: bool,
    ending: Option<End>,
    /// STOP_DEV has come: front ends write what they keep, requests still go to the server. Nothing but an end follows.
    is_stopping: bool,
    /// The char device was closed meanwhile.
    is_closing: bool,
    /// Front ends are being told of the beginning: of an end after that.
    is_arriving: bool,
    /// Front ends are being told of the end, or will be.
    is_leaving: bool,
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
pub(crate) trait Owner<P: Platform>: Send + Sync + core::fmt::Debug {
    fn front_ends(&self) -> &[Arc<dyn FrontEnd>];
    /// The device's number is free.
    fn forget(&self, id: u32);
}

/// See the module.
#[derive(Debug)]
pub struct UblkDevice<P: Platform> {
    /// Of ADD_DEV; state and pid are in `life`.
    info: DevInfo,
    rules: Rules,
    queues: Vec<Queue<P::Command>>,
    buffers: P::Buffers,
    transport: P::Transport,
    /// Requests in flight.
    busy: AtomicU32,
    /// An end waits for them.
    is_ending: AtomicBool,
    life: Mutex<Life>,
    /// Counts changes that somebody may wait for.
    news: AtomicU32,
    owner: Arc<dyn Owner<P>>,
    me: Weak<Self>,
}

impl<P: Platform> UblkDevice<P> {
    pub(crate) fn new(info: DevInfo, buffers: P::Buffers, owner: Arc<dyn Owner<P>>) -> Arc<Self> {
        let life = Life {
            state: state::DEAD,
            pid: -1,
            params: DeviceParams::none(),
            is_started: false,
            is_open: false,
            is_deleted: false,
            had_server: false,
            ending: None,
            is_stopping: false,
            is_closing: false,
            is_arriving: false,
            is_leaving: false,
        };
        Arc::new_cyclic(|me| Self {
            info,
            rules: Rules::of(info.flags),
            queues: (0..info.nr_hw_queues).map(|_| Queue::new(info.queue_depth)).collect(),
            buffers,
            transport: P::Transport::default(),
            busy: AtomicU32::new(0),
            is_ending: AtomicBool::new(false),
            life: Mutex::new(life),
            news: AtomicU32::new(0),
            owner,
            me: Weak::clone(me),
        })
    }

    /// As GET_DEV_INFO tells it.
    #[must_use]
    pub fn info(&self) -> DevInfo {
        let life = self.life.lock();
        DevInfo { state: life.state, ublksrv_pid: life.pid, ..self.info }
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

    pub(crate) fn life(&self) -> uringlet_sys::lock::MutexGuard<'_, Life> {
        self.life.lock()
    }

    /// Whether it was started and not stopped: with a server or, for a while, without.
    pub fn is_live(&self) -> bool {
        self.life().is_started
    }

    /// Takes every lock: for fork(2).
    pub(crate) fn lock_for_fork(&self) {
        self.life.lock_for_fork();
        self.queues.iter().for_each(|queue| queue.inner.lock_for_fork());
    }

    /// Undoes [`hold`](Self::lock_for_fork).
    pub(crate) fn release_all(&self) {
        self.queues.iter().for_each(|queue| queue.inner.unlock_after_fork());
        self.life.unlock_after_fork();
    }

    pub(crate) fn has(&self, feature: u64) -> bool {
        self.info.flags & feature != 0
    }

    fn cx(&self, queue: u16) -> Cx<'_, P::Buffers> {
        Cx { buffers: &self.buffers, busy: &self.busy, rules: self.rules, queue }
    }

    fn queue(&self, queue: u16) -> Option<&Queue<P::Command>> {
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
        f: impl FnOnce(&mut Inner<P::Command>, &Cx<'_, P::Buffers>, &mut Actions<P::Command>) -> R,
    ) -> Option<R> {
        let mut actions = Actions::new();
        let result = f(&mut self.queue(queue)?.inner.lock(), &self.cx(queue), &mut actions);
        self.perform(&mut actions, plug);
        Some(result)
    }

    /// The same step of every queue, before anything of what they bring on.
    fn step_all(&self, mut f: impl FnMut(&mut Inner<P::Command>, &Cx<'_, P::Buffers>, &mut Actions<P::Command>)) -> Actions<P::Command> {
        let mut actions = Actions::new();
        for (number, queue) in self.queues.iter().enumerate() {
            f(&mut queue.inner.lock(), &self.cx(number as u16), &mut actions);
        }
        actions
    }

    /// Performs actions of steps, with a plug of their own. No lock is held.
    fn perform_unplugged(&self, mut actions: Actions<P::Command>) {
        self.plugged(|plug| self.perform(&mut actions, plug));
    }

    /// Performs actions, and those that they bring on. No lock is held.
    fn perform(&self, actions: &mut Actions<P::Command>, plug: &mut Plug) {
        while let Some(action) = actions.pop() {
            match action {
                Action::Complete(command, res) => {
                    command.complete(res);
                    plug.has_completions = true;
                }
                Action::Done { client, cookie, slot, result } => {
                    client.done(cookie, slot, result);
                    plug.add(client);
                }
                Action::Free { client, queue } => client.slot_freed(queue),
                Action::Copy { span, data, addr, epoch } => {
                    let bytes = self.buffers.copy_to_server(span, data, addr);
                    let Some(queue) = self.queue(span.queue) else { continue };
                    queue.inner.lock().copied(&self.cx(span.queue), span.tag, epoch, bytes, actions);
                }
                Action::Land(mut landing) => {
                    let bytes = self.land(&mut landing);
                    let Landing { span, stash, .. } = landing;
                    let Some(queue) = self.queue(span.queue) else { continue };
                    queue.inner.lock().landed(&self.cx(span.queue), span.tag, bytes, stash, actions);
                }
            }
        }
        if self.is_ending.load(SeqCst) && self.busy.load(SeqCst) == 0 {
            self.settle(plug);
        }
    }

    /// Moves the data of a commit to where the client looks for it.
    fn land(&self, landing: &mut Landing) -> Result<u32, Errno> {
        let Landing { span, data, addr, op, asked, stash } = landing;
        if self.rules.copies {
            return Ok(self.buffers.copy_from_server(*span, *data, *addr));
        }
        // Each piece begins at the slot's beginning: what was read before is kept aside, what is left to write moves there.
        let at = |offset, len| SlotRange { offset, len, ..*span };
        if *op == IoOp::Write {
            let mut rest = alloc::vec![0; (*asked - span.len) as usize];
            self.buffers.read(at(span.len, *asked - span.len), &mut rest)?;
            self.buffers.write(at(0, *asked - span.len), &rest)?;
            return Ok(span.len);
        }
        let before = stash.len();
        stash.resize(before + span.len as usize, 0);
        self.buffers.read(at(0, span.len), &mut stash[before..])?;
        if span.len == *asked {
            self.buffers.write(at(0, stash.len() as u32), stash)?;
        }
        Ok(span.len)
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
        let is_ready = self.step(cmd.q_id, plug, |inner, cx, actions| inner.command(cx, nr, &cmd, (command, task), actions));
        if is_ready == Some(true) {
            self.life().had_server = true;
            self.tell();
        }
    }

    /// The ring of a waiting command ends: the server is lost. Its command is completed, if it still waits.
    pub fn cancel_io_command(&self, cmd: &IoCmd) {
        self.plugged(|plug| {
            self.lose_server(Some(cmd), plug);
            self.step(cmd.q_id, plug, |inner, _, actions| inner.cancel_one(cmd.tag, actions));
        });
    }

    /// Opens the char device.
    ///
    /// # Errors
    /// `EBUSY` it is open; `ENOENT` it is deleted.
    pub fn open(&self) -> Result<(), Errno> {
        let mut life = self.life();
        match (life.is_deleted, life.is_open) {
            (true, _) => Err(Errno::ENOENT),
            (_, true) => Err(Errno::EBUSY),
            (false, false) => {
                life.is_open = true;
                Ok(())
            }
        }
    }

    /// The char device's last descriptor was closed.
    pub fn close(&self) {
        self.plugged(|plug| self.lose_server(None, plug));
        let actions = {
            let mut life = self.life();
            life.is_closing = true;
            let mut actions = Actions::new();
            if life.ending.is_none() {
                self.finish_close(&mut life, &mut actions);
            }
            actions
        };
        self.perform_unplugged(actions);
        self.tell();
        self.forget_if_gone();
    }

    /// The next server may open and fetch.
    fn finish_close(&self, life: &mut Life, actions: &mut Actions<P::Command>) {
        life.is_closing = false;
        life.is_open = false;
        self.reset_all(actions);
    }

    fn reset_all(&self, actions: &mut Actions<P::Command>) {
        self.queues.iter().for_each(|queue| queue.inner.lock().reset(actions));
    }

    /// Whether every tag was fetched, by a server that is there. It stays so as long as `life` is locked.
    pub(crate) fn is_ready(&self) -> bool {
        self.queues.iter().all(|queue| queue.inner.lock().is_ready())
    }

    /// Whether an end waits for requests in flight: for tests.
    #[cfg(test)]
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(SeqCst)
    }

    /// Something has changed that somebody may wait for.
    pub(crate) fn tell(&self) {
        self.news.fetch_add(1, AcqRel);
        futex_wake(&self.news, u32::MAX);
    }

    /// Waits until `is_so`, or `gone` is set, after which somebody calls [`tell`](Self::tell).
    ///
    /// # Errors
    /// `EINTR`, in both senses.
    pub(crate) fn wait(&self, gone: &AtomicBool, is_so: impl Fn(&Self) -> bool) -> Result<(), Errno> {
        loop {
            let seen = self.news.load(Acquire);
            if is_so(self) {
                return Ok(());
            }
            if gone.load(Acquire) {
                return Err(Errno::EINTR);
            }
            if futex_wait(&self.news, seen, u64::MAX) == Err(Errno::EINTR) {
                return Err(Errno::EINTR);
            }
        }
    }

    fn forget_if_gone(&self) {
        let is_gone = {
            let life = self.life();
            life.is_deleted && !life.is_open && life.ending.is_none() && !life.is_leaving
        };
        if is_gone {
            self.owner.forget(self.info.dev_id);
        }
    }

    /// DEL_DEV, after the device was stopped: its number is free when the char device is closed.
    pub(crate) fn delete(&self) {
        self.life().is_deleted = true;
        self.forget_if_gone();
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
        self.queue(queue)?.inner.lock().take(queue, client)
    }

    fn free_slot(&self, slot: IoSlot) {
        self.plugged(|plug| self.step(slot.queue, plug, |inner, _, actions| inner.release(&slot, actions)));
    }

    fn busy_poll(&self, enough: &mut dyn FnMut() -> bool) {
        self.transport.busy_poll(enough);
    }

    fn slot_extent(&self, slot: &IoSlot) -> SlotExtent {
        self.buffers.slot_extent(slot.queue, slot.tag)
    }

    fn read(&self, slot: &IoSlot, at: u32, bytes: &mut [u8]) -> Result<(), Errno> {
        self.buffers.read(span(slot, at, bytes.len())?, bytes)
    }

    fn write(&self, slot: &IoSlot, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        self.buffers.write(span(slot, at, bytes.len())?, bytes)
    }

    fn submit(&self, slot: IoSlot, request: BlockRequest, client: &Arc<dyn BlockClient>, cookie: u64) {
        let work = Work::new(request, Arc::clone(client), cookie);
        let mut plug = Plug::default();
        self.step(slot.queue, &mut plug, |inner, cx, actions| inner.submit(cx, slot.tag, work, actions));
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
fn span(slot: &IoSlot, at: u32, len: usize) -> Result<SlotRange, Errno> {
    let fits = u64::from(at) + len as u64 <= 1 << io::TAG_SHIFT;
    if fits { Ok(SlotRange { queue: slot.queue, tag: slot.tag, offset: at, len: len as u32 }) } else { Err(Errno::EINVAL) }
}
