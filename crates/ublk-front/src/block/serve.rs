//! The filesystem's one file: FUSE requests become device requests, and completions become replies.
//!
//! A few threads read `/dev/fuse`. A thread that finds no free slot waits for one. Replies are
//! written by the thread that completes a request, so they never wait for the readers.

use super::wire::{self, FuseMessage, HEADER, MAJOR, PUNCH_HOLE, WRITE_HEADER, ZERO_RANGE, op};
use crate::io_cookie::IoCookie;
use crate::sync::lock;
use rustix::fd::OwnedFd;
use rustix::io::Errno as IoErrno;
use slab::Slab;
use std::io::IoSlice;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use uringlet_abi::ublk::iod;
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockClient, BlockDevice, BlockLimits, BlockRequest, DataLocation, IoOp, IoSlot, SECTOR};

/// Longest request, bytes; the kernel splits longer ones.
const BYTES_MAX: u32 = 1 << 20;
/// Room for one FUSE request.
const BUFFER: usize = BYTES_MAX as usize + HEADER + WRITE_HEADER + 4096;
/// Most FUSE requests in flight: as many as an [`IoCookie`] can number.
const REQUESTS_MAX: usize = 1 << 15;

/// A FUSE request that the device executes.
#[derive(Debug)]
struct FuseRequest {
    unique: u64,
    remaining: u32,
    error: Option<Errno>,
    /// A read's bytes so far.
    data: Vec<u8>,
    /// The reply's body if it has no data of the device.
    body: Vec<u8>,
}

#[derive(Debug, Default)]
struct FuseState {
    requests: Slab<FuseRequest>,
    /// Slot notifications that no thread has acted upon.
    slot_notices: u32,
}

/// The file.
#[derive(Debug)]
pub(super) struct FuseFile {
    pub(super) fuse: OwnedFd,
    pub(super) device: Arc<dyn BlockDevice>,
    state: Mutex<FuseState>,
    slot_freed: Condvar,
}

impl FuseFile {
    pub(super) fn new(fuse: OwnedFd, device: Arc<dyn BlockDevice>) -> Self {
        Self { fuse, device, state: Mutex::default(), slot_freed: Condvar::new() }
    }

    /// Serves until the filesystem ends. `queue`: the device queue of its requests.
    pub(super) fn serve(self: &Arc<Self>, queue: u16) {
        // This thread's allocations must not wait for write-back to this very device. The setting
        // needs root; without it memory pressure may deadlock.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let client = Arc::clone(self) as Arc<dyn BlockClient>;
        let mut buffer = vec![0; BUFFER];
        loop {
            match rustix::io::read(&self.fuse, &mut buffer) {
                // The kernel sends whole requests only; one that cannot be parsed cannot be replied
                // to.
                Ok(len) => drop(FuseMessage::parse(&buffer[..len]).map(|message| self.handle(&message, queue, &client))),
                // ENOENT: the request was cancelled.
                Err(IoErrno::INTR | IoErrno::AGAIN | IoErrno::NOENT) => {}
                Err(_) => return,
            }
        }
    }

    fn handle(&self, message: &FuseMessage<'_>, queue: u16, client: &Arc<dyn BlockClient>) {
        let limits = self.device.limits();
        let unique = message.unique;
        let size = limits.sectors * SECTOR;
        match message.opcode {
            op::FORGET | op::BATCH_FORGET | op::INTERRUPT => {}
            op::INIT if message.major() == Some(MAJOR) => self.init(unique, &limits),
            op::INIT => self.reply(unique, Err(Errno::EPROTO)),
            op::GETATTR => self.reply(unique, Ok(&wire::attributes(size))),
            op::OPEN => self.reply(unique, Ok(&wire::open())),
            op::STATFS => self.reply(unique, Ok(&wire::statistics(size, limits.discard_granularity.clamp(512, 1 << 20)))),
            op::RELEASE | op::FLUSH | op::DESTROY => self.reply(unique, Ok(&[])),
            op::READ | op::WRITE | op::FSYNC | op::FALLOCATE => match self.parse_io(message, &limits) {
                Ok(plan) => self.start(unique, plan, &limits, queue, client),
                Err(errno) => self.reply(unique, Err(errno)),
            },
            _ => self.reply(unique, Err(Errno::ENOSYS)),
        }
    }

    fn init(&self, unique: u64, limits: &BlockLimits) {
        let bytes = u64::from(limits.max_sectors) * SECTOR;
        let (queues, depth) = self.device.queues();
        let background = (u32::from(queues) * u32::from(depth)).clamp(12, 4096) as u16;
        let bytes = bytes.clamp(4096, u64::from(BYTES_MAX)) as u32 / 4096 * 4096;
        self.reply(unique, Ok(&wire::init(bytes, background)));
    }

    fn parse_io<'a>(&self, message: &FuseMessage<'a>, limits: &BlockLimits) -> Result<FuseIo<'a>, Errno> {
        let range = |op, flags, offset: u64, len: u64| {
            let block = u64::from(limits.logical_block).max(SECTOR);
            let end = offset.checked_add(len).ok_or(Errno::EINVAL)?;
            if !offset.is_multiple_of(block) || !len.is_multiple_of(block) || end > limits.sectors * SECTOR {
                return Err(Errno::EINVAL);
            }
            Ok(FuseIo { op, flags, sector: offset / SECTOR, sectors: len / SECTOR, data: &[] })
        };
        match message.opcode {
            op::FSYNC => Ok(FuseIo { op: IoOp::Flush, flags: 0, sector: 0, sectors: 0, data: &[] }),
            op::READ => {
                let (offset, len) = message.range().ok_or(Errno::EINVAL)?;
                range(IoOp::Read, 0, offset, u64::from(len.min(BYTES_MAX)))
            }
            op::WRITE => {
                let (offset, len) = message.range().ok_or(Errno::EINVAL)?;
                let data = message.data().ok_or(Errno::EINVAL)?;
                Ok(FuseIo { data, ..range(IoOp::Write, 0, offset, u64::from(len))? })
            }
            _ => {
                let (offset, len, mode) = message.fallocate().ok_or(Errno::EINVAL)?;
                let flags = match mode {
                    _ if limits.max_write_zeroes == 0 => return Err(Errno::EOPNOTSUPP),
                    PUNCH_HOLE => 0,
                    ZERO_RANGE => iod::F_NOUNMAP,
                    _ => return Err(Errno::EOPNOTSUPP),
                };
                range(IoOp::WriteZeroes, flags, offset, len)
            }
        }
    }

    fn start(&self, unique: u64, plan: FuseIo<'_>, limits: &BlockLimits, queue: u16, client: &Arc<dyn BlockClient>) {
        let remaining = plan.pieces(limits).count() as u32;
        if remaining == 0 {
            return self.reply(unique, Ok(&[]));
        }
        let is_read = plan.op == IoOp::Read;
        let data = if is_read { vec![0; (plan.sectors * SECTOR) as usize] } else { Vec::new() };
        let body = if plan.op == IoOp::Write { wire::written(plan.data.len() as u32) } else { Vec::new() };
        let key = {
            let mut state = lock(&self.state);
            if state.requests.len() == REQUESTS_MAX {
                drop(state);
                return self.reply(unique, Err(Errno::ENOMEM));
            }
            state.requests.insert(FuseRequest { unique, remaining, error: None, data, body }) as u16
        };
        for (sector, sectors) in plan.pieces(limits) {
            let at = sector - plan.sector;
            let io = IoCookie { command: key, is_read, start: at as u32, sectors };
            let slot = self.slot(queue, client);
            let begin = (at * SECTOR) as usize;
            let filled = match plan.data.get(begin..begin + sectors as usize * SECTOR as usize) {
                Some(bytes) => self.device.write(&slot, 0, bytes),
                None => Ok(()),
            };
            match filled {
                Ok(()) => {
                    let request = BlockRequest { op: plan.op, flags: plan.flags, sector, sectors, data: DataLocation::Slot };
                    self.device.submit(slot, request, client, io.pack());
                }
                Err(errno) => {
                    self.device.free_slot(slot);
                    self.request_done(io, &[], Err(errno));
                }
            }
        }
        self.device.unplug();
    }

    /// Allocates a slot, waiting for one if necessary. Each refused allocation is notified once,
    /// and each notification wakes one thread.
    fn slot(&self, queue: u16, client: &Arc<dyn BlockClient>) -> IoSlot {
        loop {
            if let Some(slot) = self.device.alloc_slot(queue, client) {
                return slot;
            }
            self.device.unplug();
            let mut state = lock(&self.state);
            while state.slot_notices == 0 {
                state = self.slot_freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.slot_notices -= 1;
        }
    }

    fn request_done(&self, io: IoCookie, data: &[u8], result: Result<(), Errno>) {
        let command = {
            let mut state = lock(&self.state);
            let Some(command) = state.requests.get_mut(io.command as usize) else { return };
            command.remaining -= 1;
            match result {
                Ok(()) => {
                    let begin = io.start as usize * SECTOR as usize;
                    command.data.get_mut(begin..begin + data.len()).into_iter().for_each(|room| room.copy_from_slice(data));
                }
                Err(errno) => command.error = command.error.or(Some(errno)),
            }
            if command.remaining > 0 {
                return;
            }
            state.requests.remove(io.command as usize)
        };
        let body = if io.is_read { &command.data } else { &command.body };
        self.reply(command.unique, command.error.map_or(Ok(body), Err));
    }

    fn reply(&self, unique: u64, result: Result<&[u8], Errno>) {
        let (error, body) = match result {
            Ok(body) => (0, body),
            Err(errno) => (errno.into_raw(), &[][..]),
        };
        let header = wire::reply_header(unique, error, body.len());
        // ENOENT: the requester is gone.
        let _ = rustix::io::writev(&self.fuse, &[IoSlice::new(&header), IoSlice::new(body)]);
    }
}

impl BlockClient for FuseFile {
    fn done(&self, cookie: u64, slot: IoSlot, result: Result<(), Errno>) {
        let io = IoCookie::unpack(cookie);
        let mut data = Vec::new();
        let mut result = result;
        if io.is_read && result.is_ok() {
            data.resize(io.sectors as usize * SECTOR as usize, 0);
            result = self.device.read(&slot, 0, &mut data);
        }
        self.device.free_slot(slot);
        self.request_done(io, &data, result);
    }

    fn slot_freed(&self, _queue: u16) {
        lock(&self.state).slot_notices += 1;
        self.slot_freed.notify_one();
    }
}

/// A FUSE request in terms of the device.
#[derive(Clone, Copy, Debug)]
struct FuseIo<'a> {
    op: IoOp,
    flags: u32,
    sector: u64,
    sectors: u64,
    data: &'a [u8],
}

impl FuseIo<'_> {
    fn pieces(&self, limits: &BlockLimits) -> Box<dyn Iterator<Item = (u64, u32)>> {
        match self.op {
            IoOp::Flush => Box::new(std::iter::once((0, 0))),
            op => Box::new(limits.split(op, self.sector, self.sectors)),
        }
    }
}
