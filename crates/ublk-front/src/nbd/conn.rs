//! A connection's shared half: commands in flight, and replies on their way out.
//!
//! ```text
//!   reader (one thread a connection)         the thread that completes a device's request
//!     header, data in --> submit ----------->   done(): data out of the slot, slot freed
//!     blocks in poll(2) <-- wake_eventfd ----   reply into `out`; sends it unless a thread does already
//! ```
//! - `ConnState` has one lock. Under it there is no system call but the write to the eventfd, and
//!   no call into the device.
//! - At most one thread sends, marked by `Sending::Busy`; others only put their reply into `out`.
//! - The reader corks `out` while it handles the input it has read, and uncorks it before it
//!   blocks: the replies to a batch of commands leave together.
//! - `Stalled` means that the socket is full. From then on the reader sends, when poll(2) reports
//!   room. A slow client therefore blocks no thread that completes requests and holds no slot: its
//!   data waits in memory, at most [`READ_BYTES_MAX`] bytes.
//! - A dead connection takes no replies. Its requests still complete in `done()` and free their
//!   slots.

use super::exports::{Export, ExportUser};
use super::outbox::{Outbox, ReplyPart};
use super::wire::{command, data_chunk, error_chunk, error_number, simple_reply};
use super::{handshake::Negotiated, wire};
use crate::io_cookie::IoCookie;
use crate::sync::lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno as IoErrno;
use rustix::net::{Shutdown, shutdown};
use slab::Slab;
use std::sync::{Arc, Mutex, Weak};
use uringlet_sys::Errno;
use uringlet_ublk::adaptive_spin::{AdaptiveSpin, SpinBudget};
use uringlet_ublk::frontend::{BlockClient, IoSlot, SECTOR};

/// Most commands of one connection in flight, including those whose replies are unsent.
pub(super) const COMMANDS_MAX: usize = 256;
/// Most bytes of reads in flight; a single read of any length is always admitted.
pub(super) const READ_BYTES_MAX: usize = wire::PAYLOAD_MAX as usize;

/// While spinning, the reader checks for input once in so many rounds, as that is a system call.
const INPUT_POLL_INTERVAL: u32 = 8;

/// The connection cannot be used any more.
#[derive(Debug)]
pub(super) struct Disconnected;

/// How the data of a read is returned.
#[derive(Debug)]
pub(super) enum PendingRead {
    /// Each request's data in a chunk of its own, as it completes.
    Chunks,
    /// One chunk for the whole command: its data so far.
    Chunk(Vec<u8>),
    /// A simple reply: its data so far.
    Simple(Vec<u8>),
}

/// A command in flight.
#[derive(Debug)]
pub(super) struct NbdCommand {
    /// The client's cookie for it.
    pub(super) cookie: u64,
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// Device requests that have not completed.
    pub(super) remaining: u32,
    /// The first error.
    pub(super) error: Option<Errno>,
    /// It changes the device, so each of its requests holds the export's RMW lock shared.
    pub(super) is_change: bool,
    /// Set for reads.
    pub(super) read: Option<PendingRead>,
    /// Its part of [`READ_BYTES_MAX`] that is still reserved.
    pub(super) reserved: usize,
}

/// What the reader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// Bytes from the client.
    Input,
    /// An event since this value of `event_seq`.
    Event(u64),
}

/// Whether the reader waits for a free slot. The device notifies a client once for each refused
/// allocation.
///
/// ```text
///  reader: slot()                            the thread that frees a slot: slot_freed()
///  slot_wait = Requested, seen = event_seq
///  alloc_slot(): none, now a waiter
///                                            the device removes the waiter from its list
///                                            slot_wait = Notified, event_seq += 1, wakes the reader
///  slot_wait is Notified: no wait
///  alloc_slot() again
/// ```
/// `Requested` is stored before the allocation, or it could overwrite a notification that arrives
/// between the refusal and the wait. A connection that dies while `Notified`, or is notified when
/// dead, passes the notification on: otherwise the next waiter would sleep beside a free slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SlotWait {
    #[default]
    Idle,
    Requested,
    Notified,
}

#[derive(Debug, Default)]
pub(super) struct ConnState {
    pub(super) commands: Slab<NbdCommand>,
    pub(super) out: Outbox,
    /// Reserved bytes of [`READ_BYTES_MAX`].
    pub(super) reserved_bytes: usize,
    /// Counts completed commands, sent replies and slot notifications.
    pub(super) event_seq: u64,
    pub(super) is_stopping: bool,
    is_dead: bool,
    slot_wait: SlotWait,
    waiting_for: Option<WaitFor>,
}

impl ConnState {
    /// Whether the state has what the reader waits for.
    const fn is_ready_for(&self, want: WaitFor) -> bool {
        match want {
            WaitFor::Input => self.is_stopping,
            WaitFor::Event(seen) => self.event_seq != seen,
        }
    }

    /// Returns `bytes` of the reservation; the reader may wait for that.
    fn release_bytes(&mut self, bytes: usize) {
        self.reserved_bytes -= bytes;
        self.event_seq += 1;
    }
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    wake_eventfd: OwnedFd,
    pub(super) export: Arc<Export>,
    pub(super) is_structured: bool,
    pub(super) has_allocation: bool,
    pub(super) queue: u16,
    state: Mutex<ConnState>,
    /// Of the reader.
    spin: Mutex<AdaptiveSpin>,
    weak_self: Weak<Self>,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd, negotiated: Negotiated) -> Result<Arc<Self>, IoErrno> {
        let state = Mutex::new(ConnState { out: Outbox::corked(), ..ConnState::default() });
        let wake_eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let Negotiated { export, is_structured, has_allocation } = negotiated;
        let queue = export.pick_queue();
        Ok(Arc::new_cyclic(|weak_self| Self {
            socket,
            wake_eventfd,
            export,
            is_structured,
            has_allocation,
            queue,
            state,
            spin: Mutex::default(),
            weak_self: Weak::clone(weak_self),
        }))
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, ConnState> {
        lock(&self.state)
    }

    /// Closes the connection: queued and later replies are dropped.
    pub(super) fn shut_down(&self) {
        // The descriptor stays open until the last request completes; the client learns of the end
        // now.
        let _ = shutdown(&self.socket, Shutdown::Both);
        let was_notified = {
            let mut state = self.state();
            state.is_dead = true;
            state.out.clear();
            std::mem::take(&mut state.slot_wait) == SlotWait::Notified
        };
        if was_notified {
            self.pass_on_slot();
        }
    }

    /// Passes a slot notification on to the device's next waiter.
    fn pass_on_slot(&self) {
        if let Some(weak_self) = self.weak_self.upgrade()
            && let Some(slot) = self.export.device.alloc_slot(self.queue, &(weak_self as Arc<dyn BlockClient>))
        {
            self.export.device.free_slot(slot);
        }
    }

    /// Allocates a slot, waiting for one if necessary.
    pub(super) fn slot(&self, client: &Arc<dyn BlockClient>) -> Result<IoSlot, Disconnected> {
        loop {
            // Before the allocation: the notification may arrive at once.
            let seen = {
                let mut state = self.state();
                state.slot_wait = SlotWait::Requested;
                state.event_seq
            };
            if let Some(slot) = self.export.device.alloc_slot(self.queue, client) {
                self.state().slot_wait = SlotWait::Idle;
                return Ok(slot);
            }
            let mut seen = seen;
            while self.state().slot_wait == SlotWait::Requested {
                self.wait(WaitFor::Event(seen), None)?;
                seen = self.state().event_seq;
            }
        }
    }

    fn wake(&self, state: &mut ConnState, matters: impl FnOnce(WaitFor) -> bool) {
        if let Some(want) = state.waiting_for
            && matters(want)
        {
            state.waiting_for = None;
            // EAGAIN: the eventfd is readable already.
            let _ = rustix::io::write(&self.wake_eventfd, &1_u64.to_ne_bytes());
        }
    }

    fn wake_on_event(&self, state: &mut ConnState) {
        let event_seq = state.event_seq;
        self.wake(state, |want| matches!(want, WaitFor::Event(seen) if seen != event_seq));
    }

    /// Queues a reply. On a dead connection it only returns the reservation.
    fn queue_reply(&self, state: &mut ConnState, part: ReplyPart) {
        if state.is_dead {
            state.release_bytes(part.reserved);
        } else {
            state.out.push(part);
        }
    }

    /// Replies to a command that needs no request to the device.
    pub(super) fn reply(&self, bytes: Vec<u8>) {
        let mut state = self.state();
        self.queue_reply(&mut state, ReplyPart::plain(bytes));
    }

    /// Replies to a read whose bytes are reserved.
    pub(super) fn reply_data(&self, cookie: u64, offset: u64, data: Vec<u8>) {
        let head =
            if self.is_structured { data_chunk(cookie, wire::chunk::DONE, offset, data.len() as u32) } else { simple_reply(cookie, 0) };
        let mut state = self.state();
        self.queue_reply(&mut state, ReplyPart::with_data(head, data));
    }

    /// Publishes requests and sends replies, then runs `f`, which may block.
    pub(super) fn uncorked<R>(&self, f: impl FnOnce() -> R) -> R {
        self.export.device.unplug();
        self.state().out.uncork();
        self.flush();
        let result = f();
        self.state().out.cork();
        result
    }

    /// Sends the queued replies, unless corked, stalled, or another thread sends.
    pub(super) fn flush(&self) {
        loop {
            let Some(mut batch) = self.state().out.take_batch() else { return };
            let sent = batch.send(&self.socket);
            let mut state = self.state();
            let (freed, is_stalled) = match sent {
                Ok(()) => state.out.finish_batch(batch),
                Err(_) => {
                    state.is_dead = true;
                    state.out.clear();
                    (0, false)
                }
            };
            state.release_bytes(freed);
            if is_stalled || state.is_dead {
                return self.wake(&mut state, |_| true);
            }
            self.wake_on_event(&mut state);
        }
    }

    /// Sends replies and waits until there is what the reader wants, or room for stalled replies,
    /// which are then sent.
    ///
    /// False: the time-out expired.
    pub(super) fn wait(&self, want: WaitFor, limit: Option<Timespec>) -> Result<bool, Disconnected> {
        self.uncorked(|| self.wait_spin(want, limit))
    }

    fn wait_spin(&self, want: WaitFor, limit: Option<Timespec>) -> Result<bool, Disconnected> {
        if self.state().commands.is_empty() {
            return self.wait_block(want, limit);
        }
        let spin_budget = lock(&self.spin).budget();
        if self.busy_poll(want, spin_budget) {
            return Ok(true);
        }
        let slept = self.wait_block(want, limit);
        lock(&self.spin).record_wait(spin_budget.elapsed_ns());
        slept
    }

    /// Spins while commands are in flight, running the server's commits meanwhile, as their end may
    /// be near. True: the client has sent bytes.
    fn busy_poll(&self, want: WaitFor, mut spin_budget: SpinBudget) -> bool {
        let (mut polls, mut input_ready) = (0_u32, false);
        let mut enough = || {
            let state = self.state();
            let is_over = state.commands.is_empty() || state.is_dead || state.is_ready_for(want);
            drop(state);
            polls += 1;
            input_ready = want == WaitFor::Input && polls.is_multiple_of(INPUT_POLL_INTERVAL) && self.input_ready();
            is_over || input_ready || spin_budget.is_spent()
        };
        if !enough() {
            self.export.device.busy_poll(&mut enough);
        }
        input_ready
    }

    fn input_ready(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&now)), Ok(1..))
    }

    fn wait_block(&self, want: WaitFor, limit: Option<Timespec>) -> Result<bool, Disconnected> {
        loop {
            let mut state = self.state();
            if state.is_dead {
                return Err(Disconnected);
            }
            if state.is_ready_for(want) {
                return Ok(true);
            }
            state.waiting_for = Some(want);
            let is_stalled = state.out.is_stalled();
            drop(state);
            let mut flags = if want == WaitFor::Input { PollFlags::IN } else { PollFlags::empty() };
            flags.set(PollFlags::OUT, is_stalled);
            let mut fds = [PollFd::new(&self.socket, flags), PollFd::new(&self.wake_eventfd, PollFlags::IN)];
            let polled = poll(&mut fds, limit.as_ref());
            let (socket, wake_eventfd) = (fds[0].revents(), fds[1].revents());
            self.state().waiting_for = None;
            match polled {
                Ok(0) => return Ok(false),
                Ok(_) | Err(IoErrno::INTR) => {}
                Err(_) => return Err(Disconnected),
            }
            if wake_eventfd.contains(PollFlags::IN) {
                let _ = rustix::io::read(&self.wake_eventfd, &mut [0; 8]);
            }
            if socket.contains(PollFlags::OUT) {
                self.state().out.resume();
                self.flush();
            }
            if want == WaitFor::Input && socket.contains(PollFlags::IN) {
                return Ok(true);
            }
            // The client is gone.
            if socket.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                return Err(Disconnected);
            }
        }
    }

    /// One request of a command has completed; `data` is that of a read.
    fn request_done(&self, io: IoCookie, data: Vec<u8>, result: Result<(), Errno>) {
        let mut state = self.state();
        let Some(command) = state.commands.get_mut(io.command as usize) else { return };
        command.remaining -= 1;
        let is_last = command.remaining == 0;
        let is_change = command.is_change;
        if let Err(errno) = result {
            command.error = command.error.or(Some(errno));
        }
        let offset = u64::from(io.start) * SECTOR;
        let part = match &mut command.read {
            Some(PendingRead::Chunks) if result.is_ok() => {
                command.reserved -= data.len();
                let done = if is_last && command.error.is_none() { wire::chunk::DONE } else { 0 };
                let head = data_chunk(command.cookie, done, command.offset + offset, data.len() as u32);
                Some(ReplyPart::with_data(head, data))
            }
            Some(PendingRead::Chunk(whole) | PendingRead::Simple(whole)) if result.is_ok() => {
                // A command of one request has no buffer yet: the data becomes the reply's without
                // a copy.
                if whole.is_empty() {
                    *whole = data;
                } else {
                    whole[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
                }
                None
            }
            _ => None,
        };
        if let Some(part) = part {
            self.queue_reply(&mut state, part);
        }
        if is_last {
            let command = state.commands.remove(io.command as usize);
            self.finish(&mut state, command);
        }
        self.wake_on_event(&mut state);
        drop(state);
        if is_change {
            self.export.rmw.unlock_shared();
        }
    }

    /// Queues a command's final reply.
    fn finish(&self, state: &mut ConnState, command: NbdCommand) {
        let reserved = command.reserved;
        let cookie = command.cookie;
        let error = command.error.map(error_number);
        let part = match (command.read, error) {
            (Some(PendingRead::Chunks), None) => None,
            (Some(PendingRead::Chunks | PendingRead::Chunk(_)), Some(error)) => Some(ReplyPart::plain(error_chunk(cookie, error))),
            (Some(PendingRead::Chunk(data)), None) => {
                let head = data_chunk(cookie, wire::chunk::DONE, command.offset, data.len() as u32);
                return self.queue_reply(state, ReplyPart::with_data(head, data));
            }
            (Some(PendingRead::Simple(data)), None) => return self.queue_reply(state, ReplyPart::with_data(simple_reply(cookie, 0), data)),
            (_, error) => Some(ReplyPart::plain(simple_reply(cookie, error.unwrap_or(0)))),
        };
        state.release_bytes(reserved);
        if let Some(part) = part {
            self.queue_reply(state, part);
        }
    }

    /// A request that could not be submitted.
    pub(super) fn request_failed(&self, io: IoCookie, errno: Errno) {
        self.request_done(io, Vec::new(), Err(errno));
        self.flush();
    }
}

impl ExportUser for Conn {
    fn export_removed(&self) {
        let mut state = self.state();
        state.is_stopping = true;
        self.wake(&mut state, |_| true);
    }
}

impl BlockClient for Conn {
    fn unplug(&self) {
        self.flush();
    }

    fn done(&self, cookie: u64, slot: IoSlot, result: Result<(), Errno>) {
        let io = IoCookie::unpack(cookie);
        let mut data = Vec::new();
        let mut result = result;
        if io.is_read && result.is_ok() {
            let (is_dead, buffer) = {
                let mut state = self.state();
                (state.is_dead, state.out.spare())
            };
            data = buffer;
            data.resize(io.sectors as usize * SECTOR as usize, 0);
            if !is_dead {
                result = self.export.device.read(&slot, 0, &mut data);
            }
        }
        self.export.device.free_slot(slot);
        self.request_done(io, data, result);
    }

    fn slot_freed(&self, _queue: u16) {
        {
            let mut state = self.state();
            if !state.is_dead {
                state.slot_wait = SlotWait::Notified;
                state.event_seq += 1;
                return self.wake_on_event(&mut state);
            }
        }
        self.pass_on_slot();
    }
}

/// Whether this command's replies are structured once structured replies are negotiated.
pub(super) fn is_always_structured(number: u16) -> bool {
    matches!(number, command::READ | command::BLOCK_STATUS)
}
