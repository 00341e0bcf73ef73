//! A device whose server is this process: driver and front ends without a broker, for programs that
//! offer one block device and nothing else.
//!
//! The server has no thread. A request runs on the thread that submits it, inside the driver's
//! call, and its commit completes it there. A slow target therefore blocks the front end's thread;
//! for NBD that is one connection.
//!
//! ```text
//!   front end: submit() --> driver: the tag's command completes --> InlineCommand::complete():
//!              target --> COMMIT_AND_FETCH_REQ --> done(): reply
//! ```
//! `Differs:` from a broker's device: it ends with the process, and other processes do not see it.

use crate::sync::lock;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use uringlet_abi::ublk::{CtrlCmd, DevInfo, IoCmd, IoDesc, ParamBasic, ParamDiscard, ctrl, feature, io, iod, param};
use uringlet_sys::{Errno, process};
use uringlet_ublk::frontend::{DataLocation, FrontEnd, SECTOR, SlotExtent};
use uringlet_ublk::platform::{Caller, DirectTransport, IoBuffers, Payload, Platform, ServerCommand, SlotRange};
use uringlet_ublk::{Driver, IoCommand, UblkDevice};
use uringlet_ublkd::client::ServerParams;

/// Most requests in flight.
const QUEUE_DEPTH: u16 = 128;
/// Longest read or write, bytes.
const IO_BYTES_MAX: u32 = 1 << 20;
/// Longest discard or write of zeroes, sectors.
const RANGE_SECTORS_MAX: u32 = 1 << 21;
/// The driver's name for the task that fetches all tags.
const TASK: u64 = 1;
/// Device number for "the lowest free one".
const ANY_DEVICE: u32 = u32::MAX;

/// What keeps the bytes. Positions and lengths are whole blocks within the device.
pub trait BlockTarget: Send + Sync + std::fmt::Debug + 'static {
    /// Fills `bytes` from position `at` on.
    ///
    /// # Errors
    /// The request fails with it.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno>;

    /// Writes `bytes` at position `at`.
    ///
    /// # Errors
    /// The request fails with it.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// The request fails with it.
    fn flush(&self) -> Result<(), Errno>;

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// The request fails with it.
    fn zero(&self, at: u64, len: u64) -> Result<(), Errno>;
}

/// Reads return zeroes; writes are dropped.
#[derive(Clone, Copy, Debug)]
pub struct NullTarget;

impl BlockTarget for NullTarget {
    fn read(&self, _: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        bytes.fill(0);
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn flush(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn zero(&self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }
}

/// The driver's platform: this process.
#[derive(Debug)]
struct Local;

impl Platform for Local {
    type Command = InlineCommand;
    type Buffers = EmbeddedBuffers;
    type Transport = DirectTransport;

    fn alloc_buffers(&self, _: u16, depth: u16) -> Result<EmbeddedBuffers, Errno> {
        Ok(EmbeddedBuffers((0..depth).map(|_| Mutex::default()).collect()))
    }

    fn cpus(&self) -> u32 {
        process::cpu_count()
    }
}

/// A tag's descriptor, and as many bytes as its longest request needed.
#[derive(Debug, Default)]
struct TagSlot {
    iod: IoDesc,
    bytes: Vec<u8>,
}

impl TagSlot {
    fn bytes_at(&mut self, offset: u32, len: usize) -> &mut [u8] {
        let range = offset as usize..offset as usize + len;
        if self.bytes.len() < range.end {
            self.bytes.resize(range.end, 0);
        }
        &mut self.bytes[range]
    }
}

/// The slots of the one queue, by tag. A slot is locked while bytes are copied and while the target
/// runs, never while the driver is called.
#[derive(Debug)]
struct EmbeddedBuffers(Vec<Mutex<TagSlot>>);

impl EmbeddedBuffers {
    fn slot(&self, tag: u16) -> std::sync::MutexGuard<'_, TagSlot> {
        lock(&self.0[usize::from(tag)])
    }
}

impl IoBuffers for EmbeddedBuffers {
    fn write_iod(&self, _: u16, tag: u16, iod: &IoDesc, _: u32) {
        self.slot(tag).iod = *iod;
    }

    // USER_COPY: the server uses the data in place.
    fn copy_to_server(&self, span: SlotRange, _: DataLocation, _: u64) -> u32 {
        span.len
    }

    fn copy_from_server(&self, span: SlotRange, _: DataLocation, _: u64) -> u32 {
        span.len
    }

    fn slot_extent(&self, _: u16, _: u16) -> SlotExtent {
        SlotExtent { fd: -1, offset: 0, len: IO_BYTES_MAX }
    }

    fn read(&self, span: SlotRange, bytes: &mut [u8]) -> Result<(), Errno> {
        bytes.copy_from_slice(self.slot(span.tag).bytes_at(span.offset, bytes.len()));
        Ok(())
    }

    fn write(&self, span: SlotRange, bytes: &[u8]) -> Result<(), Errno> {
        self.slot(span.tag).bytes_at(span.offset, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }
}

#[derive(Debug)]
struct InlineServer {
    target: Arc<dyn BlockTarget>,
    device: OnceLock<Weak<UblkDevice<Local>>>,
}

/// A tag's FETCH command. Its completion runs the request.
#[derive(Debug)]
struct InlineCommand {
    server: Arc<InlineServer>,
    tag: u16,
}

impl ServerCommand for InlineCommand {
    fn complete(self, res: i32) {
        let Some(device) = self.server.device.get().and_then(Weak::upgrade) else { return };
        if res != io::RES_OK {
            // The device was stopped: no more requests will come.
            return;
        }
        let result = {
            let mut slot = device.buffers().slot(self.tag);
            self.server.handle(&mut slot)
        };
        let result = result.unwrap_or_else(|errno| -errno.into_raw());
        let cmd = IoCmd { q_id: 0, tag: self.tag, result, addr: 0 };
        device.io_commands([IoCommand { task: TASK, cmd_op: io::COMMIT_AND_FETCH_REQ.into(), cmd, command: self }]);
    }
}

impl InlineServer {
    /// Executes one request; returns the bytes done.
    fn handle(&self, slot: &mut TagSlot) -> Result<i32, Errno> {
        let IoDesc { op_flags, nr_sectors, start_sector, .. } = slot.iod;
        // A flush has no position: the descriptor says -1.
        let (at, len) = (start_sector.saturating_mul(SECTOR), u64::from(nr_sectors) * SECTOR);
        match op_flags & 0xff {
            iod::READ => self.target.read(at, slot.bytes_at(0, len as usize)).map(|()| len as i32),
            iod::WRITE => self.target.write(at, slot.bytes_at(0, len as usize)).map(|()| len as i32),
            iod::FLUSH => self.target.flush().map(|()| 0),
            iod::DISCARD | iod::WRITE_ZEROES => self.target.zero(at, len).map(|()| 0),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// The payload of a control command.
struct ControlBytes(Vec<u8>);

impl Payload for ControlBytes {
    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        bytes.copy_from_slice(at.checked_add(bytes.len()).and_then(|end| self.0.get(at..end)).ok_or(Errno::EFAULT)?);
        Ok(())
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        at.checked_add(bytes.len()).and_then(|end| self.0.get_mut(at..end)).ok_or(Errno::EFAULT)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// An embedded device; dropping it removes the device.
#[derive(Debug)]
pub struct EmbeddedDevice {
    driver: Driver<Local>,
    id: u32,
}

impl EmbeddedDevice {
    /// Starts a device of `size` bytes in blocks of 512, offered by `front_ends`.
    ///
    /// # Errors
    /// `EINVAL`: the size is zero or no multiple of a block; those of the front ends.
    pub fn start(size: u64, target: Arc<dyn BlockTarget>, front_ends: Vec<Arc<dyn FrontEnd>>) -> Result<Self, Errno> {
        if size == 0 || !size.is_multiple_of(SECTOR) {
            return Err(Errno::EINVAL);
        }
        let mut embedded = Self { driver: Driver::new(Local, front_ends), id: ANY_DEVICE };
        let info = DevInfo {
            nr_hw_queues: 1,
            queue_depth: QUEUE_DEPTH,
            max_io_buf_bytes: IO_BYTES_MAX,
            dev_id: ANY_DEVICE,
            flags: feature::USER_COPY | feature::CMD_IOCTL_ENCODE,
            ..DevInfo::default()
        };
        let info = DevInfo::from_bytes(
            &embedded.control_command(ctrl::ADD_DEV, info.to_bytes().to_vec(), 0)?.try_into().map_err(|_| Errno::EINVAL)?,
        );
        embedded.id = info.dev_id;
        embedded.control_command(ctrl::SET_PARAMS, params(size), 0)?;
        let device = embedded.driver.device(embedded.id).ok_or(Errno::ENODEV)?;
        device.open()?;
        let server = Arc::new(InlineServer { target, device: OnceLock::from(Arc::downgrade(&device)) });
        device.io_commands((0..QUEUE_DEPTH).map(|tag| {
            let cmd = IoCmd { q_id: 0, tag, result: 0, addr: 0 };
            IoCommand { task: TASK, cmd_op: io::FETCH_REQ.into(), cmd, command: InlineCommand { server: Arc::clone(&server), tag } }
        }));
        embedded.control_command(ctrl::START_DEV, Vec::new(), std::process::id().into())?;
        Ok(embedded)
    }

    /// The device number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    fn control_command(&self, nr: u8, bytes: Vec<u8>, data: u64) -> Result<Vec<u8>, Errno> {
        let caller = Caller { uid: 0, gid: 0, is_admin: true };
        // The payload is passed beside the header: any non-zero address will do.
        let header = CtrlCmd { dev_id: self.id, queue_id: u16::MAX, len: bytes.len() as u16, addr: 1, data, ..CtrlCmd::default() };
        let mut payload = ControlBytes(bytes);
        self.driver.control(&caller, nr.into(), header, &mut payload)?;
        Ok(payload.0)
    }
}

impl Drop for EmbeddedDevice {
    fn drop(&mut self) {
        if let Some(device) = self.driver.device(self.id) {
            // An error means that the device never went live.
            let _ = self.control_command(ctrl::STOP_DEV, Vec::new(), 0);
            device.close();
            let _ = self.control_command(ctrl::DEL_DEV, Vec::new(), 0);
        }
    }
}

/// The device's parameters.
fn params(size: u64) -> Vec<u8> {
    let basic = ParamBasic {
        attrs: param::ATTR_VOLATILE_CACHE,
        logical_bs_shift: 9,
        physical_bs_shift: 12,
        io_opt_shift: 12,
        io_min_shift: 9,
        max_sectors: IO_BYTES_MAX / SECTOR as u32,
        dev_sectors: size / SECTOR,
        ..ParamBasic::default()
    };
    let discard = ParamDiscard {
        discard_granularity: 4096,
        max_discard_sectors: RANGE_SECTORS_MAX,
        max_write_zeroes_sectors: RANGE_SECTORS_MAX,
        max_discard_segments: 1,
        ..ParamDiscard::default()
    };
    ServerParams { basic, discard }.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_map::DeviceMap;
    use crate::sparse::SparseMemory;
    use uringlet_ublk::blocking::BlockingClient;
    use uringlet_ublk::frontend::IoOp;

    #[derive(Debug, Default)]
    struct RecordingTarget {
        memory: SparseMemory,
        flushes: Mutex<u32>,
    }

    impl BlockTarget for RecordingTarget {
        fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
            self.memory.read(at, bytes);
            Ok(())
        }

        fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
            if at == 0 {
                return Err(Errno::ENOSPC);
            }
            self.memory.write(at, bytes);
            Ok(())
        }

        fn flush(&self) -> Result<(), Errno> {
            *lock(&self.flushes) += 1;
            Ok(())
        }

        fn zero(&self, at: u64, len: u64) -> Result<(), Errno> {
            self.memory.zero(at, len);
            Ok(())
        }
    }

    #[test]
    fn requests_run_on_the_submitting_thread() {
        let (target, devices) = (Arc::new(RecordingTarget::default()), Arc::new(DeviceMap::default()));
        let embedded =
            EmbeddedDevice::start(4 << 20, Arc::clone(&target) as Arc<dyn BlockTarget>, vec![Arc::clone(&devices) as Arc<dyn FrontEnd>])
                .unwrap();
        let device = devices.first().expect("a device");
        assert_eq!((device.id(), device.limits().sectors), (embedded.id(), 8192));
        let client = BlockingClient::new(Arc::clone(&device), 0);
        // Longer than the longest request.
        let data: Vec<u8> = (0..3 << 20).map(|i: u32| (i / 1000) as u8).collect();
        client.write(8, &data, 0).unwrap();
        let mut back = vec![0; data.len()];
        client.read(8, &mut back).unwrap();
        assert!(back == data);
        assert_eq!(client.write(0, &[1; 512], 0), Err(Errno::ENOSPC));
        let before = *lock(&target.flushes);
        client.run_without_data(IoOp::Flush, 0, 0, 0).unwrap();
        assert_eq!(*lock(&target.flushes), before + 1);
        client.run_without_data(IoOp::WriteZeroes, 0, 8, 8).unwrap();
        client.read(8, &mut back[..8192]).unwrap();
        assert!(back[..4096].iter().all(|&byte| byte == 0) && back[4096..8192] == data[4096..8192]);
        drop(embedded);
        assert!(devices.first().is_none());
        assert_eq!(client.write(8, &[1; 512], 0), Err(Errno::EIO));
    }

    #[test]
    fn a_size_of_no_whole_sectors_is_refused() {
        assert_eq!(EmbeddedDevice::start(0, Arc::new(NullTarget), Vec::new()).err(), Some(Errno::EINVAL));
        assert_eq!(EmbeddedDevice::start(513, Arc::new(NullTarget), Vec::new()).err(), Some(Errno::EINVAL));
    }
}
