//! The driver's protocol in every order of steps: waiters on the device's futex are woken, every
//! command and every request ends exactly once. A lost wake-up is a thread that sleeps for ever,
//! which loom reports as a deadlock.

use super::*;
use crate::blocking::BlockingClient;
use crate::slot_queue::{SlotQueue, SlotStarter};
use core::sync::atomic::Ordering::{Acquire, Release};
use uringlet_abi::ublk::state;
use uringlet_sys::model;
use uringlet_sys::model::checker::thread;
use uringlet_sys::sync::AtomicBool;

const COMMIT: u8 = ublk_io::COMMIT_AND_FETCH_REQ;
const REISSUE: u64 = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
/// More preemptions find nothing new, and take minutes.
const PREEMPTIONS: usize = 2;

/// A device, its server's log and its client, shared by several threads.
#[derive(Clone)]
struct ModelDevice {
    driver: Arc<Driver<TestPlatform>>,
    device: Arc<UblkDevice<TestPlatform>>,
    front_end: Arc<RecordingFrontEnd>,
    client: Arc<RecordingClient>,
    log: Log,
}

impl ModelDevice {
    /// A device of one tag, its char device open.
    fn new(flags: u64) -> Self {
        Self::with_depth(flags, 1)
    }

    fn with_depth(flags: u64, depth: u16) -> Self {
        let harness = Harness::new();
        let device = harness.add(flags, depth);
        device.open().unwrap();
        Self {
            driver: Arc::clone(&harness.driver),
            device,
            front_end: Arc::clone(&harness.front_end),
            client: Arc::default(),
            log: Log::default(),
        }
    }

    fn live(flags: u64) -> Self {
        let model_device = Self::new(flags);
        model_device.fetch();
        model_device.control(ctrl::START_DEV).unwrap();
        model_device
    }

    fn control(&self, nr: u8) -> Result<(), Errno> {
        self.control_cancellable(&AtomicBool::new(false), nr)
    }

    fn control_cancellable(&self, cancelled: &AtomicBool, nr: u8) -> Result<(), Errno> {
        let header = CtrlCmd { data: 7, queue_id: u16::MAX, ..CtrlCmd::default() };
        self.driver.control_cancellable(cancelled, &ROOT, u32::from(nr), header, &mut Vec::new())
    }

    fn io(&self, nr: u8, result: i32) {
        self.io_on(0, nr, result);
    }

    fn io_on(&self, tag: u16, nr: u8, result: i32) {
        let command = LoggedCommand { id: u64::from(nr), log: Arc::clone(&self.log), is_done: false };
        let cmd = IoCmd { q_id: 0, tag, result, addr: buffer(tag) };
        self.device.io_commands([IoCommand { task: 1, cmd_op: nr.into(), cmd, command }]);
    }

    fn fetch(&self) {
        self.io(ublk_io::FETCH_REQ, 0);
    }

    /// The server's process ends: its ring, then its last descriptor.
    fn die(&self) {
        self.device.cancel_io_command(&IoCmd::default());
        self.device.close();
    }

    fn submit(&self, op: IoOp) {
        let client = Arc::clone(&self.client) as Arc<dyn BlockClient>;
        let slot = self.device.alloc_slot(0, &client).unwrap();
        self.device.submit(slot, BlockRequest { op, flags: 0, sector: 0, sectors: 1, data: DataLocation::Slot }, &client, 1);
        self.device.unplug();
    }

    /// Results of the server's commands so far.
    fn results(&self) -> Vec<i32> {
        self.log.lock().unwrap().iter().map(|&(_, res)| res).collect()
    }

    /// The result of the one request, if it has ended.
    fn outcome(&self) -> Option<Result<(), Errno>> {
        let finished = self.client.finished.lock().unwrap();
        assert!(finished.len() <= 1, "it ended twice");
        finished.first().map(|(_, _, result)| *result)
    }

    /// The device is DEAD, and each start of a front end was followed by a stop.
    fn assert_dead(&self) {
        assert_eq!((self.device.info().state, self.device.is_tearing_down()), (state::DEAD, false));
        let calls: Vec<_> = self.front_end.calls.lock().unwrap().iter().copied().filter(|word| *word != "before_stop").collect();
        assert!(calls.is_empty() || calls == ["start", "stop"] || calls == ["start", "stop", "start", "stop"], "{calls:?}");
    }

    fn spawn<R: 'static>(&self, f: impl FnOnce(Self) -> R + 'static) -> thread::JoinHandle<R> {
        let model_device = self.clone();
        thread::spawn(move || f(model_device))
    }
}

#[test]
fn start_and_fetch_meet() {
    model::check(3, || {
        let model_device = ModelDevice::new(0);
        let start = model_device.spawn(|model_device| model_device.control(ctrl::START_DEV));
        model_device.fetch();
        start.join().unwrap().unwrap();
        assert_eq!(model_device.device.info().state, state::LIVE);
        model_device.die();
        assert_eq!(model_device.results(), [-19]);
        model_device.assert_dead();
    });
}

#[test]
fn start_races_with_server_death() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::new(0);
        let cancelled = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cancelled);
        let start = model_device.spawn(move |model_device| model_device.control_cancellable(&flag, ctrl::START_DEV));
        model_device.fetch();
        model_device.die();
        // A start that saw no server yet waits for the next one, until it is cancelled.
        cancelled.store(true, Release);
        model_device.driver.recheck_waiters();
        let started = start.join().unwrap();
        assert!(matches!(started, Ok(()) | Err(Errno::EINTR)), "{started:?}");
        assert_eq!(model_device.results(), [-19]);
        model_device.assert_dead();
        assert_eq!(model_device.device.open(), Ok(()));
    });
}

#[test]
fn start_races_with_ring_end() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::new(0);
        let cancelled = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cancelled);
        let start = model_device.spawn(move |model_device| model_device.control_cancellable(&flag, ctrl::START_DEV));
        model_device.fetch();
        model_device.device.cancel_io_command(&IoCmd::default());
        cancelled.store(true, Release);
        model_device.driver.recheck_waiters();
        let started = start.join().unwrap();
        assert!(matches!(started, Ok(()) | Err(Errno::EINTR)), "{started:?}");
        assert_eq!(model_device.results(), [-19]);
        model_device.assert_dead();
    });
}

#[test]
fn stop_races_with_commit() {
    for op in [IoOp::Read, IoOp::Write] {
        model::check(PREEMPTIONS, move || {
            let model_device = ModelDevice::live(0);
            model_device.submit(op);
            assert_eq!(model_device.results(), [0]);
            let stop = model_device.spawn(|model_device| model_device.control(ctrl::STOP_DEV));
            model_device.io(COMMIT, 512);
            stop.join().unwrap().unwrap();
            assert_eq!((model_device.results(), model_device.outcome()), (vec![0, -19], Some(Ok(()))));
            model_device.assert_dead();
        });
    }
}

#[test]
fn stop_races_with_new_request() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::live(0);
        let stop = model_device.spawn(|model_device| model_device.control(ctrl::STOP_DEV));
        model_device.submit(IoOp::Write);
        if model_device.results() == [0] {
            model_device.io(COMMIT, 512);
        }
        stop.join().unwrap().unwrap();
        let expected = if model_device.results() == [-19] { Err(Errno::EIO) } else { Ok(()) };
        assert_eq!(model_device.outcome(), Some(expected));
        assert_eq!(model_device.results().last(), Some(&-19));
        model_device.assert_dead();
    });
}

#[test]
fn server_death_races_with_dispatch_copy() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::live(0);
        let dies = model_device.spawn(|model_device| model_device.die());
        model_device.submit(IoOp::Write);
        dies.join().unwrap();
        assert_eq!(model_device.outcome(), Some(Err(Errno::EIO)));
        let results = model_device.results();
        assert!(results == [-19] || results == [0], "{results:?}");
        model_device.assert_dead();
    });
}

#[test]
fn reissued_requests_reach_the_next_server() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::live(REISSUE);
        let dies = model_device.spawn(|model_device| model_device.die());
        model_device.submit(IoOp::Write);
        dies.join().unwrap();
        assert_eq!((model_device.device.info().state, model_device.outcome()), (state::QUIESCED, None));
        model_device.control(ctrl::START_USER_RECOVERY).unwrap();
        model_device.device.open().unwrap();
        model_device.log.lock().unwrap().clear();
        let end = model_device.spawn(|model_device| model_device.control(ctrl::END_USER_RECOVERY));
        model_device.fetch();
        end.join().unwrap().unwrap();
        assert_eq!(model_device.results(), [0]);
        model_device.io(COMMIT, 512);
        assert_eq!(model_device.outcome(), Some(Ok(())));
        model_device.control(ctrl::STOP_DEV).unwrap();
        model_device.assert_dead();
    });
}

#[test]
fn server_death_races_with_commit_copy() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::live(0);
        model_device.submit(IoOp::Read);
        assert_eq!(model_device.results(), [0]);
        let dies = model_device.spawn(|model_device| model_device.die());
        model_device.io(COMMIT, 512);
        dies.join().unwrap();
        assert!(matches!(model_device.outcome(), Some(Ok(()) | Err(Errno::EIO))));
        // The commit came too late (EINVAL), or its command was cancelled with the others.
        let results = model_device.results();
        assert!(results == [0, -19] || results == [0, -22], "{results:?}");
        model_device.assert_dead();
    });
}

#[test]
fn before_stop_races_with_server_death() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::live(REISSUE);
        let writing = BlockingClient::new(Arc::clone(&model_device.device) as Arc<dyn BlockDevice>, 0);
        let written = Arc::new(Mutex::new(None));
        let result = Arc::clone(&written);
        model_device.front_end.on_before_stop.set(move || *result.lock().unwrap() = Some(writing.run_without_data(IoOp::Flush, 0, 0, 0)));
        let stop = model_device.spawn(|model_device| model_device.control(ctrl::STOP_DEV));
        model_device.die();
        let stopped = stop.join().unwrap();
        assert_eq!(stopped, Ok(()));
        // No flush where the server was lost first.
        assert!(matches!(*written.lock().unwrap(), None | Some(Err(Errno::EIO))));
        model_device.assert_dead();
    });
}

#[test]
fn every_slot_waiter_is_notified() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::live(0);
        let flush = |model_device: ModelDevice| {
            BlockingClient::new(model_device.device as Arc<dyn BlockDevice>, 0).run_without_data(IoOp::Flush, 0, 0, 0)
        };
        let clients = [model_device.spawn(flush), model_device.spawn(flush)];
        let mut served = 0;
        while served < 2 {
            if model_device.results().len() > served {
                served += 1;
                model_device.io(COMMIT, 0);
            }
            thread::yield_now();
        }
        clients.into_iter().for_each(|client| client.join().unwrap().unwrap());
        model_device.control(ctrl::STOP_DEV).unwrap();
        model_device.assert_dead();
    });
}

/// A client that queues its flushes where it finds no slot.
#[derive(Debug)]
struct QueueingClient {
    device: Arc<UblkDevice<TestPlatform>>,
    waiting: SlotQueue<u64>,
    finished: Mutex<Vec<u64>>,
    /// The same object, as the driver takes it. The test takes it out at the end, to break the
    /// cycle.
    client: Mutex<Option<Arc<dyn BlockClient>>>,
}

impl QueueingClient {
    fn new(device: &Arc<UblkDevice<TestPlatform>>) -> Arc<Self> {
        let client = Self { device: Arc::clone(device), waiting: SlotQueue::new(), finished: Mutex::default(), client: Mutex::default() };
        let client = Arc::new(client);
        *client.client.lock().unwrap() = Some(Arc::clone(&client) as Arc<dyn BlockClient>);
        client
    }

    fn client(&self) -> Arc<dyn BlockClient> {
        self.client.lock().unwrap().clone().unwrap()
    }
}

impl SlotStarter<u64> for QueueingClient {
    fn alloc_slot(&self) -> Option<IoSlot> {
        self.device.alloc_slot(0, &self.client())
    }

    fn free_slot(&self, slot: IoSlot) {
        self.device.free_slot(slot);
    }

    fn start(&self, slot: IoSlot, cookie: u64) {
        let request = BlockRequest { op: IoOp::Flush, flags: 0, sector: 0, sectors: 0, data: DataLocation::Slot };
        self.device.submit(slot, request, &self.client(), cookie);
        self.device.unplug();
    }
}

impl BlockClient for QueueingClient {
    fn done(&self, cookie: u64, slot: IoSlot, result: Result<(), Errno>) {
        assert_eq!(result, Ok(()));
        self.finished.lock().unwrap().push(cookie);
        self.device.free_slot(slot);
    }

    fn slot_freed(&self, _: u16) {
        self.waiting.dispatch(self);
    }
}

#[test]
fn slot_queues_start_every_request() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::live(0);
        let client = QueueingClient::new(&model_device.device);
        let other = Arc::clone(&client);
        let submitter = model_device.spawn(move |_| other.waiting.start_or_wait(2, &*other));
        client.waiting.start_or_wait(1, &*client);
        let mut served = 0;
        while served < 2 {
            if model_device.results().len() > served {
                served += 1;
                model_device.io(COMMIT, 0);
            }
            thread::yield_now();
        }
        submitter.join().unwrap();
        let mut finished = client.finished.lock().unwrap().clone();
        finished.sort_unstable();
        assert_eq!(finished, [1, 2]);
        client.client.lock().unwrap().take();
        model_device.control(ctrl::STOP_DEV).unwrap();
        model_device.assert_dead();
    });
}

#[test]
fn stop_races_with_last_commits() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::with_depth(0, 2);
        (0..2).for_each(|tag| model_device.io_on(tag, ublk_io::FETCH_REQ, 0));
        model_device.control(ctrl::START_DEV).unwrap();
        (0..2).for_each(|_| model_device.submit(IoOp::Flush));
        assert_eq!(model_device.results(), [0, 0]);
        let stop = model_device.spawn(|device| device.control(ctrl::STOP_DEV));
        let commit = model_device.spawn(|device| device.io_on(1, COMMIT, 0));
        model_device.io_on(0, COMMIT, 0);
        commit.join().unwrap();
        stop.join().unwrap().unwrap();
        assert_eq!(model_device.results(), [0, 0, -19, -19]);
        model_device.assert_dead();
    });
}

#[test]
fn quiesce_races_with_stop() {
    model::check(PREEMPTIONS, || {
        let model_device = ModelDevice::live(REISSUE | feature::QUIESCE);
        let writing = BlockingClient::new(Arc::clone(&model_device.device) as Arc<dyn BlockDevice>, 0);
        let written = Arc::new(Mutex::new(None));
        let result = Arc::clone(&written);
        model_device.front_end.on_before_stop.set(move || *result.lock().unwrap() = Some(writing.run_without_data(IoOp::Flush, 0, 0, 0)));
        let quiesce = model_device.spawn(|model_device| model_device.control(ctrl::QUIESCE_DEV));
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let stop = model_device.spawn(move |model_device| {
            let stopped = model_device.control(ctrl::STOP_DEV);
            over.store(true, Release);
            stopped
        });
        while !is_over.load(Acquire) {
            if model_device.results() == [0] {
                model_device.log.lock().unwrap().clear();
                model_device.io(COMMIT, 0);
            }
            thread::yield_now();
        }
        stop.join().unwrap().unwrap();
        let quiesced = quiesce.join().unwrap();
        assert!(matches!(quiesced, Ok(()) | Err(Errno::ENODEV)), "{quiesced:?}");
        // In each order: a flush that the stop waited for has reached the server.
        assert!(matches!(*written.lock().unwrap(), None | Some(Ok(()))));
        assert_eq!(model_device.results(), [-19]);
        model_device.assert_dead();
    });
}
