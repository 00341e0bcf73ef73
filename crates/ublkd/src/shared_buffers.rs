//! The shared file of a device: its descriptors and data.

use crate::sync::{errno, lock};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno as IoErrno, pread, pwrite};
use std::sync::Mutex;
use uringlet_abi::ublk::{DevInfo, IoDesc, io};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{DataLocation, SlotExtent};
use uringlet_ublk::platform::{IoBuffers, SlotRange};
use uringlet_ublk::wire::DeviceRecord;

/// The file that broker and server share. The server's process moves the data.
#[derive(Debug)]
pub(crate) struct SharedBuffers {
    file: OwnedFd,
    depth: u16,
    /// By tag: the last [`IoBuffers::write_iod`]. Written before the command's completion, on the
    /// same thread.
    iods: Vec<Mutex<(IoDesc, u32)>>,
    /// Held while the record is written.
    record: Mutex<()>,
}

impl SharedBuffers {
    pub(crate) fn new(queues: u16, depth: u16) -> Result<Self, IoErrno> {
        let file = memfd_create("ublkc", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, io::BUF_OFFSET + (u64::from(queues) << io::QUEUE_SHIFT))?;
        Ok(Self::of_file(file, queues, depth))
    }

    /// The file of another broker's device, and what that has left in it.
    ///
    /// # Errors
    /// `INVAL`: not such a file.
    pub(crate) fn adopt(file: OwnedFd) -> Result<(DeviceRecord, Self), IoErrno> {
        let mut bytes = [0; DeviceRecord::SIZE];
        let read = pread(&file, &mut bytes, DeviceRecord::OFFSET)?;
        let record = DeviceRecord::parse(&bytes[..read]).ok_or(IoErrno::INVAL)?;
        let DevInfo { nr_hw_queues, queue_depth, .. } = record.info;
        let is_valid = (1..=io::MAX_QUEUES).contains(&nr_hw_queues) && (1..=io::MAX_DEPTH).contains(&queue_depth);
        if is_valid { Ok((record, Self::of_file(file, nr_hw_queues, queue_depth))) } else { Err(IoErrno::INVAL) }
    }

    fn of_file(file: OwnedFd, queues: u16, depth: u16) -> Self {
        let tags = usize::from(queues) * usize::from(depth);
        Self { file, depth, iods: (0..tags).map(|_| Mutex::default()).collect(), record: Mutex::default() }
    }

    /// Leaves for another broker what it needs; `None`: nothing. Of two updates at once the later
    /// one counts, so `record` is asked under a lock.
    pub(crate) fn update_record(&self, record: impl FnOnce() -> Option<DeviceRecord>) {
        let _one = lock(&self.record);
        let bytes = record().map_or([0; DeviceRecord::SIZE], |record| record.to_bytes());
        // Fails only if the machine has no free page left: then the device ends with this broker.
        let _ = pwrite(&self.file, &bytes, DeviceRecord::OFFSET);
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn tag_index(&self, queue: u16, tag: u16) -> usize {
        usize::from(queue) * usize::from(self.depth) + usize::from(tag)
    }

    /// The last [`IoBuffers::write_iod`] of a tag.
    pub(crate) fn iod(&self, queue: u16, tag: u16) -> (IoDesc, u32) {
        self.iods.get(self.tag_index(queue, tag)).map_or_else(Default::default, |iod| *lock(iod))
    }
}

impl IoBuffers for SharedBuffers {
    fn write_iod(&self, queue: u16, tag: u16, iod: &IoDesc, done: u32) {
        *lock(&self.iods[self.tag_index(queue, tag)]) = (*iod, done);
        // Fails only if the machine has no free page left; the server then repeats the previous
        // request.
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
