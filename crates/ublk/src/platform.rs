//! What the driver needs from the process that it runs in.

use crate::frontend::{DataLocation, SlotExtent};
use core::fmt::Debug;
use uringlet_abi::ublk::IoDesc;
use uringlet_sys::Errno;

/// The process of the driver: an attached program, a broker, a test.
pub trait Platform: Send + Sync + Debug + Sized + 'static {
    /// A server's command that waits for its CQE.
    type Command: ServerCommand;
    /// The memory of a device's descriptors and data.
    type Buffers: IoBuffers;
    /// How completions reach the server.
    type Transport: Transport;

    /// Allocates the memory of a new device.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`: ADD_DEV fails with it.
    fn alloc_buffers(&self, queues: u16, depth: u16) -> Result<Self::Buffers, Errno>;

    /// Number of CPUs: no device has more queues.
    fn cpus(&self) -> u32;
}

/// A server's command that waits. It is ended by exactly one [`complete`](Self::complete).
pub trait ServerCommand: Send + Debug + 'static {
    /// Posts the CQE. The server may not see it before [`Transport::unplug`], which the same thread
    /// calls soon. Called without a lock held.
    fn complete(self, res: i32);
}

/// How the completions of a device reach its server: directly, or through rings in shared memory.
pub trait Transport: Send + Sync + Debug + Default + 'static {
    /// Publishes all completions so far, and wakes the server if it sleeps.
    fn unplug(&self) {}

    /// See [`BlockDevice::busy_poll`](crate::frontend::BlockDevice::busy_poll).
    fn busy_poll(&self, _enough: &mut dyn FnMut() -> bool) {}
}

/// The transport to a server in the same process: it sees a completion at once.
#[derive(Debug, Default)]
pub struct DirectTransport;

impl Transport for DirectTransport {}

/// A part of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// Queue.
    pub queue: u16,
    /// Tag.
    pub tag: u16,
    /// Offset from the beginning of the slot (or of the request's memory), bytes.
    pub offset: u32,
    /// Length, bytes.
    pub len: u32,
}

/// The memory that a device shares with its server: descriptors and slots.
pub trait IoBuffers: Send + Sync + Debug + 'static {
    /// Writes a descriptor, which the server reads after the CQE. The request's data begins `done`
    /// bytes into the slot: bytes of earlier pieces are in front of it.
    fn write_iod(&self, queue: u16, tag: u16, iod: &IoDesc, done: u32);

    /// Copies a WRITE's data to the server's address. Returns the number of bytes: fewer where the
    /// address is bad.
    ///
    /// The broker returns the full length: the server's process copies.
    fn copy_to_server(&self, range: SlotRange, data: DataLocation, server: u64) -> u32;

    /// Copies a READ's data from the server's address; otherwise as
    /// [`copy_to_server`](Self::copy_to_server).
    fn copy_from_server(&self, range: SlotRange, data: DataLocation, server: u64) -> u32;

    /// The extent of a slot.
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

/// The sender of a control command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The kernel would find CAP_SYS_ADMIN.
    pub is_admin: bool,
}

/// The memory at a control command's `addr`. `at` is the offset from there, bytes.
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
