//! The driver's protocol in every order of steps: what waits on the device's futex is woken, every command and every request ends once,
//! whoever comes first. A lost wake-up is a thread that sleeps for ever, which loom reports as a deadlock.

use super::*;
use crate::blocking::BlockingClient;
use core::sync::atomic::Ordering::{Acquire, Release};
use uringlet_abi::ublk::state;
use uringlet_sys::model;
use uringlet_sys::model::checker::thread;
use uringlet_sys::sync::AtomicBool;

const COMMIT: u8 = ublk_io::COMMIT_AND_FETCH_REQ;
const REISSUE: u64 = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
/// More find nothing new, and take minutes.
const PREEMPTIONS: usize = 2;

/// A device and what its server and clients use of it, for several threads.
#[derive(Clone)]
struct Scene {
    driver: Arc<Driver<Bench>>,
    device: Arc<UblkDevice<Bench>>,
    shop: Arc<Shop>,
    reader: Arc<Reader>,
    log: Log,
}

impl Scene {
    /// A device of one tag, its char device open.
    fn new(flags: u64) -> Self {
        let world = World::new();
        let device = world.add(flags, 1);
        device.open().unwrap();
        Self { driver: Arc::clone(&world.driver), device, shop: Arc::clone(&world.shop), reader: Arc::default(), log: Log::default() }
    }

    fn live(flags: u64) -> Self {
        let scene = Self::new(flags);
        scene.fetch();
        scene.control(ctrl::START_DEV).unwrap();
        scene
    }

    fn control(&self, nr: u8) -> Result<(), Errno> {
        self.control_cancellable(&AtomicBool::new(false), nr)
    }

    fn control_cancellable(&self, gone: &AtomicBool, nr: u8) -> Result<(), Errno> {
        let header = CtrlCmd { data: 7, queue_id: u16::MAX, ..CtrlCmd::default() };
        self.driver.control_cancellable(gone, &ROOT, u32::from(nr), header, &mut Vec::new())
    }

    fn io(&self, nr: u8, result: i32) {
        let note = Note { id: u64::from(nr), log: Arc::clone(&self.log), is_done: false };
        let cmd = IoCmd { q_id: 0, tag: 0, result, addr: buffer(0) };
        self.device.io_commands([IoCommand { task: 1, cmd_op: nr.into(), cmd, command: note }]);
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
        let client = Arc::clone(&self.reader) as Arc<dyn BlockClient>;
        let slot = self.device.alloc_slot(0, &client).unwrap();
        self.device.submit(slot, BlockRequest { op, flags: 0, sector: 0, sectors: 1, data: DataLocation::Slot }, &client, 1);
    }

    /// Results of the server's commands so far.
    fn heard(&self) -> Vec<i32> {
        self.log.lock().unwrap().iter().map(|&(_, res)| res).collect()
    }

    /// How the one request ended, if it did.
    fn outcome(&self) -> Option<Result<(), Errno>> {
        let ended = self.reader.ended.lock().unwrap();
        assert!(ended.len() <= 1, "it ended twice");
        ended.first().map(|(_, _, result)| *result)
    }

    /// Front ends that were told to start were told to stop, after that.
    fn assert_dead(&self) {
        assert_eq!((self.device.info().state, self.device.is_ending()), (state::DEAD, false));
        let heard: Vec<_> = self.shop.heard.lock().unwrap().iter().copied().filter(|word| *word != "leave").collect();
        assert!(heard.is_empty() || heard == ["start", "stop"] || heard == ["start", "stop", "start", "stop"], "{heard:?}");
    }

    fn spawn<R: 'static>(&self, f: impl FnOnce(Self) -> R + 'static) -> thread::JoinHandle<R> {
        let scene = self.clone();
        thread::spawn(move || f(scene))
    }
}

#[test]
fn a_start_meets_its_fetch() {
    model::check(3, || {
        let scene = Scene::new(0);
        let start = scene.spawn(|scene| scene.control(ctrl::START_DEV));
        scene.fetch();
        start.join().unwrap().unwrap();
        assert_eq!(scene.device.info().state, state::LIVE);
        scene.die();
        assert_eq!(scene.heard(), [-19]);
        scene.assert_dead();
    });
}

#[test]
fn a_start_against_the_servers_death() {
    model::check(PREEMPTIONS, || {
        let scene = Scene::new(0);
        let gone = Arc::new(AtomicBool::new(false));
        let wanted = Arc::clone(&gone);
        let start = scene.spawn(move |scene| scene.control_cancellable(&wanted, ctrl::START_DEV));
        scene.fetch();
        scene.die();
        // Who saw no server yet waits for the next one, and gives up.
        gone.store(true, Release);
        scene.driver.recheck_waiters();
        let started = start.join().unwrap();
        assert!(matches!(started, Ok(()) | Err(Errno::EINTR)), "{started:?}");
        assert_eq!(scene.heard(), [-19]);
        scene.assert_dead();
        assert_eq!(scene.device.open(), Ok(()));
    });
}

#[test]
fn a_start_against_the_rings_end() {
    model::check(PREEMPTIONS, || {
        let scene = Scene::new(0);
        let gone = Arc::new(AtomicBool::new(false));
        let wanted = Arc::clone(&gone);
        let start = scene.spawn(move |scene| scene.control_cancellable(&wanted, ctrl::START_DEV));
        scene.fetch();
        scene.device.cancel_io_command(&IoCmd::default());
        gone.store(true, Release);
        scene.driver.recheck_waiters();
        let started = start.join().unwrap();
        assert!(matches!(started, Ok(()) | Err(Errno::EINTR)), "{started:?}");
        assert_eq!(scene.heard(), [-19]);
        scene.assert_dead();
    });
}

#[test]
fn a_stop_against_a_commit() {
    for op in [IoOp::Read, IoOp::Write] {
        model::check(PREEMPTIONS, move || {
            let scene = Scene::live(0);
            scene.submit(op);
            assert_eq!(scene.heard(), [0]);
            let stop = scene.spawn(|scene| scene.control(ctrl::STOP_DEV));
            scene.io(COMMIT, 512);
            stop.join().unwrap().unwrap();
            assert_eq!((scene.heard(), scene.outcome()), (vec![0, -19], Some(Ok(()))));
            scene.assert_dead();
        });
    }
}

#[test]
fn a_stop_against_a_new_request() {
    model::check(PREEMPTIONS, || {
        let scene = Scene::live(0);
        let stop = scene.spawn(|scene| scene.control(ctrl::STOP_DEV));
        scene.submit(IoOp::Write);
        if scene.heard() == [0] {
            scene.io(COMMIT, 512);
        }
        stop.join().unwrap().unwrap();
        let expected = if scene.heard() == [-19] { Err(Errno::EIO) } else { Ok(()) };
        assert_eq!(scene.outcome(), Some(expected));
        assert_eq!(scene.heard().last(), Some(&-19));
        scene.assert_dead();
    });
}

#[test]
fn a_death_while_data_is_copied() {
    model::check(PREEMPTIONS, || {
        let scene = Scene::live(0);
        let dies = scene.spawn(|scene| scene.die());
        scene.submit(IoOp::Write);
        dies.join().unwrap();
        assert_eq!(scene.outcome(), Some(Err(Errno::EIO)));
        let heard = scene.heard();
        assert!(heard == [-19] || heard == [0], "{heard:?}");
        scene.assert_dead();
    });
}

#[test]
fn what_a_dead_server_had_is_the_next_ones() {
    model::check(PREEMPTIONS, || {
        let scene = Scene::live(REISSUE);
        let dies = scene.spawn(|scene| scene.die());
        scene.submit(IoOp::Write);
        dies.join().unwrap();
        assert_eq!((scene.device.info().state, scene.outcome()), (state::QUIESCED, None));
        scene.control(ctrl::START_USER_RECOVERY).unwrap();
        scene.device.open().unwrap();
        scene.log.lock().unwrap().clear();
        let end = scene.spawn(|scene| scene.control(ctrl::END_USER_RECOVERY));
        scene.fetch();
        end.join().unwrap().unwrap();
        assert_eq!(scene.heard(), [0]);
        scene.io(COMMIT, 512);
        assert_eq!(scene.outcome(), Some(Ok(())));
        scene.control(ctrl::STOP_DEV).unwrap();
        scene.assert_dead();
    });
}

#[test]
fn a_death_while_the_commit_lands() {
    model::check(PREEMPTIONS, || {
        let scene = Scene::live(0);
        scene.submit(IoOp::Read);
        assert_eq!(scene.heard(), [0]);
        let dies = scene.spawn(|scene| scene.die());
        scene.io(COMMIT, 512);
        dies.join().unwrap();
        assert!(matches!(scene.outcome(), Some(Ok(()) | Err(Errno::EIO))));
        // Its commit was too late, or ended with the rest.
        let heard = scene.heard();
        assert!(heard == [0, -19] || heard == [0, -22], "{heard:?}");
        scene.assert_dead();
    });
}

#[test]
fn a_farewell_against_the_servers_death() {
    model::check(PREEMPTIONS, || {
        let scene = Scene::live(REISSUE);
        let writing = BlockingClient::new(Arc::clone(&scene.device) as Arc<dyn BlockDevice>, 0);
        let written = Arc::new(Mutex::new(None));
        let result = Arc::clone(&written);
        scene.shop.farewell.set(move || *result.lock().unwrap() = Some(writing.run_without_data(IoOp::Flush, 0, 0, 0)));
        let stop = scene.spawn(|scene| scene.control(ctrl::STOP_DEV));
        scene.die();
        let stopped = stop.join().unwrap();
        assert_eq!(stopped, Ok(()));
        // Not asked for where the server was lost first.
        assert!(matches!(*written.lock().unwrap(), None | Some(Err(Errno::EIO))));
        scene.assert_dead();
    });
}

#[test]
fn a_slot_that_is_free_is_told() {
    model::check(PREEMPTIONS, || {
        let scene = Scene::live(0);
        let flush = |scene: Scene| BlockingClient::new(scene.device as Arc<dyn BlockDevice>, 0).run_without_data(IoOp::Flush, 0, 0, 0);
        let clients = [scene.spawn(flush), scene.spawn(flush)];
        let mut served = 0;
        while served < 2 {
            if scene.heard().len() > served {
                served += 1;
                scene.io(COMMIT, 0);
            }
            thread::yield_now();
        }
        clients.into_iter().for_each(|client| client.join().unwrap().unwrap());
        scene.control(ctrl::STOP_DEV).unwrap();
        scene.assert_dead();
    });
}

#[test]
fn a_quiesce_against_a_stop() {
    model::check(PREEMPTIONS, || {
        let scene = Scene::live(REISSUE | feature::QUIESCE);
        let writing = BlockingClient::new(Arc::clone(&scene.device) as Arc<dyn BlockDevice>, 0);
        let written = Arc::new(Mutex::new(None));
        let result = Arc::clone(&written);
        scene.shop.farewell.set(move || *result.lock().unwrap() = Some(writing.run_without_data(IoOp::Flush, 0, 0, 0)));
        let quiesce = scene.spawn(|scene| scene.control(ctrl::QUIESCE_DEV));
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let stop = scene.spawn(move |scene| {
            let stopped = scene.control(ctrl::STOP_DEV);
            over.store(true, Release);
            stopped
        });
        while !is_over.load(Acquire) {
            if scene.heard() == [0] {
                scene.log.lock().unwrap().clear();
                scene.io(COMMIT, 0);
            }
            thread::yield_now();
        }
        stop.join().unwrap().unwrap();
        let quiesced = quiesce.join().unwrap();
        assert!(matches!(quiesced, Ok(()) | Err(Errno::ENODEV)), "{quiesced:?}");
        // Whoever was first: a write that was waited for has reached the server.
        assert!(matches!(*written.lock().unwrap(), None | Some(Ok(()))));
        assert_eq!(scene.heard(), [-19]);
        scene.assert_dead();
    });
}
