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
use crate::wire::{DeviceRecord, Purpose, SUPERVISOR_TIMEOUT_NS, Submission};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use uringlet_abi::ublk::{IoCmd, IoDesc, feature, io, ioctl_nr, iod};
use uringlet_core::{PendingCmd, UringCmd, VirtualFile};
use uringlet_sys::lock::{Mutex, futex_wait, futex_wake};
use uringlet_sys::seqpacket::Seqpacket;
use uringlet_sys::shared_file::SharedFile;
use uringlet_sys::sync::AtomicU32;
use uringlet_sys::{Errno, UserPtr, process, thread};

/// Bytes.
const SECTOR: usize = 512;
/// How often the next broker is looked for, ns.
const POLL_INTERVAL_NS: u64 = 20_000_000;

/// A command that the broker has.
#[derive(Debug)]
struct OutstandingCommand {
    pending: PendingCmd,
    task: u64,
    cmd_op: u32,
    cmd: IoCmd,
}

/// Outstanding commands by cookie.
#[derive(Debug, Default)]
struct OutstandingCommands {
    waiting: BTreeMap<u32, OutstandingCommand>,
    next: u32,
    /// Counts brokers. What waits during a change is sent to the next broker by the thread that has
    /// found it, and by no other.
    broker: u32,
    /// Between two brokers: commands are kept.
    is_changing: bool,
    /// A command was aborted: the device was stopped.
    is_aborted: bool,
    /// There is no broker, and no next one.
    is_disconnected: bool,
}

/// The request of a tag.
#[derive(Clone, Copy, Debug, Default)]
struct TagRequest {
    iod: IoDesc,
    /// Where in the slot its data begins.
    done: u32,
    /// A broker that was killed has given it: its result is dropped.
    is_orphan: bool,
}

/// State shared by the file and its receiver thread.
#[derive(Debug)]
pub(super) struct CharFileShared {
    socket: Seqpacket,
    file: SharedFile,
    /// And the broker that it sends to, as [`OutstandingCommands::broker`] counts.
    sender: Mutex<(u32, Sender)>,
    commands: Mutex<OutstandingCommands>,
    /// By tag: the request that the server has, or had.
    requests: Vec<Mutex<TagRequest>>,
    endpoint: Arc<BrokerEndpoint>,
    id: u32,
    /// 1: the program has closed the file. A futex word.
    is_closed: AtomicU32,
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
    pub(super) fn open(broker: &Arc<BrokerEndpoint>, id: u32, flags: u32) -> Result<(i32, Self), Errno> {
        let BrokerConnection { socket, welcome, files } = broker.open_connection(Purpose::Open(id))?;
        let [Some(file), Some(rings)] = files else { return Err(Errno::EPROTO) };
        let (queues, depth) = (welcome.queues, welcome.depth);
        let exchange = Arc::new(ShmChannel::of_file(rings.number(), capacity(queues, depth))?);
        let tags = usize::from(queues) * usize::from(depth);
        let shared = Arc::new(CharFileShared {
            socket,
            file: SharedFile::from_fd(file),
            sender: Mutex::new((0, Sender::new(Arc::clone(&exchange), ChannelDirection::ToCreator))),
            commands: Mutex::new(OutstandingCommands::default()),
            requests: (0..tags).map(|_| Mutex::new(TagRequest::default())).collect(),
            endpoint: Arc::clone(broker),
            id,
            is_closed: AtomicU32::new(0),
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
            let broker = self.0.commands.lock().broker;
            let _ = self.0.send(broker, &Submission { cmd_op: None, task: cmd.task, cmd: IoCmd::from_bytes(&command_bytes(cmd)) }, 0);
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
            self.0.is_closed.store(1, SeqCst);
            futex_wake(&self.0.is_closed, u32::MAX);
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
        let (task, mut cmd_op) = (cmd.task, cmd.op);
        let mut io_cmd = IoCmd::from_bytes(&command_bytes(cmd));
        if !self.is_owner_process() {
            return pending.complete(-Errno::EINVAL.into_raw());
        }
        if self.is_orphan(&io_cmd) && ioctl_nr(cmd_op) == Some(io::NEED_GET_DATA) {
            return pending.complete(self.copy_orphan_data(&io_cmd));
        }
        self.copy_read_data(cmd_op, &mut io_cmd);
        let (cookie, broker) = {
            let mut commands = self.commands.lock();
            if self.take_orphan(&io_cmd) {
                (cmd_op, io_cmd) = self.fetch(cmd_op, &io_cmd);
            }
            if commands.is_disconnected {
                drop(commands);
                return pending.complete(io::RES_ABORT);
            }
            let cookie = commands.next;
            commands.next = cookie.wrapping_add(1);
            commands.waiting.insert(cookie, OutstandingCommand { pending, task, cmd_op, cmd: io_cmd });
            if commands.is_changing {
                return;
            }
            (cookie, commands.broker)
        };
        if self.send(broker, &Submission { cmd_op: Some(cmd_op), task, cmd: io_cmd }, cookie).is_err() {
            // More commands than the device has tags: this one cannot be valid.
            self.complete(cookie, -Errno::EBUSY.into_raw());
        }
    }

    /// Sends to this broker; has no effect if there is another one by now.
    fn send(&self, broker: u32, submission: &Submission, cookie: u32) -> Result<(), Errno> {
        let must_wake = {
            let mut sender = self.sender.lock();
            let (current, sender) = &mut *sender;
            if *current != broker {
                return Ok(());
            }
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

    fn request(&self, queue: u16, tag: u16) -> Option<&Mutex<TagRequest>> {
        let is_tag = queue < self.queues && tag < self.depth;
        self.requests.get(usize::from(queue) * usize::from(self.depth) + usize::from(tag)).filter(|_| is_tag)
    }

    /// Before the commit of a READ is sent: copies the data into the slot.
    fn copy_read_data(&self, cmd_op: u32, cmd: &mut IoCmd) {
        if !self.copies_data || ioctl_nr(cmd_op) != Some(io::COMMIT_AND_FETCH_REQ) || cmd.result <= 0 {
            return;
        }
        let Some(request) = self.request(cmd.q_id, cmd.tag) else { return };
        let TagRequest { iod, done, is_orphan } = *request.lock();
        if iod.op_flags & 0xff != iod::READ || is_orphan {
            return;
        }
        let len = (cmd.result as usize).min(iod.nr_sectors as usize * SECTOR);
        let copied = self.file.copy_from_user(io::slot(cmd.q_id, cmd.tag) + u64::from(done), UserPtr::at(cmd.addr), len);
        cmd.result = if copied == 0 { -Errno::EIO.into_raw() } else { copied as i32 };
    }

    // Receiver thread ---------------------------------------------------------------------------

    fn run_receiver(&self, mut receiver: Receiver) {
        let mut spin = AdaptiveSpin::new();
        loop {
            while let Ok(true) = self.handle_next(&mut receiver, &mut spin) {}
            let Some(next) = self.bring_to_next_broker() else { break };
            receiver = next;
        }
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
        if completion.res == io::RES_ABORT {
            self.commands.lock().is_aborted = true;
        }
        if completion.res != io::RES_OK {
            return self.complete(cookie, completion.res);
        }
        let Some(request) = self.request(completion.queue, completion.tag) else { return };
        *request.lock() = TagRequest { iod, done: completion.done, is_orphan: false };
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
        let known = {
            let commands = self.commands.lock();
            commands.waiting.get(cookie).map(|waiting| (commands.broker, waiting.task, waiting.cmd_op))
        };
        let Some((broker, task, cmd_op)) = known else { return };
        let whole = copied / SECTOR * SECTOR;
        let result = if whole == 0 { -Errno::EIO.into_raw() } else { whole as i32 };
        let cmd = IoCmd { q_id: completion.queue, tag: completion.tag, result, addr: iod.addr };
        let cmd_op = cmd_op & !0xff | u32::from(io::COMMIT_AND_FETCH_REQ);
        if self.send(broker, &Submission { cmd_op: Some(cmd_op), task, cmd }, *cookie).is_err() {
            self.complete(*cookie, -Errno::EIO.into_raw());
        }
    }
}

/// After the broker was killed ------------------------------------------------------------------
impl CharFileShared {
    /// Waits for the next broker, brings the device there, and fetches the tags whose commands
    /// wait. The others follow when the server commits what the dead broker gave them. `None`: the
    /// device was stopped or never started, the program has closed it, or the next broker does not
    /// take it.
    fn bring_to_next_broker(&self) -> Option<Receiver> {
        let mut bytes = [0; DeviceRecord::SIZE];
        let has_record = self.file.read(DeviceRecord::OFFSET, &mut bytes).is_ok() && DeviceRecord::parse(&bytes).is_some();
        if !has_record || !self.is_owner_process() || self.commands.lock().is_aborted || !self.begin_change() {
            return None;
        }
        let BrokerConnection { socket, files, .. } = self.next_broker()?;
        let [_, Some(rings)] = files else { return None };
        let exchange = Arc::new(ShmChannel::of_file(rings.number(), capacity(self.queues, self.depth)).ok()?);
        self.socket.replace(&socket).ok()?;
        self.finish_change(Sender::new(Arc::clone(&exchange), ChannelDirection::ToCreator));
        if self.is_closed.load(SeqCst) != 0 {
            // The program may have ended the old connection.
            self.socket.shutdown();
        }
        Some(Receiver::new(exchange, ChannelDirection::FromCreator))
    }

    /// From now on commands are kept. Marks the requests that the server still executes. False: no
    /// tag is in use.
    fn begin_change(&self) -> bool {
        let mut commands = self.commands.lock();
        commands.is_changing = true;
        commands.broker = commands.broker.wrapping_add(1);
        let mut waits = alloc::vec![false; self.requests.len()];
        let mut data_requests = Vec::new();
        for (&cookie, waiting) in &mut commands.waiting {
            if ioctl_nr(waiting.cmd_op) == Some(io::NEED_GET_DATA) {
                data_requests.push(cookie);
                continue;
            }
            (waiting.cmd_op, waiting.cmd) = self.fetch(waiting.cmd_op, &waiting.cmd);
            if let Some(waits) = waits.get_mut(self.index(&waiting.cmd)) {
                *waits = true;
            }
        }
        self.requests.iter().zip(&waits).for_each(|(request, waits)| request.lock().is_orphan = !waits);
        let data_requests: Vec<_> = data_requests.into_iter().filter_map(|cookie| commands.waiting.remove(&cookie)).collect();
        let is_used = !commands.waiting.is_empty() || !data_requests.is_empty();
        drop(commands);
        for OutstandingCommand { pending, cmd, .. } in data_requests {
            pending.complete(self.copy_orphan_data(&cmd));
        }
        is_used || self.requests.iter().any(|request| request.lock().iod != IoDesc::default())
    }

    /// The next broker, once there is one that has taken the device.
    fn next_broker(&self) -> Option<BrokerConnection> {
        let end = process::monotonic_ns().saturating_add(SUPERVISOR_TIMEOUT_NS);
        while self.is_closed.load(SeqCst) == 0 {
            let now = process::monotonic_ns();
            if self.endpoint.is_back(now >= end) {
                match self.endpoint.bring(self.id, self.file.number()) {
                    Ok(connection) => return Some(connection),
                    // A dying broker's socket takes connections until the kernel has closed it.
                    Err(Errno::ECONNRESET | Errno::EPIPE | Errno::ECONNREFUSED | Errno::ENOENT) => {}
                    Err(_) => return None,
                }
            }
            // It could not even be started.
            if now >= end {
                return None;
            }
            let _ = futex_wait(&self.is_closed, 0, now + POLL_INTERVAL_NS);
        }
        None
    }

    /// Commands go to the next broker from now on, beginning with those that were kept.
    fn finish_change(&self, sender: Sender) {
        let mut commands = self.commands.lock();
        commands.is_changing = false;
        *self.sender.lock() = (commands.broker, sender);
        for (&cookie, waiting) in &commands.waiting {
            let submission = Submission { cmd_op: Some(waiting.cmd_op), task: waiting.task, cmd: waiting.cmd };
            // Cannot be full: as many commands as the device has tags.
            let _ = self.send(commands.broker, &submission, cookie);
        }
    }

    /// The FETCH_REQ that stands for a command of a tag.
    fn fetch(&self, cmd_op: u32, cmd: &IoCmd) -> (u32, IoCmd) {
        let addr = if self.copies_data { cmd.addr } else { 0 };
        (cmd_op & !0xff | u32::from(io::FETCH_REQ), IoCmd { result: 0, addr, ..*cmd })
    }

    fn index(&self, cmd: &IoCmd) -> usize {
        usize::from(cmd.q_id) * usize::from(self.depth) + usize::from(cmd.tag)
    }

    fn is_orphan(&self, cmd: &IoCmd) -> bool {
        self.request(cmd.q_id, cmd.tag).is_some_and(|request| request.lock().is_orphan)
    }

    /// Whether the tag's request was an orphan; it is none any more.
    fn take_orphan(&self, cmd: &IoCmd) -> bool {
        self.request(cmd.q_id, cmd.tag).is_some_and(|request| core::mem::take(&mut request.lock().is_orphan))
    }

    /// The data of an orphan's WRITE, which is still in its slot. Returns the result of the command
    /// that asks for it.
    fn copy_orphan_data(&self, cmd: &IoCmd) -> i32 {
        let Some(request) = self.request(cmd.q_id, cmd.tag) else { return -Errno::EINVAL.into_raw() };
        let TagRequest { iod, done, .. } = *request.lock();
        let len = iod.nr_sectors as usize * SECTOR;
        // A short copy only spoils a write whose client has gone.
        let _ = self.file.copy_to_user(io::slot(cmd.q_id, cmd.tag) + u64::from(done), UserPtr::at(cmd.addr), len);
        io::RES_OK
    }
}
