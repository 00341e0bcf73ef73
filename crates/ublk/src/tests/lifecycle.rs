//! Stop, loss of the server, recovery, deletion.

use super::*;
use core::sync::atomic::Ordering::SeqCst;
use uringlet_abi::ublk::state;
use uringlet_sys::sync::AtomicBool;

const COMMIT: u8 = ublk_io::COMMIT_AND_FETCH_REQ;
const RECOVERY: u64 = feature::USER_RECOVERY;

/// Runs a control command that waits on a thread of its own.
fn later(harness: &Harness, nr: u8, data: u64) -> std::thread::JoinHandle<Result<(), Errno>> {
    let driver = Arc::clone(&harness.driver);
    let header = CtrlCmd { data, queue_id: u16::MAX, ..CtrlCmd::default() };
    std::thread::spawn(move || driver.control(&ROOT, 0x7500 | u32::from(nr), header, &mut Vec::new()))
}

/// Waits for a condition that another thread establishes.
fn until(mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it never comes");
        std::thread::yield_now();
    }
}

#[test]
fn start_waits_for_every_tag() {
    let mut harness = Harness::new();
    let device = harness.add(0, 2);
    device.open().unwrap();
    let start = later(&harness, ctrl::START_DEV, 7);
    assert_eq!(harness.io(ublk_io::FETCH_REQ, 1, 0, 1), None);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(device.info().state, state::DEAD);
    assert_eq!(harness.io(ublk_io::FETCH_REQ, 0, 0, 1), None);
    start.join().unwrap().unwrap();
    assert_eq!((device.info().state, device.info().ublksrv_pid), (state::LIVE, 7));
    assert_eq!(harness.command(ctrl::START_DEV, 7), Err(Errno::EEXIST));
    harness.command(ctrl::STOP_DEV, 0).unwrap();
    assert_eq!((device.info().state, device.info().ublksrv_pid), (state::DEAD, -1));
    assert_eq!(*harness.front_end.calls.lock().unwrap(), ["start", "before_stop", "stop"]);
}

#[test]
fn a_refusing_front_end_fails_start_dev() {
    let mut harness = Harness::new();
    let device = harness.add(0, 1);
    device.open().unwrap();
    harness.fetch_all(0, 1);
    *harness.front_end.refuses.lock().unwrap() = true;
    assert_eq!(harness.command(ctrl::START_DEV, 7), Err(Errno::EADDRINUSE));
    assert_eq!((device.info().state, harness.results()), (state::DEAD, vec![-19]));
}

#[test]
fn commands_that_reach_a_deleted_device_end() {
    let mut harness = Harness::new();
    let device = harness.add(0, 2);
    device.open().unwrap();
    assert_eq!(harness.io(ublk_io::FETCH_REQ, 0, 0, 1), None);
    harness.command(ctrl::DEL_DEV_ASYNC, 0).unwrap();
    assert_eq!((harness.results(), harness.io(ublk_io::FETCH_REQ, 1, 0, 1)), (vec![-19], Some(-19)));
    device.close();
    assert!(harness.driver.device(0).is_none());
}

/// Frees each slot where it is told, as front ends do.
#[derive(Debug)]
struct FreeingClient(Arc<UblkDevice<TestPlatform>>, Arc<RecordingFrontEnd>);

impl BlockClient for FreeingClient {
    fn done(&self, _: u64, slot: IoSlot, result: Result<(), Errno>) {
        assert_eq!(result, Err(Errno::EIO));
        self.0.free_slot(slot);
        self.1.calls.lock().unwrap().push("done");
    }
}

#[test]
fn front_ends_are_stopped_after_every_client_was_told() {
    let mut harness = Harness::new();
    let device = harness.live(0, 4);
    let client: Arc<dyn BlockClient> = Arc::new(FreeingClient(Arc::clone(&device), Arc::clone(&harness.front_end)));
    for sector in 0..3 {
        let slot = device.alloc_slot(0, &client).unwrap();
        device.submit(slot, BlockRequest { op: IoOp::Read, flags: 0, sector, sectors: 1, data: DataLocation::Slot }, &client, sector);
    }
    device.close();
    assert_eq!(*harness.front_end.calls.lock().unwrap(), ["start", "done", "done", "done", "stop"]);
    harness.results();
}

#[test]
fn stop_dev_waits_for_dispatched_requests() {
    let mut harness = Harness::new();
    let device = harness.live(0, 2);
    harness.submit(IoOp::Write, 0, 1, 1);
    assert_eq!(harness.results(), [0]);
    let stop = later(&harness, ctrl::STOP_DEV, 0);
    // From some moment on new requests fail.
    until(|| {
        harness.submit(IoOp::Flush, 0, 0, 2);
        if harness.results() == [0] {
            harness.commit(1, 0, buffer(1));
        }
        let outcomes = harness.outcomes();
        assert_eq!(outcomes.len(), 1);
        outcomes[0].1 == Err(Errno::EIO)
    });
    assert_eq!(device.info().state, state::LIVE);
    assert_eq!(harness.io(COMMIT, 0, 512, 1), Some(-19), "and hears of the end");
    stop.join().unwrap().unwrap();
    assert_eq!(harness.outcomes(), [(1, Ok(()))]);
    assert_eq!(harness.results(), [-19]);
}

#[test]
fn recovery_flags_decide_the_state_after_a_server_loss() {
    let all = RECOVERY | feature::USER_RECOVERY_REISSUE;
    for (flags, want, held, new) in [
        (0, state::DEAD, Some(Err(Errno::EIO)), Some(Err(Errno::EIO))),
        (RECOVERY, state::QUIESCED, Some(Err(Errno::EIO)), None),
        (all, state::QUIESCED, None, None),
        (RECOVERY | feature::USER_RECOVERY_FAIL_IO, state::FAIL_IO, Some(Err(Errno::EIO)), Some(Err(Errno::EIO))),
    ] {
        let mut harness = Harness::new();
        let device = harness.live(flags, 3);
        harness.submit(IoOp::Read, 0, 1, 1);
        assert_eq!(harness.results(), [0]);
        device.cancel_io_command(&IoCmd { tag: 1, ..IoCmd::default() });
        assert_eq!(device.info().state, want);
        assert_eq!(harness.results(), [-19, -19], "each armed command ends once");
        device.cancel_io_command(&IoCmd { tag: 2, ..IoCmd::default() });
        device.close();
        assert_eq!(harness.results(), []);
        assert_eq!(harness.outcomes(), held.map(|result| (1, result)).into_iter().collect::<Vec<_>>(), "{flags:x}");
        harness.submit(IoOp::Read, 0, 1, 2);
        assert_eq!(harness.outcomes(), new.map(|result| (2, result)).into_iter().collect::<Vec<_>>(), "{flags:x}");
        harness.command(ctrl::STOP_DEV, 0).unwrap();
        let left = 2 - usize::from(held.is_some()) - usize::from(new.is_some());
        assert_eq!(harness.outcomes().len(), left, "what waited fails with the stop");
        assert_eq!(device.info().state, state::DEAD);
    }
}

#[test]
fn the_next_server_gets_the_waiting_requests() {
    let flags = RECOVERY | feature::USER_RECOVERY_REISSUE;
    let mut harness = Harness::new();
    let device = harness.live(flags, 2);
    let data = pattern(512);
    harness.submit_with(IoOp::Write, 0, 3, 1, 1, &data);
    assert_eq!(harness.results(), [0]);
    assert_eq!(harness.command(ctrl::START_USER_RECOVERY, 0), Err(Errno::EBUSY), "it has a server");
    device.close();
    assert_eq!(harness.results(), [-19]);
    assert_eq!(device.info().state, state::QUIESCED);
    harness.submit(IoOp::Read, 5, 1, 2);
    device.open().unwrap();
    assert_eq!(harness.command(ctrl::START_USER_RECOVERY, 0), Err(Errno::EBUSY), "the char device is open");
    device.close();
    harness.command(ctrl::START_USER_RECOVERY, 0).unwrap();
    assert_eq!(harness.command(ctrl::START_USER_RECOVERY, 0), Err(Errno::EINVAL), "once");
    device.open().unwrap();
    let end = later(&harness, ctrl::END_USER_RECOVERY, 88);
    // Another task than the first server's.
    for tag in 0..2 {
        assert_eq!(harness.io_by(2, ublk_io::FETCH_REQ, IoCmd { tag, addr: buffer(tag), ..IoCmd::default() }), None);
    }
    end.join().unwrap().unwrap();
    assert_eq!((device.info().state, device.info().ublksrv_pid), (state::LIVE, 88));
    assert_eq!(harness.results(), [0, 0]);
    assert_eq!(harness.server.lock().unwrap()[SLOT..SLOT + 512], data);
    assert_eq!((harness.descriptor(0).start_sector, harness.descriptor(1).start_sector), (3, 5));
    for tag in 0..2 {
        let cmd = IoCmd { tag, result: 512, addr: buffer(tag), ..IoCmd::default() };
        assert_eq!(harness.io_by(2, COMMIT, cmd), None);
    }
    assert_eq!(harness.outcomes(), [(1, Ok(())), (2, Ok(()))]);
    assert_eq!(harness.command(ctrl::END_USER_RECOVERY, 88), Err(Errno::EBUSY));
    assert_eq!(*harness.front_end.calls.lock().unwrap(), ["start"], "front ends hear nothing of it");
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn recovery_requires_its_feature_flag() {
    let mut harness = Harness::new();
    let device = harness.live(0, 1);
    assert_eq!(harness.command(ctrl::START_USER_RECOVERY, 0), Err(Errno::EINVAL));
    assert_eq!(harness.command(ctrl::END_USER_RECOVERY, 1), Err(Errno::EINVAL));
    device.close();
    assert_eq!(device.info().state, state::DEAD);

    let harness = Harness::new();
    harness.add(RECOVERY, 1);
    assert_eq!(harness.command(ctrl::START_USER_RECOVERY, 0), Err(Errno::EINVAL), "never had a server");
}

#[test]
fn quiesce_dev_cancels_the_servers_commands() {
    let flags = RECOVERY | feature::QUIESCE;
    let mut harness = Harness::new();
    let device = harness.live(flags, 2);
    harness.submit(IoOp::Write, 0, 1, 1);
    assert_eq!(harness.results(), [0]);
    harness.command(ctrl::QUIESCE_DEV, 1000).unwrap();
    assert_eq!(harness.results(), [-19], "by its idle command");
    assert_eq!(device.info().state, state::LIVE, "one request is with it");
    assert_eq!(harness.io(COMMIT, 0, 512, buffer(0)), Some(-19));
    assert_eq!(harness.outcomes(), [(1, Ok(()))], "nothing that was done is lost");
    assert_eq!(device.info().state, state::QUIESCED);
    harness.command(ctrl::QUIESCE_DEV, 1000).unwrap();
    device.close();
    harness.submit(IoOp::Read, 0, 1, 2);
    assert_eq!(harness.outcomes(), []);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
    assert_eq!(harness.outcomes(), [(2, Err(Errno::EIO))]);
    assert_eq!(harness.command(ctrl::QUIESCE_DEV, 1), Err(Errno::ENODEV));

    // No idle command: EBUSY at the deadline.
    let mut harness = Harness::new();
    let device = harness.live(flags, 1);
    harness.submit(IoOp::Write, 0, 1, 1);
    assert_eq!(harness.results(), [0]);
    assert_eq!(harness.command(ctrl::QUIESCE_DEV, 10), Err(Errno::EBUSY));
    assert_eq!(device.info().state, state::LIVE);
    assert_eq!(harness.io(COMMIT, 0, 512, buffer(0)), None);
    assert_eq!(harness.outcomes(), [(1, Ok(()))]);
    harness.submit(IoOp::Write, 0, 1, 2);
    assert_eq!(harness.results(), [0], "and all goes on");
    assert_eq!(harness.io(COMMIT, 0, 512, buffer(0)), None);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn a_deleted_number_is_free_once_the_char_device_is_closed() {
    let mut harness = Harness::new();
    let device = harness.live(0, 1);
    assert_eq!(device.open(), Err(Errno::EBUSY));
    harness.command(ctrl::DEL_DEV_ASYNC, 0).unwrap();
    assert_eq!(harness.results(), [-19]);
    assert_eq!(harness.driver.ids(), [0]);
    let delete = later(&harness, ctrl::DEL_DEV, 0);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(!delete.is_finished());
    device.close();
    delete.join().unwrap().unwrap();
    assert_eq!(device.open(), Err(Errno::ENOENT));
    assert_eq!(harness.command(ctrl::DEL_DEV, 0), Err(Errno::ENODEV));
    // A device that is not open is removed at once.
    harness.add(0, 1);
    harness.command(ctrl::DEL_DEV, 0).unwrap();
    assert_eq!(harness.driver.ids(), []);
}

#[test]
fn a_stopped_device_starts_again() {
    let mut harness = Harness::new();
    let device = harness.live(0, 1);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
    assert_eq!(harness.results(), [-19]);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
    device.close();
    device.open().unwrap();
    harness.fetch_all(0, 1);
    harness.command(ctrl::START_DEV, 5).unwrap();
    harness.submit(IoOp::Flush, 0, 0, 1);
    assert_eq!(harness.results(), [0]);
    assert_eq!(harness.io(COMMIT, 0, 0, buffer(0)), None);
    assert_eq!(harness.outcomes(), [(1, Ok(()))]);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
    assert_eq!(*harness.front_end.calls.lock().unwrap(), ["start", "before_stop", "stop", "start", "before_stop", "stop"]);
}

#[test]
fn a_fetched_device_that_never_started_can_be_deleted() {
    let mut harness = Harness::new();
    let device = harness.add(0, 2);
    device.open().unwrap();
    assert_eq!(harness.io(ublk_io::FETCH_REQ, 0, 0, 1), None);
    device.cancel_io_command(&IoCmd::default());
    assert_eq!(harness.results(), [-19]);
    device.close();
    assert_eq!(harness.io(ublk_io::FETCH_REQ, 0, 0, 1), None, "all is forgotten");
    harness.command(ctrl::DEL_DEV, 0).unwrap();
    assert_eq!(harness.results(), [-19]);
}

#[test]
fn a_server_lost_during_the_dispatch_copy_loses_no_request() {
    for (flags, want) in [(0, Some(Err(Errno::EIO))), (RECOVERY | feature::USER_RECOVERY_REISSUE, None)] {
        for closes in [false, true] {
            let mut harness = Harness::new();
            let device = harness.live(flags, 1);
            let dying = Arc::clone(&device);
            *device.buffers().during_copy.0.lock().unwrap() = Some(std::boxed::Box::new(move || {
                dying.cancel_io_command(&IoCmd::default());
                if closes {
                    dying.close();
                }
            }));
            harness.submit(IoOp::Write, 0, 1, 1);
            assert_eq!(harness.results(), [-19], "the command ends, and only once");
            assert_eq!(harness.outcomes(), want.map(|result| (1, result)).into_iter().collect::<Vec<_>>());
            assert_eq!(device.info().state, if flags == 0 { state::DEAD } else { state::QUIESCED });
            assert_eq!(device.open(), if closes { Ok(()) } else { Err(Errno::EBUSY) });
            device.close();
            harness.command(ctrl::STOP_DEV, 0).unwrap();
        }
    }
}

#[test]
fn stop_dev_waits_for_a_dispatch_copy() {
    let mut harness = Harness::new();
    let device = harness.live(0, 1);
    let (sender, stop) = std::sync::mpsc::channel();
    let driver = Arc::clone(&harness.driver);
    let stopping = Arc::clone(&device);
    *device.buffers().during_copy.0.lock().unwrap() = Some(std::boxed::Box::new(move || {
        let header = CtrlCmd { queue_id: u16::MAX, ..CtrlCmd::default() };
        let thread = std::thread::spawn(move || driver.control(&ROOT, u32::from(ctrl::STOP_DEV), header, &mut Vec::new()));
        until(|| stopping.is_tearing_down());
        sender.send(thread).unwrap();
    }));
    harness.submit(IoOp::Write, 0, 1, 1);
    assert_eq!(harness.results(), [0], "the server gets it");
    harness.commit(0, -5, buffer(0));
    assert_eq!(harness.outcomes(), [(1, Err(Errno::EIO))]);
    stop.recv().unwrap().join().unwrap().unwrap();
    assert_eq!(harness.results(), [-19]);
}

#[test]
fn no_command_stays_armed_after_a_cancel() {
    let mut harness = Harness::new();
    harness.live(RECOVERY | feature::QUIESCE, 3);
    harness.submit(IoOp::Write, 0, 1, 1);
    harness.submit(IoOp::Read, 0, 1, 2);
    assert_eq!(harness.results(), [0, 0]);
    harness.command(ctrl::QUIESCE_DEV, 1000).unwrap();
    assert_eq!(harness.results(), [-19]);
    for (tag, result) in [(0, -5), (1, 512)] {
        assert_eq!(harness.io(COMMIT, tag, result, buffer(tag)), Some(-19));
    }
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}

/// A flush on a thread of its own, as a front end writes back its cache. Returns its result.
fn flush_by(device: &Arc<UblkDevice<TestPlatform>>) -> Result<(), Errno> {
    crate::blocking::BlockingClient::new(Arc::clone(device) as Arc<dyn BlockDevice>, 0).run_without_data(IoOp::Flush, 0, 0, 0)
}

#[test]
fn front_ends_flush_before_a_stop() {
    let mut harness = Harness::new();
    let device = harness.live(RECOVERY, 2);
    let (sender, flushed) = std::sync::mpsc::channel();
    let writing = Arc::clone(&device);
    harness.front_end.on_before_stop.set(move || sender.send(flush_by(&writing)).unwrap());
    let stop = later(&harness, ctrl::STOP_DEV, 0);
    until(|| !harness.log.lock().unwrap().is_empty());
    assert_eq!(device.info().state, state::LIVE);
    assert_eq!(harness.results(), [0], "the server gets it");
    // The stop may complete the command before this returns.
    harness.commit(0, 0, buffer(0));
    assert_eq!(flushed.recv(), Ok(Ok(())));
    stop.join().unwrap().unwrap();
    assert_eq!(device.info().state, state::DEAD);
    assert_eq!(*harness.front_end.calls.lock().unwrap(), ["start", "before_stop", "stop"]);
}

#[test]
fn stop_dev_does_not_wait_for_a_lost_server() {
    for flags in [0, RECOVERY, RECOVERY | feature::USER_RECOVERY_REISSUE] {
        let mut harness = Harness::new();
        let device = harness.live(flags, 2);
        let (sender, flushed) = std::sync::mpsc::channel();
        let writing = Arc::clone(&device);
        harness.front_end.on_before_stop.set(move || sender.send((flush_by(&writing), flush_by(&writing))).unwrap());
        let stop = later(&harness, ctrl::STOP_DEV, 0);
        until(|| !harness.log.lock().unwrap().is_empty());
        device.close();
        assert_eq!(flushed.recv(), Ok((Err(Errno::EIO), Err(Errno::EIO))));
        stop.join().unwrap().unwrap();
        assert_eq!(device.info().state, state::DEAD, "{flags:x}");
    }
}

#[test]
fn stop_dev_ends_a_waiting_quiesce_dev() {
    let mut harness = Harness::new();
    let device = harness.live(RECOVERY | feature::QUIESCE, 1);
    harness.submit(IoOp::Write, 0, 1, 1);
    assert_eq!(harness.results(), [0]);
    let quiesce = later(&harness, ctrl::QUIESCE_DEV, 0);
    let (sender, flushed) = std::sync::mpsc::channel();
    let writing = Arc::clone(&device);
    harness.front_end.on_before_stop.set(move || sender.send(flush_by(&writing)).unwrap());
    let stop = later(&harness, ctrl::STOP_DEV, 0);
    assert_eq!(quiesce.join().unwrap(), Err(Errno::ENODEV));
    assert_eq!(harness.command(ctrl::QUIESCE_DEV, 0), Err(Errno::ENODEV));
    harness.commit(0, 512, buffer(0));
    assert_eq!(harness.outcomes(), [(1, Ok(()))]);
    until(|| !harness.log.lock().unwrap().is_empty());
    assert_eq!(harness.results(), [0]);
    // The stop may complete the command before this returns.
    harness.commit(0, 0, buffer(0));
    assert_eq!(flushed.recv(), Ok(Ok(())));
    stop.join().unwrap().unwrap();
}

#[test]
fn a_cancelled_control_command_stops_waiting() {
    let mut harness = Harness::new();
    let device = harness.add(0, 2);
    device.open().unwrap();
    assert_eq!(harness.io(ublk_io::FETCH_REQ, 0, 0, 1), None);
    let gone = Arc::new(AtomicBool::new(false));
    let waits = |nr: u8| {
        let (driver, gone) = (Arc::clone(&harness.driver), Arc::clone(&gone));
        let header = CtrlCmd { data: 7, queue_id: u16::MAX, ..CtrlCmd::default() };
        std::thread::spawn(move || driver.control_cancellable(&gone, &ROOT, u32::from(nr), header, &mut Vec::new()))
    };
    let start = waits(ctrl::START_DEV);
    let delete = waits(ctrl::DEL_DEV);
    until(|| device.open() == Err(Errno::ENOENT));
    assert!(!start.is_finished() && !delete.is_finished());
    gone.store(true, SeqCst);
    harness.driver.recheck_waiters();
    assert_eq!(start.join().unwrap(), Err(Errno::EINTR));
    assert_eq!(delete.join().unwrap(), Err(Errno::EINTR));
    assert_eq!(harness.driver.ids(), [0], "the char device is open");
    device.close();
    assert_eq!(harness.driver.ids(), [], "but deleted it is");
    assert_eq!(harness.results(), [-19]);
}
