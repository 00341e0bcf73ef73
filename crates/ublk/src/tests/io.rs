//! Requests and commands: data arrives, errors come through, short transfers go on.

use super::*;
use uringlet_abi::ublk::iod;

const COMMIT: u8 = ublk_io::COMMIT_AND_FETCH_REQ;
const GET: u8 = ublk_io::NEED_GET_DATA;

#[test]
fn a_write_brings_its_data_with_its_cqe() {
    let mut world = World::new();
    world.live(0, 2);
    let data = pattern(1024);
    world.submit_with(IoOp::Write, 0, 8, 2, 5, &data);
    assert_eq!(world.results(), [0]);
    let iod = world.descriptor(0);
    assert_eq!((iod.op_flags, iod.start_sector, iod.nr_sectors, iod.addr), (iod::WRITE, 8, 2, buffer(0)));
    assert_eq!(world.server.lock().unwrap()[SLOT..SLOT + 1024], data);
    assert_eq!(world.outcomes(), []);
    assert_eq!(world.io(COMMIT, 0, 1024, buffer(0)), None);
    assert_eq!(world.outcomes(), [(5, Ok(()))]);
    world.command(ctrl::STOP_DEV, 0).unwrap();
    assert_eq!(world.results(), [-19, -19]);
}

#[test]
fn a_read_brings_its_data_with_the_commit() {
    let mut world = World::new();
    world.live(0, 1);
    world.submit(IoOp::Read, 0, 4, 6);
    assert_eq!(world.results(), [0]);
    let data = pattern(2048);
    // The commit's address counts, as in the kernel.
    world.server.lock().unwrap()[4096..6144].copy_from_slice(&data);
    assert_eq!(world.io(COMMIT, 0, 2048, 4096), None);
    assert_eq!(world.ended(2048), [(6, Ok(()), data)]);
    world.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn need_get_data_asks_before_it_copies() {
    let mut world = World::new();
    world.live(feature::NEED_GET_DATA, 1);
    let data = pattern(4096);
    world.submit_with(IoOp::Write, 0, 16, 8, 7, &data);
    assert_eq!(world.results(), [ublk_io::RES_NEED_GET_DATA]);
    assert_eq!(world.descriptor(0).nr_sectors, 8);
    assert!(world.server.lock().unwrap().iter().all(|&byte| byte == 0), "nothing is copied yet");
    assert_eq!(world.io(COMMIT, 0, 4096, 9), Some(-22), "a commit instead of the address");
    assert_eq!(world.io(GET, 0, 0, 8192), Some(ublk_io::RES_OK));
    assert_eq!(world.descriptor(0).addr, 8192);
    assert_eq!(world.server.lock().unwrap()[8192..12288], data);
    assert_eq!(world.io(GET, 0, 0, 8192), Some(-22), "asked for once");
    // No buffer until the next write asks for one.
    assert_eq!(world.io(COMMIT, 0, 4096, 0), None);
    assert_eq!(world.outcomes(), [(7, Ok(()))]);
    // Reads are as ever: the buffer comes with the commit.
    world.submit(IoOp::Read, 0, 1, 8);
    assert_eq!(world.results(), [ublk_io::RES_OK]);
    assert_eq!(world.io(COMMIT, 0, 512, 0), Some(-22));
    assert_eq!(world.io(COMMIT, 0, 512, 4096), None);
    assert_eq!(world.outcomes(), [(8, Ok(()))]);
    world.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn results_reach_the_client_as_the_block_layer_tells_them() {
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
    let mut world = World::new();
    world.live(0, 1);
    for (op, result, want) in cases {
        world.submit(op, 0, if op == IoOp::Flush { 0 } else { 2 }, 1);
        assert_eq!(world.results(), [0]);
        assert_eq!(world.io(COMMIT, 0, result, buffer(0)), None);
        assert_eq!(world.outcomes(), [(1, want)], "{op:?} {result}");
    }
    world.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn what_a_short_transfer_leaves_is_requeued() {
    for flags in [0, feature::USER_COPY, feature::NEED_GET_DATA] {
        let mut world = World::new();
        let device = world.live(flags, 1);
        let copies = flags & feature::USER_COPY == 0;
        let addr = if copies { buffer(0) } else { 0 };
        let data = pattern(4096);
        world.submit_with(IoOp::Write, 0, 8, 8, 1, &data);
        let mut seen = Vec::new();
        for part in [1024, 512, 2560] {
            if flags == feature::NEED_GET_DATA {
                assert_eq!(world.results(), [1]);
                assert_eq!(world.io(GET, 0, 0, addr), Some(0));
            } else {
                assert_eq!(world.results(), [0]);
            }
            let iod = world.descriptor(0);
            assert_eq!((iod.start_sector, iod.nr_sectors), (8 + seen.len() as u64 / 512, ((4096 - seen.len()) / 512) as u32));
            let mut bytes = vec![0; part];
            if copies {
                bytes.copy_from_slice(&world.server.lock().unwrap()[addr as usize..][..part]);
            } else {
                device.buffers().read(SlotRange { queue: 0, tag: 0, offset: 0, len: part as u32 }, &mut bytes).unwrap();
            }
            seen.extend(bytes);
            world.commit(0, part as i32, addr);
        }
        assert_eq!(world.outcomes(), [(1, Ok(()))]);
        assert_eq!(seen, data);
        world.command(ctrl::STOP_DEV, 0).unwrap();
    }
}

#[test]
fn a_read_in_pieces_is_put_together() {
    for flags in [0, feature::USER_COPY] {
        let mut world = World::new();
        let device = world.live(flags, 1);
        let data = pattern(3072);
        world.submit(IoOp::Read, 0, 6, 1);
        let mut at = 0;
        for part in [512, 1536, 1024] {
            assert_eq!(world.results(), [0]);
            let bytes = &data[at..at + part];
            let addr = if flags == 0 {
                world.server.lock().unwrap()[SLOT..SLOT + part].copy_from_slice(bytes);
                buffer(0)
            } else {
                device.buffers().write(SlotRange { queue: 0, tag: 0, offset: 0, len: part as u32 }, bytes).unwrap();
                0
            };
            at += part;
            world.commit(0, part as i32, addr);
        }
        assert_eq!(world.ended(3072), [(1, Ok(()), data)]);
        world.command(ctrl::STOP_DEV, 0).unwrap();
    }
}

#[test]
fn buffers_that_fault_fail_the_request() {
    let mut world = World::new();
    world.live(feature::NEED_GET_DATA, 1);
    world.submit(IoOp::Write, 0, 2, 1);
    assert_eq!(world.results(), [1]);
    // Nothing could be copied: the command waits for the next request.
    assert_eq!(world.io(GET, 0, 0, SERVER as u64), None);
    assert_eq!(world.outcomes(), [(1, Err(Errno::EIO))]);
    // A part could: the server sees a shorter request, and the rest comes again.
    world.submit(IoOp::Write, 0, 2, 2);
    assert_eq!(world.results(), [1]);
    assert_eq!(world.io(GET, 0, 0, SERVER as u64 - 512), Some(0));
    assert_eq!(world.descriptor(0).nr_sectors, 1);
    world.commit(0, 512, 0);
    assert_eq!(world.results(), [1]);
    assert_eq!(world.io(GET, 0, 0, 4096), Some(0));
    assert_eq!(world.io(COMMIT, 0, 512, 0), None);
    assert_eq!(world.outcomes(), [(2, Ok(()))]);
    world.submit(IoOp::Read, 0, 2, 3);
    assert_eq!(world.results(), [0]);
    assert_eq!(world.io(COMMIT, 0, 1024, SERVER as u64), None);
    assert_eq!(world.outcomes(), [(3, Err(Errno::EIO))]);
    world.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn requests_are_checked_as_by_the_block_layer() {
    let mut world = World::new();
    world.live(0, 1);
    let cases = [
        ("beyond the end", IoOp::Read, 2047, 2, Errno::EIO),
        ("around the end of all numbers", IoOp::Write, u64::MAX, 2, Errno::EIO),
        ("empty", IoOp::Read, 0, 0, Errno::EINVAL),
        ("too long", IoOp::Write, 0, 65, Errno::EINVAL),
        ("too long a discard", IoOp::Discard, 0, 1025, Errno::EINVAL),
    ];
    for (what, op, sector, sectors, want) in cases {
        world.submit(op, sector, sectors, 1);
        assert_eq!(world.outcomes(), [(1, Err(want))], "{what}");
    }
    assert_eq!(world.results(), []);
    world.command(ctrl::STOP_DEV, 0).unwrap();

    let mut world = World::new();
    let device = world.add(0, 1);
    world.set_params(&ParamBasic { attrs: param::ATTR_READ_ONLY, logical_bs_shift: 12, ..BASIC }).unwrap();
    device.open().unwrap();
    world.fetch_all(0, 1);
    world.command(ctrl::START_DEV, 1).unwrap();
    world.submit(IoOp::Write, 0, 8, 1);
    world.submit_after(IoOp::Read, 4, 8, Err(Errno::EINVAL));
    world.submit_after(IoOp::Read, 0, 4, Err(Errno::EINVAL));
    // No cache: nothing to flush.
    world.submit_after(IoOp::Flush, 0, 0, Ok(()));
    assert_eq!(world.results(), []);
    world.command(ctrl::STOP_DEV, 0).unwrap();
}

impl World {
    /// Takes what has ended before, and checks what is answered at once.
    fn submit_after(&self, op: IoOp, sector: u64, sectors: u32, want: Result<(), Errno>) {
        self.outcomes();
        self.submit(op, sector, sectors, 9);
        assert_eq!(self.outcomes(), [(9, want)], "{op:?}");
    }
}

#[test]
fn fua_is_a_flush_where_the_server_does_not_know_it() {
    for (attrs, flags, flushes) in
        [(param::ATTR_VOLATILE_CACHE, 0, true), (param::ATTR_VOLATILE_CACHE | param::ATTR_FUA, iod::F_FUA, false), (0, 0, false)]
    {
        let mut world = World::new();
        let device = world.add(0, 1);
        world.set_params(&ParamBasic { attrs, ..BASIC }).unwrap();
        device.open().unwrap();
        world.fetch_all(0, 1);
        world.command(ctrl::START_DEV, 1).unwrap();
        world.submit_with(IoOp::Write, iod::F_FUA, 0, 1, 1, &[1; 512]);
        assert_eq!(world.results(), [0]);
        assert_eq!(world.descriptor(0).op_flags, iod::WRITE | flags);
        world.commit(0, 512, buffer(0));
        if flushes {
            assert_eq!((world.results(), world.descriptor(0).op_flags), (vec![0], iod::FLUSH));
            world.commit(0, 0, buffer(0));
        }
        assert_eq!(world.results(), []);
        assert_eq!(world.outcomes(), [(1, Ok(()))]);
        world.command(ctrl::STOP_DEV, 0).unwrap();
    }
}

#[test]
fn whoever_finds_no_slot_is_told_of_the_next() {
    let mut world = World::new();
    let device = world.live(0, 1);
    let slot = world.slot().unwrap();
    assert_eq!(world.slot(), None);
    device.free_slot(slot);
    assert_eq!(*world.reader.told.lock().unwrap(), 1);
    device.free_slot(world.slot().unwrap());
    assert_eq!(*world.reader.told.lock().unwrap(), 1, "asked once, told once");
    world.command(ctrl::STOP_DEV, 0).unwrap();
}

#[test]
fn a_tag_belongs_to_the_thread_that_fetched_it() {
    let mut world = World::new();
    let device = world.add(0, 2);
    device.open().unwrap();
    assert_eq!(world.io_by(1, ublk_io::FETCH_REQ, IoCmd { tag: 0, addr: 1, ..IoCmd::default() }), None);
    assert_eq!(world.io_by(2, ublk_io::FETCH_REQ, IoCmd { tag: 1, addr: 1, ..IoCmd::default() }), None);
    world.command(ctrl::START_DEV, 1).unwrap();
    world.submit(IoOp::Read, 0, 1, 1);
    world.submit(IoOp::Read, 0, 1, 2);
    assert_eq!(world.results(), [0, 0]);
    let commit = |tag| IoCmd { tag, result: 512, addr: 1, ..IoCmd::default() };
    assert_eq!(world.io_by(2, COMMIT, commit(0)), Some(-22));
    assert_eq!(world.io_by(1, COMMIT, commit(0)), None);
    assert_eq!(world.io_by(2, COMMIT, commit(1)), None);
    assert_eq!(world.outcomes(), [(1, Ok(())), (2, Ok(()))]);
    for cmd in [IoCmd { q_id: 1, ..commit(0) }, commit(2), commit(u16::MAX)] {
        assert_eq!(world.io_by(1, COMMIT, cmd), Some(-22), "{cmd:?}");
    }
    world.command(ctrl::STOP_DEV, 0).unwrap();
}
