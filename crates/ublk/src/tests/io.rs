//! Requests and commands: data is copied, errors are mapped, short transfers continue.

use super::*;
use uringlet_abi::ublk::iod;

const COMMIT: u8 = ublk_io::COMMIT_AND_FETCH_REQ;
const GET: u8 = ublk_io::NEED_GET_DATA;

#[test]
fn write_data_is_in_the_servers_buffer_at_the_cqe() {
    let mut harness = Harness::new();
    harness.live(0, 2);
    let data = pattern(1024);
    harness.submit_with(IoOp::Write, 0, 8, 2, 5, &data);
    assert_eq!(harness.results(), [0]);
    let iod = harness.descriptor(0);
    assert_eq!((iod.op_flags, iod.start_sector, iod.nr_sectors, iod.addr), (iod::WRITE, 8, 2, buffer(0)));
    assert_eq!(harness.server.lock().unwrap()[SLOT..SLOT + 1024], data);
    assert_eq!(harness.outcomes(), []);
    assert_eq!(harness.io(COMMIT, 0, 1024, buffer(0)), None);
    assert_eq!(harness.outcomes(), [(5, Ok(()))]);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
    assert_eq!(harness.results(), [-19, -19]);
}

#[test]
fn read_data_is_copied_at_the_commit() {
    let mut harness = Harness::new();
    harness.live(0, 1);
    harness.submit(IoOp::Read, 0, 4, 6);
    assert_eq!(harness.results(), [0]);
    let data = pattern(2048);
    // The address of the commit counts, as in the kernel.
    harness.server.lock().unwrap()[4096..6144].copy_from_slice(&data);
    assert_eq!(harness.io(COMMIT, 0, 2048, 4096), None);
    assert_eq!(harness.finished(2048), [(6, Ok(()), data)]);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn need_get_data_copies_only_after_the_second_command() {
    let mut harness = Harness::new();
    harness.live(feature::NEED_GET_DATA, 1);
    let data = pattern(4096);
    harness.submit_with(IoOp::Write, 0, 16, 8, 7, &data);
    assert_eq!(harness.results(), [ublk_io::RES_NEED_GET_DATA]);
    assert_eq!(harness.descriptor(0).nr_sectors, 8);
    assert!(harness.server.lock().unwrap().iter().all(|&byte| byte == 0), "nothing is copied yet");
    assert_eq!(harness.io(COMMIT, 0, 4096, 9), Some(-22), "a commit instead of the address");
    assert_eq!(harness.io(GET, 0, 0, 8192), Some(ublk_io::RES_OK));
    assert_eq!(harness.descriptor(0).addr, 8192);
    assert_eq!(harness.server.lock().unwrap()[8192..12288], data);
    assert_eq!(harness.io(GET, 0, 0, 8192), Some(-22), "asked for once");
    // No buffer until the next write needs one.
    assert_eq!(harness.io(COMMIT, 0, 4096, 0), None);
    assert_eq!(harness.outcomes(), [(7, Ok(()))]);
    // Reads are unchanged: the buffer comes with the commit.
    harness.submit(IoOp::Read, 0, 1, 8);
    assert_eq!(harness.results(), [ublk_io::RES_OK]);
    assert_eq!(harness.io(COMMIT, 0, 512, 0), Some(-22));
    assert_eq!(harness.io(COMMIT, 0, 512, 4096), None);
    assert_eq!(harness.outcomes(), [(8, Ok(()))]);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn server_errors_are_mapped_as_by_the_block_layer() {
    let cases = [
        (IoOp::Read, 1024, Ok(())),
        (IoOp::Read, 0, Err(Errno::EIO)),
        (IoOp::Read, -28, Err(Errno::ENOSPC)),
        (IoOp::Write, -1, Err(Errno::EIO)),
        (IoOp::Write, 99_999, Ok(())),
        (IoOp::Flush, 0, Ok(())),
        (IoOp::Flush, -5, Err(Errno::EIO)),
        (IoOp::Discard, 7, Ok(())),
        (IoOp::WriteZeroes, -95, Err(Errno::EOPNOTSUPP)),
    ];
    let mut harness = Harness::new();
    harness.live(0, 1);
    for (op, result, want) in cases {
        harness.submit(op, 0, if op == IoOp::Flush { 0 } else { 2 }, 1);
        assert_eq!(harness.results(), [0]);
        assert_eq!(harness.io(COMMIT, 0, result, buffer(0)), None);
        assert_eq!(harness.outcomes(), [(1, want)], "{op:?} {result}");
    }
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn the_rest_of_a_short_transfer_is_requeued() {
    for flags in [0, feature::USER_COPY, feature::NEED_GET_DATA] {
        let mut harness = Harness::new();
        let device = harness.live(flags, 1);
        let copies = flags & feature::USER_COPY == 0;
        let addr = if copies { buffer(0) } else { 0 };
        let data = pattern(4096);
        harness.submit_with(IoOp::Write, 0, 8, 8, 1, &data);
        let mut seen = Vec::new();
        for part in [1024, 512, 2560] {
            if flags == feature::NEED_GET_DATA {
                assert_eq!(harness.results(), [1]);
                assert_eq!(harness.io(GET, 0, 0, addr), Some(0));
            } else {
                assert_eq!(harness.results(), [0]);
            }
            let iod = harness.descriptor(0);
            assert_eq!((iod.start_sector, iod.nr_sectors), (8 + seen.len() as u64 / 512, ((4096 - seen.len()) / 512) as u32));
            let mut bytes = vec![0; part];
            if copies {
                bytes.copy_from_slice(&harness.server.lock().unwrap()[addr as usize..][..part]);
            } else {
                device.buffers().read(SlotRange { queue: 0, tag: 0, offset: 0, len: part as u32 }, &mut bytes).unwrap();
            }
            seen.extend(bytes);
            harness.commit(0, part as i32, addr);
        }
        assert_eq!(harness.outcomes(), [(1, Ok(()))]);
        assert_eq!(seen, data);
        harness.command(ctrl::STOP_DEV, 0).unwrap();
    }
}

#[test]
fn a_read_in_pieces_is_reassembled() {
    for flags in [0, feature::USER_COPY] {
        let mut harness = Harness::new();
        let device = harness.live(flags, 1);
        let data = pattern(3072);
        harness.submit(IoOp::Read, 0, 6, 1);
        let mut at = 0;
        for part in [512, 1536, 1024] {
            assert_eq!(harness.results(), [0]);
            let bytes = &data[at..at + part];
            let addr = if flags == 0 {
                harness.server.lock().unwrap()[SLOT..SLOT + part].copy_from_slice(bytes);
                buffer(0)
            } else {
                device.buffers().write(SlotRange { queue: 0, tag: 0, offset: 0, len: part as u32 }, bytes).unwrap();
                0
            };
            at += part;
            harness.commit(0, part as i32, addr);
        }
        assert_eq!(harness.finished(3072), [(1, Ok(()), data)]);
        harness.command(ctrl::STOP_DEV, 0).unwrap();
    }
}

#[test]
fn a_faulting_buffer_fails_the_request() {
    let mut harness = Harness::new();
    harness.live(feature::NEED_GET_DATA, 1);
    harness.submit(IoOp::Write, 0, 2, 1);
    assert_eq!(harness.results(), [1]);
    // Nothing was copied: the command waits for the next request.
    assert_eq!(harness.io(GET, 0, 0, SERVER as u64), None);
    assert_eq!(harness.outcomes(), [(1, Err(Errno::EIO))]);
    // A part was copied: the server gets a shorter request, and the rest follows.
    harness.submit(IoOp::Write, 0, 2, 2);
    assert_eq!(harness.results(), [1]);
    assert_eq!(harness.io(GET, 0, 0, SERVER as u64 - 512), Some(0));
    assert_eq!(harness.descriptor(0).nr_sectors, 1);
    harness.commit(0, 512, 0);
    assert_eq!(harness.results(), [1]);
    assert_eq!(harness.io(GET, 0, 0, 4096), Some(0));
    assert_eq!(harness.io(COMMIT, 0, 512, 0), None);
    assert_eq!(harness.outcomes(), [(2, Ok(()))]);
    harness.submit(IoOp::Read, 0, 2, 3);
    assert_eq!(harness.results(), [0]);
    assert_eq!(harness.io(COMMIT, 0, 1024, SERVER as u64), None);
    assert_eq!(harness.outcomes(), [(3, Err(Errno::EIO))]);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn requests_are_validated_as_by_the_block_layer() {
    let mut harness = Harness::new();
    harness.live(0, 1);
    let cases = [
        ("beyond the end", IoOp::Read, 2047, 2, Errno::EIO),
        ("around the end of all numbers", IoOp::Write, u64::MAX, 2, Errno::EIO),
        ("empty", IoOp::Read, 0, 0, Errno::EINVAL),
        ("too long", IoOp::Write, 0, 65, Errno::EINVAL),
        ("too long a discard", IoOp::Discard, 0, 1025, Errno::EINVAL),
    ];
    for (what, op, sector, sectors, want) in cases {
        harness.submit(op, sector, sectors, 1);
        assert_eq!(harness.outcomes(), [(1, Err(want))], "{what}");
    }
    assert_eq!(harness.results(), []);
    harness.command(ctrl::STOP_DEV, 0).unwrap();

    let mut harness = Harness::new();
    let device = harness.add(0, 1);
    harness.set_params(&ParamBasic { attrs: param::ATTR_READ_ONLY, logical_bs_shift: 12, ..BASIC }).unwrap();
    device.open().unwrap();
    harness.fetch_all(0, 1);
    harness.command(ctrl::START_DEV, 1).unwrap();
    harness.submit(IoOp::Write, 0, 8, 1);
    harness.submit_after(IoOp::Read, 4, 8, Err(Errno::EINVAL));
    harness.submit_after(IoOp::Read, 0, 4, Err(Errno::EINVAL));
    // Without a cache a flush has no effect.
    harness.submit_after(IoOp::Flush, 0, 0, Ok(()));
    assert_eq!(harness.results(), []);
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}

impl Harness {
    /// Submits a request that is refused at once, and checks its errno.
    fn submit_after(&self, op: IoOp, sector: u64, sectors: u32, want: Result<(), Errno>) {
        self.outcomes();
        self.submit(op, sector, sectors, 9);
        assert_eq!(self.outcomes(), [(9, want)], "{op:?}");
    }
}

#[test]
fn fua_becomes_a_flush_for_a_server_without_fua() {
    for (attrs, flags, flushes) in
        [(param::ATTR_VOLATILE_CACHE, 0, true), (param::ATTR_VOLATILE_CACHE | param::ATTR_FUA, iod::F_FUA, false), (0, 0, false)]
    {
        let mut harness = Harness::new();
        let device = harness.add(0, 1);
        harness.set_params(&ParamBasic { attrs, ..BASIC }).unwrap();
        device.open().unwrap();
        harness.fetch_all(0, 1);
        harness.command(ctrl::START_DEV, 1).unwrap();
        harness.submit_with(IoOp::Write, iod::F_FUA, 0, 1, 1, &[1; 512]);
        assert_eq!(harness.results(), [0]);
        assert_eq!(harness.descriptor(0).op_flags, iod::WRITE | flags);
        harness.commit(0, 512, buffer(0));
        if flushes {
            assert_eq!((harness.results(), harness.descriptor(0).op_flags), (vec![0], iod::FLUSH));
            harness.commit(0, 0, buffer(0));
        }
        assert_eq!(harness.results(), []);
        assert_eq!(harness.outcomes(), [(1, Ok(()))]);
        harness.command(ctrl::STOP_DEV, 0).unwrap();
    }
}

#[test]
fn a_client_without_a_slot_is_notified_of_the_next_free_one() {
    let mut harness = Harness::new();
    let device = harness.live(0, 1);
    let slot = harness.slot().unwrap();
    assert_eq!(harness.slot(), None);
    device.free_slot(slot);
    assert_eq!(*harness.client.freed_slots.lock().unwrap(), 1);
    device.free_slot(harness.slot().unwrap());
    assert_eq!(*harness.client.freed_slots.lock().unwrap(), 1, "asked once, told once");
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn a_tag_accepts_commands_only_of_the_task_that_fetched_it() {
    let mut harness = Harness::new();
    let device = harness.add(0, 2);
    device.open().unwrap();
    assert_eq!(harness.io_by(1, ublk_io::FETCH_REQ, IoCmd { tag: 0, addr: 1, ..IoCmd::default() }), None);
    assert_eq!(harness.io_by(2, ublk_io::FETCH_REQ, IoCmd { tag: 1, addr: 1, ..IoCmd::default() }), None);
    harness.command(ctrl::START_DEV, 1).unwrap();
    harness.submit(IoOp::Read, 0, 1, 1);
    harness.submit(IoOp::Read, 0, 1, 2);
    assert_eq!(harness.results(), [0, 0]);
    let commit = |tag| IoCmd { tag, result: 512, addr: 1, ..IoCmd::default() };
    assert_eq!(harness.io_by(2, COMMIT, commit(0)), Some(-22));
    assert_eq!(harness.io_by(1, COMMIT, commit(0)), None);
    assert_eq!(harness.io_by(2, COMMIT, commit(1)), None);
    assert_eq!(harness.outcomes(), [(1, Ok(())), (2, Ok(()))]);
    for cmd in [IoCmd { q_id: 1, ..commit(0) }, commit(2), commit(u16::MAX)] {
        assert_eq!(harness.io_by(1, COMMIT, cmd), Some(-22), "{cmd:?}");
    }
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}
