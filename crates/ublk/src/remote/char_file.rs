//! An open `/dev/ublkcN`.
//!
//! ```text
//!   server's thread                            receiver thread of the file
//!     command: kept under its cookie             completion: finds the command by its cookie
//!     commit of a READ: data into the slot       WRITE request: data out of the slot
//!     sends it                                   posts the command's CQE
//! ```
//! A short or failed copy ends the request: this file commits fewer bytes, or EIO, in the server's
//! place, and the command waits for the next request.

use super::endpoint::{BrokerConnection, BrokerEndpoint};
use crate::adaptive_spin::AdaptiveSpin;
use crate::in_process::{check_mmap, command_bytes};
use crate::io_channel::{ChannelDirection, CorruptPeer, IoEvent, Receiver, Sender, ShmChannel, WaitDecision, capacity};
use crate::wire::{Purpose, Submission};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_abi::ublk::{IoCmd, IoDesc, feature, io, ioctl_nr, iod};
use uringlet_core::{PendingCmd, UringCmd, VirtualFile};
use uringlet_sys::lock::Mutex;
use uringlet_sys::seqpacket::Seqpacket;
use uringlet_sys::shared_file::SharedFile;
use uringlet_sys::{Errno, UserPtr, process, thread};

/// Bytes.
const SECTOR: usize = 512;

/// A command that the broker has.
#[derive(Debug)]
struct OutstandingCommand {
    pending: PendingCmd,
    task: u64,
    cmd_op: u32,
}

/// Outstanding commands by cookie.
#[derive(Debug, Default)]
struct OutstandingCommands {
    waiting: BTreeMap<u32, OutstandingCommand>,
    next: u32,
    /// The broker has disconnected.
    is_disconnected: bool,
}

/// State shared by the file and its receiver thread.
#[derive(Debug)]
pub(super) struct CharFileShared {
    socket: Seqpacket,
    file: SharedFile,
    sender: Mutex<Sender>,
    commands: Mutex<OutstandingCommands>,
    /// By tag: the request that the server has, and where in the slot its data begins.
    requests: Vec<Mutex<(IoDesc, u32)>>,
    queues: u16,
    depth: u16,
    /// Not USER_COPY: data is copied here.
    copies_data: bool,
    /// The process that opened it.
    pid: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct BrokerCharFile(pub(super) Arc<CharFileShared>);

impl BrokerCharFile {
    pub(super) fn open(broker: &BrokerEndpoint, id: u32, flags: u32) -> Result<(i32, Self), Errno> {
        let BrokerConnection { socket, welcome, files } = broker.open_connection(Purpose::Open(id))?;
        let [Some(file), Some(rings)] = files else { return Err(Errno::EPROTO) };
        let (queues, depth) = (welcome.queues, welcome.depth);
        let exchange = Arc::new(ShmChannel::of_file(rings.number(), capacity(queues, depth))?);
        let tags = usize::from(queues) * usize::from(depth);
        let shared = Arc::new(CharFileShared {
            socket,
            file: SharedFile::from_fd(file),
            sender: Mutex::new(Sender::new(Arc::clone(&exchange), ChannelDirection::ToCreator)),
            commands: Mutex::new(OutstandingCommands::default()),
            requests: (0..tags).map(|_| Mutex::new(Default::default())).collect(),
            queues,
            depth,
            copies_data: welcome.flags & feature::USER_COPY == 0,
            pid: process::pid(),
        });
        let fd = shared.file.open(flags)?;
        let receiver = Receiver::new(exchange, ChannelDirection::FromCreator);
        let own = Arc::clone(&shared);
        let started = thread::spawn("iou-ublk", move || own.run_receiver(receiver));
        if let Err(errno) = started {
            // The program does not know the descriptor yet.
            let _ = uringlet_sys::io::close(fd);
            return Err(errno);
        }
        Ok((fd, Self(shared)))
    }
}

impl VirtualFile for BrokerCharFile {
    fn may_sleep(&self, _: &UringCmd) -> bool {
        false
    }

    fn start(&self, cmd: &UringCmd, pending: PendingCmd) {
        self.0.start(cmd, pending);
    }

    fn run(&self, _: &UringCmd) -> i32 {
        -Errno::EINVAL.into_raw()
    }

    fn cancel(&self, cmd: &UringCmd) {
        if self.0.is_owner_process() {
            // Its completion finds no command.
            let _ = self.0.send(&Submission { cmd_op: None, task: cmd.task, cmd: IoCmd::from_bytes(&command_bytes(cmd)) }, 0);
        }
    }

    fn check_mmap(&self, prot: u32, offset: u64, len: usize) -> Result<(), Errno> {
        check_mmap((self.0.queues, self.0.depth), prot, offset, len)
    }
}

impl Drop for BrokerCharFile {
    /// The server is lost, unless this is a forked child's copy.
    fn drop(&mut self) {
        if self.0.is_owner_process() {
            self.0.socket.shutdown();
        }
    }
}

impl CharFileShared {
    fn is_owner_process(&self) -> bool {
        process::pid() == self.pid
    }

    /// Closes the child's copy of the socket. No effect in the process that opened it.
    pub(super) fn detach_in_child(&self) {
        if process::pid_now() != self.pid {
            self.socket.detach();
        }
    }

    fn start(&self, cmd: &UringCmd, pending: PendingCmd) {
        let (task, cmd_op) = (cmd.task, cmd.op);
        let mut io_cmd = IoCmd::from_bytes(&command_bytes(cmd));
        if !self.is_owner_process() {
            return pending.complete(-Errno::EINVAL.into_raw());
        }
        self.copy_read_data(cmd_op, &mut io_cmd);
        let cookie = {
            let mut commands = self.commands.lock();
            if commands.is_disconnected {
                drop(commands);
                return pending.complete(io::RES_ABORT);
            }
            let cookie = commands.next;
            commands.next = cookie.wrapping_add(1);
            commands.waiting.insert(cookie, OutstandingCommand { pending, task, cmd_op });
            cookie
        };
        if self.send(&Submission { cmd_op: Some(cmd_op), task, cmd: io_cmd }, cookie).is_err() {
            // More commands than the device has tags: this one cannot be valid.
            self.complete(cookie, -Errno::EBUSY.into_raw());
        }
    }

    fn send(&self, submission: &Submission, cookie: u32) -> Result<(), Errno> {
        let must_wake = {
            let mut sender = self.sender.lock();
            sender.put(&submission.to_message(cookie)).map_err(|_| Errno::EBUSY)?;
            sender.publish()
        };
        if must_wake {
            self.socket.ring_doorbell();
        }
        Ok(())
    }

    fn complete(&self, cookie: u32, res: i32) {
        let waiting = self.commands.lock().waiting.remove(&cookie);
        if let Some(waiting) = waiting {
            waiting.pending.complete(res);
        }
    }

    fn request(&self, queue: u16, tag: u16) -> Option<&Mutex<(IoDesc, u32)>> {
        let is_tag = queue < self.queues && tag < self.depth;
        self.requests.get(usize::from(queue) * usize::from(self.depth) + usize::from(tag)).filter(|_| is_tag)
    }

    /// Before the commit of a READ is sent: copies the data into the slot.
    fn copy_read_data(&self, cmd_op: u32, cmd: &mut IoCmd) {
        if !self.copies_data || ioctl_nr(cmd_op) != Some(io::COMMIT_AND_FETCH_REQ) || cmd.result <= 0 {
            return;
        }
        let Some(request) = self.request(cmd.q_id, cmd.tag) else { return };
        let (iod, done) = *request.lock();
        if iod.op_flags & 0xff != iod::READ {
            return;
        }
        let len = (cmd.result as usize).min(iod.nr_sectors as usize * SECTOR);
        let copied = self.file.copy_from_user(io::slot(cmd.q_id, cmd.tag) + u64::from(done), UserPtr::at(cmd.addr), len);
        cmd.result = if copied == 0 { -Errno::EIO.into_raw() } else { copied as i32 };
    }

    // Receiver thread ---------------------------------------------------------------------------

    fn run_receiver(&self, mut receiver: Receiver) {
        let mut spin = AdaptiveSpin::new();
        while let Ok(true) = self.handle_next(&mut receiver, &mut spin) {}
        self.socket.shutdown();
        let orphans = {
            let mut commands = self.commands.lock();
            commands.is_disconnected = true;
            core::mem::take(&mut commands.waiting)
        };
        orphans.into_values().for_each(|waiting| waiting.pending.complete(io::RES_ABORT));
    }

    /// Handles the next completion. False: the broker has disconnected.
    fn handle_next(&self, receiver: &mut Receiver, spin: &mut AdaptiveSpin) -> Result<bool, CorruptPeer> {
        if let Some(message) = receiver.take()? {
            self.handle_completion(&IoEvent::from_message(&message));
            return Ok(true);
        }
        let sleep = || receiver.prepare_wait() == WaitDecision::Ready || self.socket.wait_doorbell();
        Ok(spin.wait(|| !receiver.is_empty(), sleep).unwrap_or(true))
    }

    fn handle_completion(&self, event: &IoEvent) {
        let IoEvent { completion, cookie, iod } = *event;
        if completion.res != io::RES_OK {
            return self.complete(cookie, completion.res);
        }
        let Some(request) = self.request(completion.queue, completion.tag) else { return };
        *request.lock() = (iod, completion.done);
        let len = iod.nr_sectors as usize * SECTOR;
        if !self.copies_data || iod.op_flags & 0xff != iod::WRITE || len == 0 {
            return self.complete(cookie, io::RES_OK);
        }
        let from = io::slot(completion.queue, completion.tag) + u64::from(completion.done);
        let copied = self.file.copy_to_user(from, UserPtr::at(iod.addr), len);
        if copied == len { self.complete(cookie, io::RES_OK) } else { self.commit_short_copy(event, copied) }
    }

    /// The server's buffer is bad: the request is committed without the server.
    fn commit_short_copy(&self, event: &IoEvent, copied: usize) {
        let IoEvent { completion, cookie, iod } = event;
        let known = self.commands.lock().waiting.get(cookie).map(|waiting| (waiting.task, waiting.cmd_op));
        let Some((task, cmd_op)) = known else { return };
        let whole = copied / SECTOR * SECTOR;
        let result = if whole == 0 { -Errno::EIO.into_raw() } else { whole as i32 };
        let cmd = IoCmd { q_id: completion.queue, tag: completion.tag, result, addr: iod.addr };
        let cmd_op = cmd_op & !0xff | u32::from(io::COMMIT_AND_FETCH_REQ);
        if self.send(&Submission { cmd_op: Some(cmd_op), task, cmd }, *cookie).is_err() {
            self.complete(*cookie, -Errno::EIO.into_raw());
        }
    }
}
