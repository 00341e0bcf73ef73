//! `/dev/ublkbN` as programs see it. The tests need root, FUSE and loop devices, and are skipped
//! otherwise.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd, IoOp};
use uringlet_ublk_front::block::BlockFrontEnd;
use uringlet_ublk_server::ram_device::{RamDevice, RamDeviceSpec};

const SIZE: u64 = 64 << 20;

/// A front end, a device, and its number; `None` where block devices are not available.
fn started(number: u32, spec: RamDeviceSpec) -> Option<(BlockFrontEnd, Arc<RamDevice>, u32)> {
    let front = BlockFrontEnd::new(Path::new("/dev"));
    if let Some(missing) = front.missing().first() {
        println!("skipped: {missing}");
        return None;
    }
    // Numbers that no concurrent run of these tests uses.
    let id = 1_000_000 + std::process::id() % 1_000_000 * 10 + number;
    let device = Arc::new(RamDevice::new(id, spec));
    front.start(Arc::clone(&device) as Arc<dyn BlockDevice>).unwrap();
    Some((front, device, id))
}

fn open(front: &BlockFrontEnd, id: u32) -> File {
    File::options().read(true).write(true).open(front.node(id)).unwrap()
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 3 + i / 512) as u8 ^ seed).collect()
}

#[test]
fn data_survives_a_round_trip_through_the_kernel() {
    // With a single slot every request waits for it, and none is forgotten.
    for (number, depth) in [(0, 64), (1, 1)] {
        let spec = RamDeviceSpec { depth, queues: 1, ..RamDeviceSpec::with_size(SIZE) };
        let Some((front, device, id)) = started(number, spec) else { return };
        let mut file = open(&front, id);
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), SIZE);
        let data = pattern(10 << 20, 7);
        file.write_all_at(&data, 12_345).unwrap();
        file.sync_all().unwrap();
        assert!(device.requests().iter().any(|request| request.op == IoOp::Flush));
        let mut kept = vec![0; data.len()];
        device.memory().read(12_345, &mut kept);
        assert!(kept == data, "what the device has differs");
        drop(file);
        // Read again, past the page cache.
        let file = open(&front, id);
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut back = vec![0; data.len()];
        file.read_exact_at(&mut back, 12_345).unwrap();
        assert!(back == data, "what comes back differs");
        assert!(device.requests().iter().any(|request| request.op == IoOp::Read));
        drop(file);
        let start = Instant::now();
        front.stop(id);
        assert!(!front.node(id).exists());
        assert!(start.elapsed() < Duration::from_secs(5), "the kernel did not let go of it");
    }
}

fn read_memory(device: &RamDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.memory().read(at, &mut bytes);
    bytes
}

#[test]
fn a_resize_reaches_the_block_device() {
    let Some((front, device, id)) = started(2, RamDeviceSpec::with_size(SIZE)) else { return };
    device.resize(2 * SIZE / 512);
    front.resized(&(Arc::clone(&device) as Arc<dyn BlockDevice>));
    let mut file = open(&front, id);
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 2 * SIZE);
    file.write_all_at(&[9; 4096], 2 * SIZE - 4096).unwrap();
    file.sync_all().unwrap();
    assert_eq!(read_memory(&device, 2 * SIZE - 4096, 4096), [9; 4096]);
}

#[test]
fn device_errors_reach_the_block_device_reader() {
    let Some((front, device, id)) = started(3, RamDeviceSpec::with_size(SIZE)) else { return };
    device.fail(0..64, Errno::EIO);
    let mut file = open(&front, id);
    assert!(file.read_exact(&mut [0; 4096]).is_err());
    file.seek(SeekFrom::Start(1 << 20)).unwrap();
    file.read_exact(&mut [0; 4096]).unwrap();
}

#[test]
fn a_read_only_device_rejects_writes() {
    let mut spec = RamDeviceSpec::with_size(SIZE);
    spec.limits.is_read_only = true;
    let Some((front, _device, id)) = started(4, spec) else { return };
    let written = File::options().write(true).open(front.node(id)).and_then(|file| file.write_all_at(&[1; 4096], 0));
    assert!(written.is_err());
    File::open(front.node(id)).unwrap().read_exact(&mut [0; 4096]).unwrap();
}

#[test]
fn an_existing_file_under_the_node_name_is_kept() {
    let front = BlockFrontEnd::new(&std::env::temp_dir());
    let id = 2_000_000 + std::process::id() % 1_000_000;
    std::fs::write(front.node(id), "mine").unwrap();
    let device = Arc::new(RamDevice::new(id, RamDeviceSpec::with_size(SIZE)));
    assert_eq!(front.start(device), Err(Errno::EEXIST));
    assert_eq!(std::fs::read(front.node(id)).unwrap(), b"mine");
    std::fs::remove_file(front.node(id)).unwrap();
}

#[test]
fn a_node_of_a_live_device_is_kept() {
    let Some((front, device, id)) = started(5, RamDeviceSpec::with_size(SIZE)) else { return };
    let other = BlockFrontEnd::new(Path::new("/dev"));
    assert_eq!(other.start(Arc::new(RamDevice::new(id, RamDeviceSpec::with_size(SIZE)))), Err(Errno::EEXIST));
    assert!(!other.clean().iter().any(|what| what.contains(&format!("ublkb{id} "))), "it is alive");
    open(&front, id).write_all_at(&[9; 4096], 0).unwrap();
    front.before_stop(id);
    assert_eq!(read_memory(&device, 0, 4096), [9; 4096], "written back");
    assert_eq!(device.requests().last().map(|request| request.op), Some(IoOp::Flush));
    front.stop(id);
    assert!(!front.node(id).exists());
}

#[test]
fn stale_nodes_are_removed() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let dir = std::env::temp_dir().join(format!("ublk-nodes-{}", std::process::id()));
    let front = BlockFrontEnd::new(&dir);
    if let Some(missing) = front.missing().first() {
        println!("skipped: {missing}");
        return;
    }
    std::fs::create_dir(&dir).unwrap();
    // The last possible loop device, which does not exist.
    let rdev = makedev(7, (1 << 20) - 1);
    for name in ["ublkb5", "ublkb6.123", "ublkbX"] {
        mknodat(CWD, dir.join(name), FileType::BlockDevice, Mode::from_raw_mode(0o600), rdev).unwrap();
    }
    mknodat(CWD, dir.join("ublkb7"), FileType::CharacterDevice, Mode::from_raw_mode(0o600), makedev(1, 3)).unwrap();
    std::fs::write(dir.join("ublkb8"), "mine").unwrap();
    let done = front.clean();
    assert!(done.iter().any(|what| what.contains("/ublkb5 is removed")), "{done:?}");
    let mut left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["ublkb6.123", "ublkb7", "ublkb8", "ublkbX"]);
    std::fs::remove_dir_all(&dir).unwrap();
}
