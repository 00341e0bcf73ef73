//! Where a request's data lies in the server, and the copies that the driver makes in the kernel:
//! the broker has the slots, the server's process copies (WIRE.md).

use crate::errno::errno;
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::{pread, pwrite};
use std::sync::{Mutex, MutexGuard, PoisonError};
use uringlet_abi::ublk::{feature, io};
use uringlet_sys::Errno;
use uringlet_ublk::wire::Completion;
use uringlet_ublkd::client::CharDevice;

/// See the table in the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferMode {
    /// The message's memory, allocated when a WRITE arrives: `UBLK_F_NEED_GET_DATA`.
    OnDemand,
    /// A buffer for each tag, at the price of one more copy.
    Preallocated,
    /// The server copies itself: `UBLK_F_USER_COPY`.
    UserCopy,
}

impl BufferMode {
    /// The feature flags a device needs for it.
    #[must_use]
    pub fn flags(self) -> u64 {
        match self {
            Self::OnDemand => feature::NEED_GET_DATA,
            Self::Preallocated => 0,
            Self::UserCopy => feature::USER_COPY,
        }
    }

    /// The mode of a device with these flags.
    #[must_use]
    pub fn from_flags(flags: u64) -> Self {
        if flags & feature::USER_COPY != 0 {
            Self::UserCopy
        } else if flags & feature::NEED_GET_DATA != 0 {
            Self::OnDemand
        } else {
            Self::Preallocated
        }
    }
}

/// One request's part of the shared file.
#[derive(Debug)]
pub(crate) struct SharedSlot<'a> {
    device: &'a CharDevice,
    /// Offset of the data.
    at: u64,
}

impl<'a> SharedSlot<'a> {
    pub(crate) fn new(device: &'a CharDevice, completion: &Completion) -> Self {
        Self { device, at: io::slot(completion.queue, completion.tag) + u64::from(completion.done) }
    }

    /// Fills the uninitialised memory up to its capacity.
    fn fill(&self, memory: &mut Vec<u8>) -> Result<(), Errno> {
        while memory.len() < memory.capacity() {
            let at = self.at + memory.len() as u64;
            if pread(&self.device.file, spare_capacity(memory), at).map_err(errno)? == 0 {
                return Err(Errno::EIO);
            }
        }
        Ok(())
    }

    fn read(&self, bytes: &mut [u8]) -> Result<(), Errno> {
        let read = pread(&self.device.file, &mut *bytes, self.at).map_err(errno)?;
        if read == bytes.len() { Ok(()) } else { Err(Errno::EIO) }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
        let written = pwrite(&self.device.file, bytes, self.at).map_err(errno)?;
        if written == bytes.len() { Ok(()) } else { Err(Errno::ENOSPC) }
    }
}

/// The memory of a tag's data. One request at a time uses it.
#[derive(Debug)]
pub(crate) struct TagBuffer {
    buffers: BufferMode,
    /// The tag's buffer; on demand, the next message's memory, still empty.
    bytes: Mutex<Vec<u8>>,
}

impl TagBuffer {
    pub(crate) fn new(buffers: BufferMode, len_max: usize) -> Self {
        let len = if buffers == BufferMode::Preallocated { len_max } else { 0 };
        Self { buffers, bytes: Mutex::new(vec![0; len]) }
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address for commands without data: the driver refuses one with USER_COPY and requires
    /// one otherwise.
    pub(crate) fn address(&self) -> u64 {
        if self.buffers == BufferMode::UserCopy { 0 } else { self.bytes().as_ptr().addr() as u64 }
    }

    /// Allocates a message of `len` bytes for a WRITE; returns its address.
    pub(crate) fn allocate(&self, len: usize) -> u64 {
        let mut bytes = self.bytes();
        *bytes = Vec::with_capacity(len);
        bytes.as_ptr().addr() as u64
    }

    /// A WRITE's data as the message's bytes.
    pub(crate) fn take(&self, slot: &SharedSlot<'_>, len: usize) -> Result<Bytes, Errno> {
        let mut message = match self.buffers {
            BufferMode::OnDemand => std::mem::take(&mut *self.bytes()),
            BufferMode::UserCopy => Vec::with_capacity(len),
            BufferMode::Preallocated => {
                let mut bytes = self.bytes();
                let buffer = bytes.get_mut(..len).ok_or(Errno::EINVAL)?;
                slot.read(buffer)?;
                return Ok(Bytes::copy_from_slice(buffer));
            }
        };
        slot.fill(&mut message)?;
        // The capacity may exceed `len`.
        let message = Bytes::from(message);
        if message.len() >= len { Ok(message.slice(..len)) } else { Err(Errno::EIO) }
    }

    /// Stores a READ's data; returns the address from which the driver copies.
    pub(crate) fn give(&self, slot: &SharedSlot<'_>, data: &Bytes) -> Result<u64, Errno> {
        match self.buffers {
            BufferMode::OnDemand => slot.write(data).map(|()| data.as_ptr().addr() as u64),
            BufferMode::UserCopy => slot.write(data).map(|()| 0),
            BufferMode::Preallocated => {
                let mut bytes = self.bytes();
                let buffer = bytes.get_mut(..data.len()).ok_or(Errno::EINVAL)?;
                buffer.copy_from_slice(data);
                slot.write(buffer).map(|()| buffer.as_ptr().addr() as u64)
            }
        }
    }
}
