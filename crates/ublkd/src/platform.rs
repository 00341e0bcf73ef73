//! What the driver needs of the broker's process.

use crate::channel::{RemoteCommand, ServerChannel};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno as IoErrno, pread, pwrite};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use uringlet_abi::ublk::{IoDesc, io};
use uringlet_sys::{Errno, process};
use uringlet_ublk::frontend::{DataLocation, SlotExtent};
use uringlet_ublk::platform::{IoBuffers, Payload, Platform, SlotRange, Transport};

pub(crate) fn errno(error: IoErrno) -> Errno {
    Errno::new(error.raw_os_error())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The broker.
#[derive(Debug)]
pub(crate) struct BrokerPlatform;

impl Platform for BrokerPlatform {
    type Command = RemoteCommand;
    type Buffers = SharedBuffers;
    type Transport = ChannelTransport;

    fn alloc_buffers(&self, queues: u16, depth: u16) -> Result<SharedBuffers, Errno> {
        let file = memfd_create("ublkc", MemfdFlags::CLOEXEC).map_err(errno)?;
        ftruncate(&file, io::BUF_OFFSET + (u64::from(queues) << io::QUEUE_SHIFT)).map_err(errno)?;
        let tags = usize::from(queues) * usize::from(depth);
        let iods = (0..tags).map(|_| Mutex::default()).collect();
        Ok(SharedBuffers { file, depth, iods })
    }

    fn cpus(&self) -> u32 {
        process::cpu_count()
    }
}

/// The shared file of a device. Its server's process moves the data.
#[derive(Debug)]
pub(crate) struct SharedBuffers {
    file: OwnedFd,
    depth: u16,
    /// By tag: what [`IoBuffers::write_iod`] said last. Written before the command's completion, on the same thread.
    iods: Vec<Mutex<(IoDesc, u32)>>,
}

/// The rings to the server's process: those of the open char device, while there is one.
#[derive(Debug, Default)]
pub(crate) struct ChannelTransport(RwLock<Option<Arc<ServerChannel>>>);

impl ChannelTransport {
    /// The char device is open, or closed.
    pub(crate) fn set_channel(&self, channel: Option<Arc<ServerChannel>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = channel;
    }

    /// Used without the lock.
    fn channel(&self) -> Option<Arc<ServerChannel>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Transport for ChannelTransport {
    fn unplug(&self) {
        if let Some(channel) = self.channel() {
            channel.flush();
        }
    }

    fn busy_poll(&self, enough: &mut dyn FnMut() -> bool) {
        if let Some(channel) = self.channel() {
            channel.busy_poll(enough);
        }
    }
}

impl SharedBuffers {
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn tag_index(&self, queue: u16, tag: u16) -> usize {
        usize::from(queue) * usize::from(self.depth) + usize::from(tag)
    }

    /// What [`IoBuffers::write_iod`] said last.
    pub(crate) fn iod(&self, queue: u16, tag: u16) -> (IoDesc, u32) {
        self.iods.get(self.tag_index(queue, tag)).map_or_else(Default::default, |iod| *lock(iod))
    }
}

impl IoBuffers for SharedBuffers {
    fn write_iod(&self, queue: u16, tag: u16, iod: &IoDesc, done: u32) {
        *lock(&self.iods[self.tag_index(queue, tag)]) = (*iod, done);
        // Only a machine without a page of memory left fails it; the server then serves what was there before, once more.
        let _ = pwrite(&self.file, &iod.to_bytes(), io::descriptor(queue, tag));
    }

    fn copy_to_server(&self, span: SlotRange, _data: DataLocation, _server: u64) -> u32 {
        span.len
    }

    fn copy_from_server(&self, span: SlotRange, _data: DataLocation, _server: u64) -> u32 {
        span.len
    }

    fn slot_extent(&self, queue: u16, tag: u16) -> SlotExtent {
        SlotExtent { fd: self.file.as_raw_fd(), offset: io::slot(queue, tag), len: 1 << io::TAG_SHIFT }
    }

    fn read(&self, span: SlotRange, bytes: &mut [u8]) -> Result<(), Errno> {
        let read = pread(&self.file, &mut *bytes, io::slot(span.queue, span.tag) + u64::from(span.offset)).map_err(errno)?;
        if read == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
    }

    fn write(&self, span: SlotRange, bytes: &[u8]) -> Result<(), Errno> {
        let written = pwrite(&self.file, bytes, io::slot(span.queue, span.tag) + u64::from(span.offset)).map_err(errno)?;
        if written == bytes.len() { Ok(()) } else { Err(Errno::ENOSPC) }
    }
}

/// A control command's payload, as it came and as it goes back.
#[derive(Debug)]
pub(crate) struct ControlPayload {
    bytes: Vec<u8>,
    room: usize,
    pub(crate) at: usize,
    pub(crate) written: Vec<u8>,
}

impl ControlPayload {
    pub(crate) fn new(bytes: &[u8], room: u16) -> Self {
        Self { bytes: bytes.to_vec(), room: room.into(), at: 0, written: Vec::new() }
    }
}

impl Payload for ControlPayload {
    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        let part = at.checked_add(bytes.len()).and_then(|end| self.bytes.get(at..end)).ok_or(Errno::EFAULT)?;
        bytes.copy_from_slice(part);
        Ok(())
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.room) {
            return Err(Errno::EFAULT);
        }
        // No command writes twice.
        (self.at, self.written) = (at, bytes.to_vec());
        Ok(())
    }
}
