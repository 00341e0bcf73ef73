//! The shared memory of a device whose server is this process.

use crate::frontend::{DataLocation, SlotExtent};
use crate::platform::{IoBuffers, SlotRange};
use uringlet_abi::ublk::{IoDesc, io};
use uringlet_sys::shared_file::SharedFile;
use uringlet_sys::user::copy_in_user;
use uringlet_sys::{Errno, UserPtr};

/// See the module.
#[derive(Debug)]
pub struct MemfdBuffers {
    file: SharedFile,
}

impl MemfdBuffers {
    pub(super) fn new(queues: u16, _depth: u16) -> Result<Self, Errno> {
        let queues = u64::from(queues);
        let len = io::BUF_OFFSET + (queues << io::QUEUE_SHIFT);
        Ok(Self { file: SharedFile::new(c"ublkc", len, (queues * io::DESC_STRIDE) as usize)? })
    }

    /// A new descriptor of the char device for the program.
    pub(super) fn open(&self, flags: u32) -> Result<i32, Errno> {
        self.file.open(flags)
    }

    fn at(range: SlotRange) -> u64 {
        io::slot(range.queue, range.tag) + u64::from(range.offset)
    }
}

impl IoBuffers for MemfdBuffers {
    fn write_iod(&self, queue: u16, tag: u16, iod: &IoDesc, _done: u32) {
        let at = io::descriptor(queue, tag);
        let words = [u64::from(iod.op_flags) | u64::from(iod.nr_sectors) << 32, iod.start_sector, iod.addr];
        for (i, word) in words.into_iter().enumerate() {
            self.file.store(at as usize + i * 8, word);
        }
    }

    fn copy_to_server(&self, range: SlotRange, data: DataLocation, server: u64) -> u32 {
        let (server, len) = (UserPtr::at(server), range.len as usize);
        let copied = match data {
            DataLocation::Slot => self.file.copy_to_user(Self::at(range), server, len),
            DataLocation::Memory(from) => copy_in_user(server, from.add(range.offset as usize), len),
        };
        copied as u32
    }

    fn copy_from_server(&self, range: SlotRange, data: DataLocation, server: u64) -> u32 {
        let (server, len) = (UserPtr::at(server), range.len as usize);
        let copied = match data {
            DataLocation::Slot => self.file.copy_from_user(Self::at(range), server, len),
            DataLocation::Memory(to) => copy_in_user(to.add(range.offset as usize), server, len),
        };
        copied as u32
    }

    fn slot_extent(&self, queue: u16, tag: u16) -> SlotExtent {
        SlotExtent { fd: self.file.number(), offset: io::slot(queue, tag), len: 1 << io::TAG_SHIFT }
    }

    fn read(&self, range: SlotRange, bytes: &mut [u8]) -> Result<(), Errno> {
        self.file.read(Self::at(range), bytes)
    }

    fn write(&self, range: SlotRange, bytes: &[u8]) -> Result<(), Errno> {
        self.file.write(Self::at(range), bytes)
    }
}
