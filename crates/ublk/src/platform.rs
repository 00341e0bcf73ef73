//! What the driver needs from whoever it runs in.

use crate::frontend::{DataLocation, SlotExtent};
use core::fmt::Debug;
use uringlet_abi::ublk::IoDesc;
use uringlet_sys::Errno;

/// The surroundings: an attached program, a broker, a test.
pub trait Platform: Send + Sync + Debug + Sized + 'static {
    /// A server's command that waits for its CQE.
    type Command: ServerCommand;
    /// Where the descriptors and data of a device lie.
    type Buffers: IoBuffers;
    /// How completions reach the server.
    type Transport: Transport;

    /// Memory for a new device.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`: ADD_DEV fails with it.
    fn alloc_buffers(&self, queues: u16, depth: u16) -> Result<Self::Buffers, Errno>;

    /// CPUs: no device has more queues.
    fn cpus(&self) -> u32;
}

/// A server's command that waits: exactly one [`complete`](Self::complete) ends it.
pub trait ServerCommand: Send + Debug + 'static {
    /// Posts its CQE. The server may not see it before [`Transport::unplug`], which the same thread calls soon.
    /// Called without a lock held.
    fn complete(self, res: i32);
}

/// How completions of a device reach its server: at once, or through shared memory and a wake-up.
pub trait Transport: Send + Sync + Debug + Default + 'static {
    /// Publishes all completions so far, and wakes the server if it sleeps.
    fn unplug(&self) {}

    /// See [`BlockDevice::busy_poll`](crate::frontend::BlockDevice::busy_poll).
    fn busy_poll(&self, _enough: &mut dyn FnMut() -> bool) {}
}

/// The transport to a server in the same process: a completed command is seen at once.
#[derive(Debug, Default)]
pub struct DirectTransport;

impl Transport for DirectTransport {}

/// A piece of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// Queue.
    pub queue: u16,
    /// Tag.
    pub tag: u16,
    /// Bytes behind the beginning of the slot (or of the request's memory).
    pub offset: u32,
    /// Length, bytes.
    pub len: u32,
}

/// The shared file of a device.
pub trait IoBuffers: Send + Sync + Debug + 'static {
    /// Writes a descriptor. The server reads it after the CQE. Its bytes lie `done` bytes behind the slot's beginning: what came
    /// in earlier pieces is in front of them.
    fn write_iod(&self, queue: u16, tag: u16, iod: &IoDesc, done: u32);

    /// Copies a WRITE's data to the server's address. Bytes copied: fewer where the address is bad.
    ///
    /// Where the server's own side does that (a broker), all of them.
    fn copy_to_server(&self, range: SlotRange, data: DataLocation, server: u64) -> u32;

    /// Copies a READ's data from the server's address; as [`copy_to_server`](Self::copy_to_server).
    fn copy_from_server(&self, range: SlotRange, data: DataLocation, server: u64) -> u32;

    /// Where a slot lies.
    fn slot_extent(&self, queue: u16, tag: u16) -> SlotExtent;

    /// Copies from a slot.
    ///
    /// # Errors
    /// Those of pread(2).
    fn read(&self, range: SlotRange, bytes: &mut [u8]) -> Result<(), Errno>;

    /// Copies into a slot.
    ///
    /// # Errors
    /// Those of pwrite(2).
    fn write(&self, range: SlotRange, bytes: &[u8]) -> Result<(), Errno>;
}

/// Who sends a control command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// What the kernel asks CAP_SYS_ADMIN for.
    pub is_admin: bool,
}

/// The memory that a control command's `addr` names; `at` counts from there, in bytes.
pub trait Payload {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// `EFAULT`.
    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<(), Errno>;

    /// Stores `bytes`.
    ///
    /// # Errors
    /// `EFAULT`.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Errno>;
}
