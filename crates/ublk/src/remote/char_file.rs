//! An open `/dev/ublkcN`.
//!
//! ```text
//!   server's thread                                 the file's own thread
//!     command: kept under its cookie                   completion: the command of its cookie
//!     a READ's commit: its data into the slot          a WRITE's request: its data out of the slot
//!     sent                                             the command's CQE
//! ```
//! What cannot be copied is the request's end: fewer bytes, or EIO, are committed in the server's stead, and the command waits for the next request.

use super::{Broker, Connection};
use crate::adaptive_spin::AdaptiveSpin;
use crate::in_process::{check_mmap, head};
use crate::io_channel::{CorruptPeer, Direction, IoEvent, Receiver, Sender, ShmChannel, WaitDecision, capacity};
use crate::wire::{Purpose, Submission};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet::{PendingCmd, UringCmd, VirtualFile};
use uringlet_abi::ublk::{IoCmd, IoDesc, feature, io, ioctl_nr, iod};
use uringlet_sys::lock::Mutex;
use uringlet_sys::seqpacket::Seqpacket;
use uringlet_sys::shared_file::SharedFile;
use uringlet_sys::{Errno, UserPtr, process, thread};

/// Bytes.
const SECTOR: usize = 512;

/// A command that the broker has.
#[derive(Debug)]
struct Waiting {
    pending: PendingCmd,
    task: u64,
    cmd_op: u32,
}

/// Commands by cookie.
#[derive(Debug, Default)]
struct Commands {
    waiting: BTreeMap<u32, Waiting>,
    next: u32,
    /// Nobody answers any more.
    is_over: bool,
}

/// What the file and its thread share.
#[derive(Debug)]
pub(super) struct Shared {
    socket: Seqpacket,
    file: SharedFile,
    sender: Mutex<Sender>,
    commands: Mutex<Commands>,
    /// By tag: the request that the server has, and how much of its slot lies before its data.
    requests: Vec<Mutex<(IoDesc, u32)>>,
    queues: u16,
    depth: u16,
    /// Data is copied here.
    copies: bool,
    /// The process that opened it.
    pid: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct CharFile(pub(super) Arc<Shared>);

impl CharFile {
    pub(super) fn open(broker: &Broker, id: u32, flags: u32) -> Result<(i32, Self), Errno> {
        let Connection { socket, welcome, files } = broker.ask(Purpose::Open(id))?;
        let [Some(file), Some(rings)] = files else { return Err(Errno::EPROTO) };
        let (queues, depth) = (welcome.queues, welcome.depth);
        let exchange = Arc::new(ShmChannel::of_file(rings.number(), capacity(queues, depth))?);
        let tags = usize::from(queues) * usize::from(depth);
        let shared = Arc::new(Shared {
            socket,
            file: SharedFile::from_fd(file),
            sender: Mutex::new(Sender::new(Arc::clone(&exchange), Direction::ToCreator)),
            commands: Mutex::new(Commands::default()),
            requests: (0..tags).map(|_| Mutex::new(Default::default())).collect(),
            queues,
            depth,
            copies: welcome.flags & feature::USER_COPY == 0,
            pid: process::pid(),
        });
        let fd = shared.file.open(flags)?;
        let receiver = Receiver::new(exchange, Direction::FromCreator);
        let own = Arc::clone(&shared);
        let started = thread::spawn("iou-ublk", move || own.receive(receiver));
        if let Err(errno) = started {
            // The number is nobody's yet.
            let _ = uringlet_sys::io::close(fd);
            return Err(errno);
        }
        Ok((fd, Self(shared)))
    }
}

impl VirtualFile for CharFile {
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
        if self.0.is_ours() {
            // The command completes, for nobody.
            let _ = self.0.send(&Submission { cmd_op: None, task: cmd.task, cmd: IoCmd::from_bytes(&head(cmd)) }, 0);
        }
    }

    fn check_mmap(&self, prot: u32, offset: u64, len: usize) -> Result<(), Errno> {
        check_mmap((self.0.queues, self.0.depth), prot, offset, len)
    }
}

impl Drop for CharFile {
    /// The server is gone. A forked child's copy is nothing to the broker.
    fn drop(&mut self) {
        if self.0.is_ours() {
            self.0.socket.shutdown();
        }
    }
}

impl Shared {
    fn is_ours(&self) -> bool {
        process::pid() == self.pid
    }

    /// Does nothing in the process that opened it.
    pub(super) fn leave_in_child(&self) {
        if process::pid_now() != self.pid {
            self.socket.detach();
        }
    }

    fn start(&self, cmd: &UringCmd, pending: PendingCmd) {
        let (task, cmd_op) = (cmd.task, cmd.op);
        let mut io_cmd = IoCmd::from_bytes(&head(cmd));
        if !self.is_ours() {
            return pending.complete(-Errno::EINVAL.into_raw());
        }
        self.take_read_data(cmd_op, &mut io_cmd);
        let cookie = {
            let mut commands = self.commands.lock();
            if commands.is_over {
                drop(commands);
                return pending.complete(io::RES_ABORT);
            }
            let cookie = commands.next;
            commands.next = cookie.wrapping_add(1);
            commands.waiting.insert(cookie, Waiting { pending, task, cmd_op });
            cookie
        };
        if self.send(&Submission { cmd_op: Some(cmd_op), task, cmd: io_cmd }, cookie).is_err() {
            // More than a device has room for: none of its tags can be meant.
            self.complete(cookie, -Errno::EBUSY.into_raw());
        }
    }

    fn send(&self, submission: &Submission, cookie: u32) -> Result<(), Errno> {
        let must_ring = {
            let mut sender = self.sender.lock();
            sender.put(&submission.to_message(cookie)).map_err(|_| Errno::EBUSY)?;
            sender.publish()
        };
        if must_ring {
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

    /// Before the commit of a READ is sent: what was read goes into the slot.
    fn take_read_data(&self, cmd_op: u32, cmd: &mut IoCmd) {
        if !self.copies || ioctl_nr(cmd_op) != Some(io::COMMIT_AND_FETCH_REQ) || cmd.result <= 0 {
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

    // The file's own thread -----------------------------------------------------------------------------------------

    fn receive(&self, mut receiver: Receiver) {
        let mut patience = AdaptiveSpin::new();
        while let Ok(true) = self.next(&mut receiver, &mut patience) {}
        self.socket.shutdown();
        let orphans = {
            let mut commands = self.commands.lock();
            commands.is_over = true;
            core::mem::take(&mut commands.waiting)
        };
        orphans.into_values().for_each(|waiting| waiting.pending.complete(io::RES_ABORT));
    }

    /// The next completion. False: the broker is gone.
    fn next(&self, receiver: &mut Receiver, patience: &mut AdaptiveSpin) -> Result<bool, CorruptPeer> {
        if let Some(message) = receiver.take()? {
            self.arrived(&IoEvent::of_message(&message));
            return Ok(true);
        }
        let sleep = || receiver.prepare_wait() == WaitDecision::Ready || self.socket.wait_doorbell();
        Ok(patience.wait(|| !receiver.is_empty(), sleep).unwrap_or(true))
    }

    fn arrived(&self, arrival: &IoEvent) {
        let IoEvent { completion, cookie, iod } = *arrival;
        if completion.res != io::RES_OK {
            return self.complete(cookie, completion.res);
        }
        let Some(request) = self.request(completion.queue, completion.tag) else { return };
        *request.lock() = (iod, completion.done);
        let len = iod.nr_sectors as usize * SECTOR;
        if !self.copies || iod.op_flags & 0xff != iod::WRITE || len == 0 {
            return self.complete(cookie, io::RES_OK);
        }
        let from = io::slot(completion.queue, completion.tag) + u64::from(completion.done);
        let copied = self.file.copy_to_user(from, UserPtr::at(iod.addr), len);
        if copied == len { self.complete(cookie, io::RES_OK) } else { self.refuse(arrival, copied) }
    }

    /// The server's buffer is bad: it does not hear of the request.
    fn refuse(&self, arrival: &IoEvent, copied: usize) {
        let IoEvent { completion, cookie, iod } = arrival;
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
