//! A connection's shared half: commands in flight, replies on their way out.
//!
//! ```text
//!   reader (one thread a connection)            whoever serves the device
//!     header, data in --> submit ------------->   done(): data out of the slot, slot free again
//!     asleep in poll(2) <--- bell -----------     reply into `out`; sends it itself, unless somebody is about to
//! ```
//! - `State` has one lock. No system call and no call into the device happens under it, but for the bell.
//! - At most one thread sends: `Sending::Busy` is its mark. Who finds it only puts his reply into `out`.
//! - The reader holds the sending back (`Corked`) while it works off what it has read, and lets go before it sleeps:
//!   replies to a batch leave together.
//! - A socket that takes no more is `Stalled`: from then on the reader sends, when poll says so. A slow client therefore
//!   holds up nobody who serves the device, and no slot: data waits for it in memory, at most [`BUDGET`] bytes.
//! - A dead connection takes no replies; its requests end in `done()` all the same, and give their slots back.

use super::exports::Export;
use super::outbox::{Outbox, Part};
use super::wire::{command, data_chunk, error_chunk, error_number, simple_reply};
use super::{handshake::Agreement, wire};
use crate::piece::Piece;
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

/// Commands of one connection that may be under way, their unsent replies included.
pub(super) const COMMANDS_MAX: usize = 256;
/// Bytes of reads that may be under way; one read alone may always be.
pub(super) const BUDGET: usize = wire::PAYLOAD_MAX as usize;

/// While it spins, the reader looks for input once in so many looks: that takes a system call.
const INPUT_EVERY: u32 = 8;

/// The connection is of no use any more.
#[derive(Debug)]
pub(super) struct Gone;

/// How data of a read goes back.
#[derive(Debug)]
pub(super) enum ReadReply {
    /// Each piece in a chunk of its own, as it comes.
    Pieces,
    /// One chunk: its data so far.
    Chunk(Vec<u8>),
    /// A simple reply: its data so far.
    Simple(Vec<u8>),
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Command {
    /// The client's number for it.
    pub(super) cookie: u64,
    /// Of its first byte.
    pub(super) offset: u64,
    /// Requests to the device that are not over.
    pub(super) remaining: u32,
    /// What failed first.
    pub(super) error: Option<Errno>,
    /// It changes the device: each of its requests has passed the export's gate.
    pub(super) is_change: bool,
    /// Only for reads.
    pub(super) read: Option<ReadReply>,
    /// Its part of [`BUDGET`] that nobody has given back yet.
    pub(super) budget: usize,
}

/// What the reader sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Bytes from the client.
    Input,
    /// News of commands or slots, since the count that was seen.
    News(u64),
}

/// How the reader stands with the device's free slots. It is told once for each time it asked: who is told and does not
/// want a slot any more hands the news on, or the next in line would sleep beside a free slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SlotWait {
    #[default]
    No,
    Asked,
    Told,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) commands: Slab<Command>,
    pub(super) out: Outbox,
    /// Bytes of [`BUDGET`] in use.
    pub(super) used: usize,
    /// Counts commands that are over, replies that are sent, slots that are free.
    pub(super) news: u64,
    pub(super) is_stopping: bool,
    is_dead: bool,
    slot_wait: SlotWait,
    sleeper: Option<Want>,
}

impl State {
    /// Whether there is what the reader sleeps for, as far as it is told here.
    const fn has(&self, want: Want) -> bool {
        match want {
            Want::Input => self.is_stopping,
            Want::News(seen) => self.news != seen,
        }
    }

    /// Gives `bytes` of the budget back, and tells who may wait for that.
    fn give_back(&mut self, bytes: usize) {
        self.used -= bytes;
        self.news += 1;
    }
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    bell: OwnedFd,
    pub(super) export: Arc<Export>,
    pub(super) is_structured: bool,
    pub(super) has_allocation: bool,
    pub(super) queue: u16,
    state: Mutex<State>,
    /// The reader's.
    patience: Mutex<AdaptiveSpin>,
    me: Weak<Self>,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd, agreement: Agreement) -> Result<Arc<Self>, IoErrno> {
        let state = Mutex::new(State { out: Outbox::corked(), ..State::default() });
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let Agreement { export, is_structured, has_allocation } = agreement;
        let queue = export.turn();
        Ok(Arc::new_cyclic(|me| Self {
            socket,
            bell,
            export,
            is_structured,
            has_allocation,
            queue,
            state,
            patience: Mutex::default(),
            me: Weak::clone(me),
        }))
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Asks the reader to take no more commands.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.is_stopping = true;
        self.wake(&mut state, |_| true);
    }

    /// Nothing more goes out; replies that come are forgotten.
    pub(super) fn kill(&self) {
        // The descriptor lives until the device has ended the last request; the client shall know now.
        let _ = shutdown(&self.socket, Shutdown::Both);
        let was_told = {
            let mut state = self.state();
            state.is_dead = true;
            state.out.clear();
            std::mem::take(&mut state.slot_wait) == SlotWait::Told
        };
        if was_told {
            self.hand_on();
        }
    }

    /// Lets the next in line know of a free slot that is not wanted here.
    fn hand_on(&self) {
        if let Some(me) = self.me.upgrade()
            && let Some(slot) = self.export.device.alloc_slot(self.queue, &(me as Arc<dyn BlockClient>))
        {
            self.export.device.free_slot(slot);
        }
    }

    /// A free slot, sooner or later.
    pub(super) fn slot(&self, client: &Arc<dyn BlockClient>) -> Result<IoSlot, Gone> {
        loop {
            // Before asking: the answer may come at once.
            let seen = {
                let mut state = self.state();
                state.slot_wait = SlotWait::Asked;
                state.news
            };
            if let Some(slot) = self.export.device.alloc_slot(self.queue, client) {
                self.state().slot_wait = SlotWait::No;
                return Ok(slot);
            }
            let mut seen = seen;
            while self.state().slot_wait == SlotWait::Asked {
                self.sleep(Want::News(seen), None)?;
                seen = self.state().news;
            }
        }
    }

    fn wake(&self, state: &mut State, matters: impl FnOnce(Want) -> bool) {
        if let Some(want) = state.sleeper
            && matters(want)
        {
            state.sleeper = None;
            // Full means that it rings already.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    fn wake_for_news(&self, state: &mut State) {
        let news = state.news;
        self.wake(state, |want| matches!(want, Want::News(seen) if seen != news));
    }

    /// Puts a reply in the queue: what is in flight of its command ends with it.
    fn put(&self, state: &mut State, part: Part) {
        if state.is_dead {
            state.give_back(part.budget);
        } else {
            state.out.push(part);
        }
    }

    /// Answers a command that needs nothing of the device.
    pub(super) fn reply(&self, bytes: Vec<u8>) {
        let mut state = self.state();
        self.put(&mut state, Part::plain(bytes));
    }

    /// Answers a read with its data, whose part of the budget is taken.
    pub(super) fn reply_data(&self, cookie: u64, offset: u64, data: Vec<u8>) {
        let head =
            if self.is_structured { data_chunk(cookie, wire::chunk::DONE, offset, data.len() as u32) } else { simple_reply(cookie, 0) };
        let mut state = self.state();
        self.put(&mut state, Part::with_data(head, data));
    }

    /// Lets requests and replies go while the reader does something that may take long.
    pub(super) fn meanwhile<R>(&self, f: impl FnOnce() -> R) -> R {
        self.export.device.unplug();
        self.state().out.uncork();
        self.flush();
        let result = f();
        self.state().out.cork();
        result
    }

    /// Sends what is there, unless somebody else does or nobody may.
    pub(super) fn flush(&self) {
        loop {
            let Some(mut batch) = self.state().out.take_batch() else { return };
            let sent = batch.send(&self.socket);
            let mut state = self.state();
            let (freed, is_stalled) = match sent {
                Ok(()) => state.out.give_back(batch),
                Err(_) => {
                    state.is_dead = true;
                    state.out.clear();
                    (0, false)
                }
            };
            state.give_back(freed);
            if is_stalled || state.is_dead {
                return self.wake(&mut state, |_| true);
            }
            self.wake_for_news(&mut state);
        }
    }

    /// Lets replies go and sleeps until there is what the reader wants, or room for stalled replies, which it sends then.
    ///
    /// False: the time is over first.
    pub(super) fn sleep(&self, want: Want, limit: Option<Timespec>) -> Result<bool, Gone> {
        self.meanwhile(|| self.doze(want, limit))
    }

    fn doze(&self, want: Want, limit: Option<Timespec>) -> Result<bool, Gone> {
        if self.state().commands.is_empty() {
            return self.sleep_soundly(want, limit);
        }
        let spell = lock(&self.patience).budget();
        if self.attend(want, spell) {
            return Ok(true);
        }
        let slept = self.sleep_soundly(want, limit);
        lock(&self.patience).record_wait(spell.elapsed_ns());
        slept
    }

    /// While commands are under way, their end may be near: spins for it, and does what the device's server sends. True: the client has sent something.
    fn attend(&self, want: Want, mut spell: SpinBudget) -> bool {
        let (mut looks, mut has_input) = (0_u32, false);
        let mut enough = || {
            let state = self.state();
            let is_over = state.commands.is_empty() || state.is_dead || state.has(want);
            drop(state);
            looks += 1;
            has_input = want == Want::Input && looks.is_multiple_of(INPUT_EVERY) && self.has_input();
            is_over || has_input || spell.is_spent()
        };
        if !enough() {
            self.export.device.busy_poll(&mut enough);
        }
        has_input
    }

    fn has_input(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&now)), Ok(1..))
    }

    fn sleep_soundly(&self, want: Want, limit: Option<Timespec>) -> Result<bool, Gone> {
        loop {
            let mut state = self.state();
            if state.is_dead {
                return Err(Gone);
            }
            if state.has(want) {
                return Ok(true);
            }
            state.sleeper = Some(want);
            let is_stalled = state.out.is_stalled();
            drop(state);
            let mut flags = if want == Want::Input { PollFlags::IN } else { PollFlags::empty() };
            flags.set(PollFlags::OUT, is_stalled);
            let mut fds = [PollFd::new(&self.socket, flags), PollFd::new(&self.bell, PollFlags::IN)];
            let polled = poll(&mut fds, limit.as_ref());
            let (socket, bell) = (fds[0].revents(), fds[1].revents());
            self.state().sleeper = None;
            match polled {
                Ok(0) => return Ok(false),
                Ok(_) | Err(IoErrno::INTR) => {}
                Err(_) => return Err(Gone),
            }
            if bell.contains(PollFlags::IN) {
                let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            }
            if socket.contains(PollFlags::OUT) {
                self.state().out.resume();
                self.flush();
            }
            if want == Want::Input && socket.contains(PollFlags::IN) {
                return Ok(true);
            }
            // Nobody is there to read a reply.
            if socket.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                return Err(Gone);
            }
        }
    }

    /// One request of a command is over, its data (of a read) copied.
    fn piece_done(&self, piece: Piece, data: Vec<u8>, result: Result<(), Errno>) {
        let mut state = self.state();
        let Some(command) = state.commands.get_mut(piece.key as usize) else { return };
        command.remaining -= 1;
        let is_last = command.remaining == 0;
        let is_change = command.is_change;
        if let Err(errno) = result {
            command.error = command.error.or(Some(errno));
        }
        let offset = u64::from(piece.at) * SECTOR;
        let part = match &mut command.read {
            Some(ReadReply::Pieces) if result.is_ok() => {
                command.budget -= data.len();
                let done = if is_last && command.error.is_none() { wire::chunk::DONE } else { 0 };
                let head = data_chunk(command.cookie, done, command.offset + offset, data.len() as u32);
                Some(Part::with_data(head, data))
            }
            Some(ReadReply::Chunk(whole) | ReadReply::Simple(whole)) if result.is_ok() => {
                // A command of one piece has made no room: the bytes become the reply's without a copy.
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
            self.put(&mut state, part);
        }
        if is_last {
            let command = state.commands.remove(piece.key as usize);
            self.end(&mut state, command);
        }
        self.wake_for_news(&mut state);
        drop(state);
        if is_change {
            self.export.gate.leave();
        }
    }

    /// The last words of a command.
    fn end(&self, state: &mut State, command: Command) {
        let budget = command.budget;
        let cookie = command.cookie;
        let error = command.error.map(error_number);
        let part = match (command.read, error) {
            (Some(ReadReply::Pieces), None) => None,
            (Some(ReadReply::Pieces | ReadReply::Chunk(_)), Some(error)) => Some(Part::plain(error_chunk(cookie, error))),
            (Some(ReadReply::Chunk(data)), None) => {
                let head = data_chunk(cookie, wire::chunk::DONE, command.offset, data.len() as u32);
                return self.put(state, Part::with_data(head, data));
            }
            (Some(ReadReply::Simple(data)), None) => return self.put(state, Part::with_data(simple_reply(cookie, 0), data)),
            (_, error) => Some(Part::plain(simple_reply(cookie, error.unwrap_or(0)))),
        };
        state.give_back(budget);
        if let Some(part) = part {
            self.put(state, part);
        }
    }

    /// One request of a command could not even be made.
    pub(super) fn piece_failed(&self, piece: Piece, errno: Errno) {
        self.piece_done(piece, Vec::new(), Err(errno));
        self.flush();
    }
}

impl BlockClient for Conn {
    fn unplug(&self) {
        self.flush();
    }

    fn done(&self, cookie: u64, slot: IoSlot, result: Result<(), Errno>) {
        let piece = Piece::unpack(cookie);
        let mut data = Vec::new();
        let mut result = result;
        if piece.is_read && result.is_ok() {
            let (is_dead, buffer) = {
                let mut state = self.state();
                (state.is_dead, state.out.spare())
            };
            data = buffer;
            data.resize(piece.sectors as usize * SECTOR as usize, 0);
            if !is_dead {
                result = self.export.device.read(&slot, 0, &mut data);
            }
        }
        self.export.device.free_slot(slot);
        self.piece_done(piece, data, result);
    }

    fn slot_freed(&self, _queue: u16) {
        {
            let mut state = self.state();
            if !state.is_dead {
                state.slot_wait = SlotWait::Told;
                state.news += 1;
                return self.wake_for_news(&mut state);
            }
        }
        self.hand_on();
    }
}

/// Whether replies to this command are structured where structured replies were agreed upon.
pub(super) fn is_always_structured(number: u16) -> bool {
    matches!(number, command::READ | command::BLOCK_STATUS)
}
