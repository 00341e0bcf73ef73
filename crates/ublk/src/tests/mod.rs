//! A harness for the driver: plain memory, commands that log their results, a server that the test
//! plays.

mod control;
mod io;
mod lifecycle;
#[cfg(loom)]
mod model;
mod random;
mod threads;

use crate::frontend::{BlockClient, BlockDevice, BlockRequest, DataLocation, FrontEnd, IoOp, IoSlot, SlotExtent};
use crate::params;
use crate::platform::{Caller, DirectTransport, IoBuffers, Payload, Platform, ServerCommand, SlotRange};
use crate::{Driver, IoCommand, UblkDevice};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Mutex;
use uringlet_abi::ublk::{CtrlCmd, DevInfo, IoCmd, IoDesc, ParamBasic, ParamDiscard, ctrl, feature, io as ublk_io, param};
use uringlet_sys::Errno;

/// Size of the server's memory: addresses beyond it fault.
const SERVER: usize = 1 << 20;
/// Size of a slot.
const SLOT: usize = 64 << 10;

/// Results by command number, in order.
type Log = Arc<Mutex<Vec<(u64, i32)>>>;

#[derive(Debug)]
struct LoggedCommand {
    id: u64,
    log: Log,
    is_done: bool,
}

impl ServerCommand for LoggedCommand {
    fn complete(mut self, res: i32) {
        self.is_done = true;
        self.log.lock().unwrap().push((self.id, res));
    }
}

impl Drop for LoggedCommand {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.is_done, "command {} was lost", self.id);
        }
    }
}

#[derive(Debug)]
struct TestBuffers {
    server: Arc<Mutex<Vec<u8>>>,
    slots: Mutex<BTreeMap<(u16, u16), Vec<u8>>>,
    descriptors: Mutex<BTreeMap<(u16, u16), IoDesc>>,
    /// Called once, in the middle of the next copy to the server.
    during_copy: OneShotHook,
}

/// A closure that is called once.
#[derive(Default)]
struct OneShotHook(Mutex<Option<std::boxed::Box<dyn FnOnce() + Send>>>);

impl OneShotHook {
    fn set(&self, f: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some(std::boxed::Box::new(f));
    }
}

impl core::fmt::Debug for OneShotHook {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OneShotHook")
    }
}

impl TestBuffers {
    fn slot<R>(&self, range: SlotRange, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut slots = self.slots.lock().unwrap();
        let slot = slots.entry((range.queue, range.tag)).or_insert_with(|| vec![0; SLOT]);
        f(&mut slot[range.offset as usize..(range.offset + range.len) as usize])
    }

    fn server<R>(&self, range: SlotRange, addr: u64, f: impl FnOnce(&mut [u8], &mut [u8]) -> R) -> (u32, R) {
        let mut server = self.server.lock().unwrap();
        let from = (addr as usize).min(SERVER);
        let len = (range.len as usize).min(SERVER - from);
        let result = self.slot(SlotRange { len: len as u32, ..range }, |slot| f(slot, &mut server[from..from + len]));
        (len as u32, result)
    }
}

impl IoBuffers for TestBuffers {
    fn write_iod(&self, queue: u16, tag: u16, iod: &IoDesc, _done: u32) {
        self.descriptors.lock().unwrap().insert((queue, tag), *iod);
    }

    fn copy_to_server(&self, range: SlotRange, _: DataLocation, server: u64) -> u32 {
        let copied = self.server(range, server, |slot, server| server.copy_from_slice(slot)).0;
        let during_copy = self.during_copy.0.lock().unwrap().take();
        if let Some(during_copy) = during_copy {
            during_copy();
        }
        copied
    }

    fn copy_from_server(&self, range: SlotRange, _: DataLocation, server: u64) -> u32 {
        self.server(range, server, |slot, server| slot.copy_from_slice(server)).0
    }

    fn slot_extent(&self, _: u16, _: u16) -> SlotExtent {
        SlotExtent { fd: -1, offset: 0, len: SLOT as u32 }
    }

    fn read(&self, range: SlotRange, bytes: &mut [u8]) -> Result<(), Errno> {
        self.slot(range, |slot| bytes.copy_from_slice(slot));
        Ok(())
    }

    fn write(&self, range: SlotRange, bytes: &[u8]) -> Result<(), Errno> {
        self.slot(range, |slot| slot.copy_from_slice(bytes));
        Ok(())
    }
}

#[derive(Debug)]
struct TestPlatform {
    server: Arc<Mutex<Vec<u8>>>,
}

impl Platform for TestPlatform {
    type Command = LoggedCommand;
    type Buffers = TestBuffers;
    type Transport = DirectTransport;

    fn alloc_buffers(&self, _: u16, _: u16) -> Result<TestBuffers, Errno> {
        Ok(TestBuffers {
            server: Arc::clone(&self.server),
            slots: Mutex::default(),
            descriptors: Mutex::default(),
            during_copy: OneShotHook::default(),
        })
    }

    fn cpus(&self) -> u32 {
        4
    }
}

impl Payload for Vec<u8> {
    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        bytes.copy_from_slice(self.get(at..at + bytes.len()).ok_or(Errno::EFAULT)?);
        Ok(())
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        self.get_mut(at..at + bytes.len()).ok_or(Errno::EFAULT)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// Cookie, slot and result of a finished request.
type FinishedRequest = (u64, IoSlot, Result<(), Errno>);

/// Records the results of its requests.
#[derive(Debug, Default)]
struct RecordingClient {
    finished: Mutex<Vec<FinishedRequest>>,
    freed_slots: Mutex<u32>,
}

impl BlockClient for RecordingClient {
    fn done(&self, cookie: u64, slot: IoSlot, result: Result<(), Errno>) {
        self.finished.lock().unwrap().push((cookie, slot, result));
    }

    fn slot_freed(&self, _: u16) {
        *self.freed_slots.lock().unwrap() += 1;
    }
}

/// Records the calls of the driver.
#[derive(Debug, Default)]
struct RecordingFrontEnd {
    calls: Mutex<Vec<&'static str>>,
    refuses: Mutex<bool>,
    /// Numbers that others have, and those that are reserved here.
    foreign: Mutex<Vec<u32>>,
    reserved: Mutex<Vec<u32>>,
    /// Called once, by `before_stop`.
    on_before_stop: OneShotHook,
}

impl FrontEnd for RecordingFrontEnd {
    fn reserve(&self, id: u32) -> Result<(), Errno> {
        if self.foreign.lock().unwrap().contains(&id) {
            return Err(Errno::EEXIST);
        }
        self.reserved.lock().unwrap().push(id);
        Ok(())
    }

    fn release(&self, id: u32) {
        self.reserved.lock().unwrap().retain(|&other| other != id);
    }

    fn start(&self, _: Arc<dyn BlockDevice>) -> Result<(), Errno> {
        self.calls.lock().unwrap().push("start");
        if *self.refuses.lock().unwrap() { Err(Errno::EADDRINUSE) } else { Ok(()) }
    }

    fn resized(&self, _: &Arc<dyn BlockDevice>) {
        self.calls.lock().unwrap().push("resized");
    }

    fn before_stop(&self, _: u32) {
        self.calls.lock().unwrap().push("before_stop");
        let on_before_stop = self.on_before_stop.0.lock().unwrap().take();
        if let Some(on_before_stop) = on_before_stop {
            on_before_stop();
        }
    }

    fn stop(&self, _: u32) {
        self.calls.lock().unwrap().push("stop");
    }
}

const ROOT: Caller = Caller { uid: 0, gid: 0, is_admin: true };

/// A driver, its server's memory, and one client.
struct Harness {
    driver: Arc<Driver<TestPlatform>>,
    log: Log,
    client: Arc<RecordingClient>,
    front_end: Arc<RecordingFrontEnd>,
    server: Arc<Mutex<Vec<u8>>>,
    next: u64,
}

const BASIC: ParamBasic = ParamBasic {
    attrs: param::ATTR_VOLATILE_CACHE,
    logical_bs_shift: 9,
    physical_bs_shift: 12,
    io_opt_shift: 12,
    io_min_shift: 9,
    max_sectors: 64,
    chunk_sectors: 0,
    dev_sectors: 2048,
    virt_boundary_mask: 0,
};

const DISCARD: ParamDiscard = ParamDiscard {
    discard_alignment: 0,
    discard_granularity: 4096,
    max_discard_sectors: 1024,
    max_write_zeroes_sectors: 1024,
    max_discard_segments: 1,
};

impl Harness {
    fn new() -> Self {
        let server = Arc::new(Mutex::new(vec![0; SERVER]));
        let front_end = Arc::new(RecordingFrontEnd::default());
        let driver = Driver::new(TestPlatform { server: Arc::clone(&server) }, vec![Arc::clone(&front_end) as Arc<dyn FrontEnd>]);
        Self { driver: Arc::new(driver), log: Log::default(), client: Arc::default(), front_end, server, next: 0 }
    }

    fn control(&self, nr: u8, header: CtrlCmd, payload: &mut Vec<u8>) -> Result<(), Errno> {
        self.driver.control(&ROOT, 0x7500 | u32::from(nr), header, payload)
    }

    fn command(&self, nr: u8, data: u64) -> Result<(), Errno> {
        self.control(nr, CtrlCmd { data, queue_id: u16::MAX, ..CtrlCmd::default() }, &mut Vec::new())
    }

    /// Adds device 0 with one queue and parameters.
    fn add(&self, flags: u64, depth: u16) -> Arc<UblkDevice<TestPlatform>> {
        let info = DevInfo { nr_hw_queues: 1, queue_depth: depth, max_io_buf_bytes: 1 << 16, flags, ..DevInfo::default() };
        let header = CtrlCmd { queue_id: u16::MAX, len: 64, addr: 1, ..CtrlCmd::default() };
        self.control(ctrl::ADD_DEV, header, &mut info.to_bytes().to_vec()).unwrap();
        self.set_params(&BASIC).unwrap();
        self.driver.device(0).unwrap()
    }

    fn set_params(&self, basic: &ParamBasic) -> Result<(), Errno> {
        let mut bytes = params::tests::encode(param::BASIC | param::DISCARD, basic, &DISCARD);
        self.control(ctrl::SET_PARAMS, CtrlCmd { len: 112, addr: 1, ..CtrlCmd::default() }, &mut bytes)
    }

    /// A live device of one queue. Tag t's buffer is at (t + 1) * SLOT, unless the flags forbid
    /// buffers.
    fn live(&mut self, flags: u64, depth: u16) -> Arc<UblkDevice<TestPlatform>> {
        let device = self.add(flags, depth);
        device.open().unwrap();
        self.fetch_all(flags, depth);
        self.command(ctrl::START_DEV, 77).unwrap();
        device
    }

    fn fetch_all(&mut self, flags: u64, depth: u16) {
        let early = flags & (feature::USER_COPY | feature::NEED_GET_DATA) == 0;
        for tag in 0..depth {
            let addr = if early { buffer(tag) } else { 0 };
            assert_eq!(self.io(ublk_io::FETCH_REQ, tag, 0, addr), None);
        }
    }

    /// Sends an I/O command on queue 0 as task 1. Returns its result if it is complete already.
    fn io(&mut self, nr: u8, tag: u16, result: i32, addr: u64) -> Option<i32> {
        self.io_by(1, nr, IoCmd { q_id: 0, tag, result, addr })
    }

    fn io_by(&mut self, task: u64, nr: u8, cmd: IoCmd) -> Option<i32> {
        let id = self.next;
        self.next += 1;
        let command = LoggedCommand { id, log: Arc::clone(&self.log), is_done: false };
        let device = self.driver.device(0).unwrap();
        device.io_commands([IoCommand { task, cmd_op: 0xc010_7500 | u32::from(nr), cmd, command }]);
        let mut log = self.log.lock().unwrap();
        let at = log.iter().position(|&(other, _)| other == id)?;
        Some(log.remove(at).1)
    }

    /// Commits on queue 0 as task 1. A result goes to `results`.
    fn commit(&mut self, tag: u16, result: i32, addr: u64) {
        if let Some(res) = self.io(ublk_io::COMMIT_AND_FETCH_REQ, tag, result, addr) {
            self.log.lock().unwrap().push((u64::MAX, res));
        }
    }

    /// Results of completed commands, in order.
    fn results(&self) -> Vec<i32> {
        self.log.lock().unwrap().drain(..).map(|(_, res)| res).collect()
    }

    fn client(&self) -> Arc<dyn BlockClient> {
        Arc::clone(&self.client) as Arc<dyn BlockClient>
    }

    fn slot(&self) -> Option<IoSlot> {
        self.driver.device(0).unwrap().alloc_slot(0, &self.client())
    }

    /// Submits a request in a new slot.
    fn submit(&self, op: IoOp, sector: u64, sectors: u32, cookie: u64) {
        self.submit_with(op, 0, sector, sectors, cookie, &[]);
    }

    fn submit_with(&self, op: IoOp, flags: u32, sector: u64, sectors: u32, cookie: u64, bytes: &[u8]) {
        let device = self.driver.device(0).unwrap();
        let slot = self.slot().expect("a free slot");
        device.write(&slot, 0, bytes).unwrap();
        device.submit(slot, BlockRequest { op, flags, sector, sectors, data: DataLocation::Slot }, &self.client(), cookie);
    }

    /// The finished requests with the first `len` bytes of their slots, which are freed.
    fn finished(&self, len: usize) -> Vec<(u64, Result<(), Errno>, Vec<u8>)> {
        let device = self.driver.device(0).unwrap();
        let finished: Vec<_> = self.client.finished.lock().unwrap().drain(..).collect();
        let take = |(cookie, slot, result)| {
            let mut bytes = vec![0; len];
            device.read(&slot, 0, &mut bytes).unwrap();
            device.free_slot(slot);
            (cookie, result, bytes)
        };
        finished.into_iter().map(take).collect()
    }

    fn outcomes(&self) -> Vec<(u64, Result<(), Errno>)> {
        self.finished(0).into_iter().map(|(cookie, result, _)| (cookie, result)).collect()
    }

    fn descriptor(&self, tag: u16) -> IoDesc {
        self.driver.device(0).unwrap().buffers().descriptors.lock().unwrap()[&(0, tag)]
    }
}

fn buffer(tag: u16) -> u64 {
    (u64::from(tag) + 1) * SLOT as u64
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ i as u8).collect()
}
