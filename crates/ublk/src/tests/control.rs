//! Control commands: each check of ublk_drv.

use super::*;
use crate::control::FEATURES;
use crate::wire::DeviceRecord;

fn header() -> CtrlCmd {
    CtrlCmd { queue_id: u16::MAX, len: 64, addr: 1, ..CtrlCmd::default() }
}

fn add(harness: &Harness, caller: &Caller, info: DevInfo, header: CtrlCmd) -> Result<DevInfo, Errno> {
    let mut bytes = info.to_bytes().to_vec();
    harness.driver.control(caller, 0xc020_7504, header, &mut bytes)?;
    Ok(DevInfo::from_bytes(&bytes.try_into().unwrap()))
}

const INFO: DevInfo = DevInfo {
    nr_hw_queues: 1,
    queue_depth: 2,
    state: 9,
    max_io_buf_bytes: 65_540,
    dev_id: 0,
    ublksrv_pid: 5,
    flags: 0,
    ublksrv_flags: 7,
    owner_uid: 5,
    owner_gid: 5,
    reserved1: 0,
    reserved2: 0,
};

#[test]
fn add_dev_returns_the_granted_features() {
    let harness = Harness::new();
    let got = add(&harness, &ROOT, DevInfo { nr_hw_queues: 9, flags: !feature::ZONED & !feature::USER_RECOVERY_FAIL_IO, ..INFO }, header())
        .unwrap();
    let want = FEATURES & !feature::UNPRIVILEGED_DEV & !feature::NEED_GET_DATA & !feature::USER_RECOVERY_FAIL_IO;
    assert_eq!(got.flags, want);
    assert_eq!((got.nr_hw_queues, got.max_io_buf_bytes, got.state, got.ublksrv_pid), (4, 65_536, 0, -1));
    assert_eq!((got.owner_uid, got.owner_gid, got.ublksrv_flags), (0, 0, 7));
    // Number -1: the lowest free one.
    let any = DevInfo { dev_id: u32::MAX, ..INFO };
    let got = add(&harness, &ROOT, any, CtrlCmd { dev_id: u32::MAX, ..header() }).unwrap();
    assert_eq!((got.dev_id, got.flags), (1, feature::CMD_IOCTL_ENCODE | feature::URING_CMD_COMP_IN_TASK | feature::PER_IO_DAEMON));
    assert_eq!(harness.driver.ids(), [0, 1]);
}

#[test]
fn numbers_are_reserved_at_the_front_ends() {
    let harness = Harness::new();
    let reserved = || harness.front_end.reserved.lock().unwrap().clone();
    harness.front_end.foreign.lock().unwrap().extend([0, 2]);
    let any = |harness: &Harness| {
        add(harness, &ROOT, DevInfo { dev_id: u32::MAX, ..INFO }, CtrlCmd { dev_id: u32::MAX, ..header() }).map(|info| info.dev_id)
    };
    assert_eq!(add(&harness, &ROOT, INFO, header()), Err(Errno::EEXIST));
    assert_eq!((any(&harness), any(&harness), reserved()), (Ok(1), Ok(3), vec![1, 3]));
    // A device that is not made reserves nothing.
    let mut short = vec![0; 10];
    let info = CtrlCmd { dev_id: 0, ..header() };
    assert_eq!(harness.driver.control(&ROOT, 0xc020_7504, info, &mut short), Err(Errno::EFAULT));
    assert_eq!(reserved(), [1, 3]);
    harness.driver.control(&ROOT, 0x7505, CtrlCmd { dev_id: 1, ..header() }, &mut Vec::new()).unwrap();
    assert_eq!((reserved(), any(&harness)), (vec![3], Ok(1)));
}

#[test]
fn a_record_brings_a_device_to_another_driver() {
    let mut harness = Harness::new();
    let device = harness.add(feature::NEED_GET_DATA, 2);
    assert_eq!(device.record(), None, "it is not live");
    device.open().unwrap();
    harness.fetch_all(feature::NEED_GET_DATA, 2);
    harness.command(ctrl::START_DEV, 77).unwrap();
    let record = device.record().unwrap();
    let next = Harness::new();
    let adopt =
        |record: &DeviceRecord| next.driver.adopt(record, TestPlatform { server: Arc::clone(&next.server) }.alloc_buffers(1, 2).unwrap());
    for bad in [
        DeviceRecord { info: DevInfo { queue_depth: 0, ..record.info }, ..record },
        DeviceRecord { info: DevInfo { nr_hw_queues: 5000, ..record.info }, ..record },
        DeviceRecord { info: DevInfo { dev_id: 1 << 20, ..record.info }, ..record },
        DeviceRecord { info: DevInfo { flags: feature::ZONED, ..record.info }, ..record },
        DeviceRecord { params: [0; 112], ..record },
    ] {
        assert_eq!(adopt(&bad).err(), Some(Errno::EINVAL));
    }
    assert!(next.driver.ids().is_empty() && next.front_end.reserved.lock().unwrap().is_empty());
    let adopted = adopt(&record).unwrap();
    assert_eq!(adopt(&record).err(), Some(Errno::EEXIST));
    assert_eq!(adopted.info(), DevInfo { state: 0, ublksrv_pid: -1, ..record.info });
    assert_eq!(adopted.state().params.limits(), device.state().params.limits());
    harness.command(ctrl::STOP_DEV, 0).unwrap();
    assert_eq!(device.record(), None);
}

#[test]
fn add_dev_checks_its_arguments() {
    let harness = Harness::new();
    let user = Caller { uid: 1000, gid: 1000, is_admin: false };
    let f = |flags| DevInfo { flags, ..INFO };
    let cases = [
        ("short", &ROOT, INFO, CtrlCmd { len: 63, ..header() }, Errno::EINVAL),
        ("no address", &ROOT, INFO, CtrlCmd { addr: 0, ..header() }, Errno::EINVAL),
        ("a queue", &ROOT, INFO, CtrlCmd { queue_id: 0, ..header() }, Errno::EINVAL),
        ("no depth", &ROOT, DevInfo { queue_depth: 0, ..INFO }, header(), Errno::EINVAL),
        ("deep", &ROOT, DevInfo { queue_depth: 4097, ..INFO }, header(), Errno::EINVAL),
        ("no queue", &ROOT, DevInfo { nr_hw_queues: 0, ..INFO }, header(), Errno::EINVAL),
        ("many queues", &ROOT, DevInfo { nr_hw_queues: 4097, ..INFO }, header(), Errno::EINVAL),
        ("two numbers", &ROOT, DevInfo { dev_id: 1, ..INFO }, header(), Errno::EINVAL),
        ("a large number", &ROOT, DevInfo { dev_id: 1 << 20, ..INFO }, CtrlCmd { dev_id: 1 << 20, ..header() }, Errno::EINVAL),
        ("reissue alone", &ROOT, f(feature::USER_RECOVERY_REISSUE), header(), Errno::EINVAL),
        ("fail alone", &ROOT, f(feature::USER_RECOVERY_FAIL_IO), header(), Errno::EINVAL),
        (
            "reissue and fail",
            &ROOT,
            f(feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE | feature::USER_RECOVERY_FAIL_IO),
            header(),
            Errno::EINVAL,
        ),
        ("quiesce alone", &ROOT, f(feature::QUIESCE), header(), Errno::EINVAL),
        ("zones", &ROOT, f(feature::ZONED | feature::USER_COPY), header(), Errno::EINVAL),
        ("no privilege", &user, INFO, header(), Errno::EPERM),
        ("user copy of a user", &user, f(feature::UNPRIVILEGED_DEV | feature::USER_COPY), header(), Errno::EINVAL),
    ];
    for (what, caller, info, header, want) in cases {
        assert_eq!(add(&harness, caller, info, header), Err(want), "{what}");
    }
    assert_eq!(harness.driver.control(&ROOT, 4, header(), &mut vec![0; 8]), Err(Errno::EFAULT), "a bad address");
    add(&harness, &ROOT, INFO, header()).unwrap();
    assert_eq!(add(&harness, &ROOT, INFO, header()), Err(Errno::EEXIST));
    for id in 1..=64 {
        let info = DevInfo { dev_id: id, flags: feature::UNPRIVILEGED_DEV | feature::USER_RECOVERY, ..INFO };
        let got = add(&harness, &user, info, CtrlCmd { dev_id: id, ..header() }).unwrap();
        assert_eq!(got.flags & (feature::USER_RECOVERY | feature::UNPRIVILEGED_DEV), feature::UNPRIVILEGED_DEV);
        assert_eq!(got.owner_uid, 1000);
    }
    let info = DevInfo { dev_id: 65, flags: feature::UNPRIVILEGED_DEV, ..INFO };
    assert_eq!(add(&harness, &user, info, CtrlCmd { dev_id: 65, ..header() }), Err(Errno::EACCES), "one too many");
}

#[test]
fn commands_are_identified_by_their_ioctl_encoding() {
    let harness = Harness::new();
    harness.add(0, 1);
    let op = |cmd_op, header: CtrlCmd| harness.driver.control(&ROOT, cmd_op, header, &mut vec![0; 64]);
    assert_eq!(op(0x02, header()), Ok(()), "legacy");
    assert_eq!(op(0x8020_7502, header()), Ok(()), "ioctl-encoded");
    assert_eq!(op(0x8020_7602, header()), Err(Errno::EOPNOTSUPP), "of another driver");
    assert_eq!(op(0x7530, header()), Err(Errno::EOPNOTSUPP), "unknown");
    assert_eq!(op(0x7530, CtrlCmd { dev_id: 9, ..header() }), Err(Errno::ENODEV));
    assert_eq!(op(0x8020_7513, CtrlCmd { len: 8, dev_id: 9, ..header() }), Ok(()), "features need no device");
    assert_eq!(op(0x8020_7513, header()), Err(Errno::EINVAL));
    assert_eq!(op(0x8020_7513, CtrlCmd { len: 8, addr: 0, ..header() }), Err(Errno::EINVAL));
    assert_eq!(op(0x13, CtrlCmd { len: 8, ..header() }), Err(Errno::EOPNOTSUPP), "and their whole encoding");
    let mut bytes = vec![0; 8];
    harness.driver.control(&ROOT, 0x8020_7513, CtrlCmd { len: 8, ..header() }, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes.try_into().unwrap()), FEATURES);
}

#[test]
fn unprivileged_users_pass_the_path_of_the_char_device() {
    let harness = Harness::new();
    let owner = Caller { uid: 1000, gid: 1000, is_admin: false };
    add(&harness, &owner, DevInfo { flags: feature::UNPRIVILEGED_DEV, ..INFO }, header()).unwrap();
    add(&harness, &ROOT, DevInfo { dev_id: 1, ..INFO }, CtrlCmd { dev_id: 1, ..header() }).unwrap();
    let ask = |caller: &Caller, nr: u32, id: u32, path: &[u8], len: u16| {
        let mut bytes = path.to_vec();
        bytes.resize(path.len() + 64, 0);
        let header = CtrlCmd { dev_id: id, len, dev_path_len: path.len() as u16, ..header() };
        let result = harness.driver.control(caller, 0x7500 | nr, header, &mut bytes);
        result.map(|()| DevInfo::from_bytes(&bytes[path.len()..].try_into().unwrap()).owner_uid)
    };
    let path = b"/dev/ublkc0\0";
    assert_eq!(ask(&owner, 0x12, 0, path, 76), Ok(1000));
    assert_eq!(ask(&owner, 0x02, 0, path, 76), Ok(1000), "every command has the path");
    assert_eq!(ask(&ROOT, 0x12, 0, path, 76), Ok(1000));
    assert_eq!(ask(&owner, 0x12, 0, path, 75), Err(Errno::EINVAL), "no room for the answer");
    assert_eq!(ask(&owner, 0x12, 0, path, 11), Err(Errno::EINVAL), "no room for the path");
    assert_eq!(ask(&owner, 0x02, 0, b"", 64), Err(Errno::EINVAL));
    assert_eq!(ask(&owner, 0x12, 0, b"/dev/ublkc1", 75), Err(Errno::EPERM), "another one's");
    assert_eq!(ask(&owner, 0x12, 0, b"/dev/ublkc7", 75), Err(Errno::ENOENT));
    assert_eq!(ask(&owner, 0x12, 0, b"/dev/null", 73), Err(Errno::EPERM));
    assert_eq!(ask(&Caller { uid: 1001, ..owner }, 0x12, 0, path, 76), Err(Errno::EACCES));
    assert_eq!(ask(&owner, 0x02, 1, b"", 64), Err(Errno::EPERM), "the administrator's device");
    assert_eq!(ask(&ROOT, 0x02, 1, b"", 64), Ok(0));
    assert_eq!(ask(&ROOT, 0x12, 1, b"", 64), Err(Errno::EINVAL), "INFO2 has a path always");
    assert_eq!(ask(&owner, 0x14, 0, path, 76), Err(Errno::EINVAL), "not among the commands with a path");
}

#[test]
fn char_device_paths_are_parsed_strictly() {
    use crate::control::char_device_id;
    for (path, id) in [("/dev/ublkc0", Some(0)), ("/dev/ublkc123", Some(123)), ("/dev/ublkc", None), ("/dev/ublkc01", None)] {
        assert_eq!(char_device_id(path.as_bytes()), id, "{path}");
    }
    for path in ["/dev/ublkc1x", "/dev/ublkb1", "ublkc1", "/dev/ublkc99999999999"] {
        assert_eq!(char_device_id(path.as_bytes()), None, "{path}");
    }
}

#[test]
fn queue_affinity_spreads_the_cpus() {
    let harness = Harness::new();
    add(&harness, &ROOT, DevInfo { nr_hw_queues: 2, ..INFO }, header()).unwrap();
    let ask = |queue: u64, len: u16| {
        let mut mask = vec![0xff; 16];
        let header = CtrlCmd { data: queue, len, ..header() };
        harness.control(ctrl::GET_QUEUE_AFFINITY, header, &mut mask).map(|()| mask)
    };
    assert_eq!(ask(0, 8).unwrap()[..9], [0b0011, 0, 0, 0, 0, 0, 0, 0, 0xff]);
    assert_eq!(ask(1, 16).unwrap(), [vec![0b1100], vec![0; 15]].concat());
    assert_eq!(ask(2, 8), Err(Errno::EINVAL));
    assert_eq!(ask(0, 7), Err(Errno::EINVAL));
    assert_eq!(ask(0, 0), Err(Errno::EINVAL));
}

#[test]
fn parameters_are_fixed_once_the_device_is_started() {
    let mut harness = Harness::new();
    let device = harness.live(0, 1);
    assert_eq!(harness.set_params(&BASIC), Err(Errno::EACCES));
    let get = |len: u32, room: u16| {
        let mut bytes = vec![0; 128];
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        harness.control(ctrl::GET_PARAMS, CtrlCmd { len: room, ..header() }, &mut bytes).map(|()| bytes)
    };
    let bytes = get(112, 112).unwrap();
    assert_eq!(u32::from_le_bytes(bytes[4..8].try_into().unwrap()), param::BASIC | param::DISCARD | param::DEVT);
    assert_eq!(ParamBasic::from_bytes(&bytes[8..40].try_into().unwrap()), BASIC);
    assert_eq!(bytes[68..72], 241_u32.to_le_bytes(), "a live device has a disk");
    assert_eq!(get(8, 112).unwrap()[8..], [0; 120]);
    assert_eq!(get(1000, 1000).unwrap()[112..], [0; 16], "no more than there is");
    assert_eq!(get(0, 112), Err(Errno::EINVAL));
    assert_eq!(get(113, 112), Err(Errno::EINVAL));
    assert_eq!(get(8, 8), Err(Errno::EINVAL), "room for more than the header");
    harness.command(ctrl::STOP_DEV, 0).unwrap();
    assert_eq!(device.info().state, 0);
    // Invalid parameters leave no type set: the device cannot start.
    assert_eq!(harness.set_params(&ParamBasic { max_sectors: 0, ..BASIC }), Err(Errno::EINVAL));
    assert_eq!(harness.command(ctrl::START_DEV, 1), Err(Errno::EINVAL));
}

#[test]
fn start_dev_waits_for_a_server() {
    let harness = Harness::new();
    let info = DevInfo { nr_hw_queues: 1, queue_depth: 1, ..INFO };
    add(&harness, &ROOT, info, header()).unwrap();
    assert_eq!(harness.command(ctrl::START_DEV, 1), Err(Errno::EINVAL), "no parameters");
    harness.set_params(&BASIC).unwrap();
    assert_eq!(harness.command(ctrl::START_DEV, 0), Err(Errno::EINVAL), "no process");
    assert_eq!(harness.command(ctrl::START_DEV, u64::from(u32::MAX)), Err(Errno::EINVAL));
}

#[test]
fn update_size_changes_a_live_device() {
    let mut harness = Harness::new();
    let device = harness.add(feature::UPDATE_SIZE, 1);
    assert_eq!(harness.command(ctrl::UPDATE_SIZE, 100), Err(Errno::ENODEV));
    device.open().unwrap();
    harness.fetch_all(0, 1);
    harness.command(ctrl::START_DEV, 1).unwrap();
    harness.command(ctrl::UPDATE_SIZE, 100).unwrap();
    assert_eq!(device.limits().sectors, 100);
    assert_eq!(*harness.front_end.calls.lock().unwrap(), ["start", "resized"]);
    harness.submit(IoOp::Read, 100, 1, 1);
    assert_eq!(harness.outcomes(), [(1, Err(Errno::EIO))]);
    harness.command(ctrl::STOP_DEV, 0).unwrap();

    let mut harness = Harness::new();
    harness.live(0, 1);
    assert_eq!(harness.command(ctrl::UPDATE_SIZE, 100), Err(Errno::EOPNOTSUPP), "not asked for at ADD_DEV");
    assert_eq!(harness.command(ctrl::QUIESCE_DEV, 1), Err(Errno::EOPNOTSUPP));
    harness.command(ctrl::STOP_DEV, 0).unwrap();
}
