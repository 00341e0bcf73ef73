//! The broker, its clients and the servers in one process, over the real wire.
#![forbid(unsafe_code)]

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uringlet_abi::ublk::{CtrlCmd, IoCmd, ctrl, feature, io, state};
use uringlet_sys::Errno;
use uringlet_ublk::blocking::BlockingClient;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd, IoOp};
use uringlet_ublk::wire::{ControlCall, Hello, Purpose, Submission, VERSION, Welcome};
use uringlet_ublk_server::backing::BackingStore;
use uringlet_ublk_server::device::{DeviceSpec, add};
use uringlet_ublk_server::device_map::DeviceMap;
use uringlet_ublk_server::sync_server::serve;
use uringlet_ublkd::broker::{Broker, BrokerHandle};
use uringlet_ublkd::client::{BrokerClient, CharDevice, CommandRefused};
use uringlet_ublkd::runtime_dir;

/// A time-out beyond any healthy run.
const TIMEOUT: Duration = Duration::from_secs(120);
const SIZE: u64 = 16 << 20;

struct BrokerFixture {
    dir: PathBuf,
    devices: Arc<DeviceMap>,
    client: BrokerClient,
    handle: BrokerHandle,
    thread: Option<JoinHandle<()>>,
}

impl BrokerFixture {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ublkd-{name}-{}", std::process::id()));
        let devices = Arc::new(DeviceMap::default());
        let broker = Broker::new(&dir, vec![Arc::clone(&devices) as Arc<dyn FrontEnd>]).unwrap();
        let handle = broker.handle();
        let thread = Some(std::thread::spawn(move || broker.run(None).unwrap()));
        Self { client: BrokerClient::new(&dir), dir, devices, handle, thread }
    }

    /// A device with a server on a thread, live when this returns.
    fn serve(&self, spec: DeviceSpec, target: BackingStore, threads: u16) -> (u32, JoinHandle<()>) {
        let (id, device) = add(&self.client, &spec, &target).unwrap();
        let client = self.client.clone();
        let server = std::thread::spawn(move || serve(&device, &target, threads, move || client.start(id).unwrap()).unwrap());
        wait_until("it is live", || self.client.info(id).unwrap().state == state::LIVE && self.device(id).is_some());
        (id, server)
    }

    fn device(&self, id: u32) -> Option<Arc<dyn BlockDevice>> {
        self.devices.get(id)
    }

    fn local(&self, id: u32) -> BlockingClient {
        BlockingClient::new(self.device(id).unwrap(), 0)
    }
}

impl Drop for BrokerFixture {
    fn drop(&mut self) {
        self.handle.stop();
        self.thread.take().unwrap().join().unwrap();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

fn spec(id: u32) -> DeviceSpec {
    DeviceSpec { id, size: SIZE, queues: 1, depth: 8, flags: 0, identity: 0, is_read_only: false, block_shift: 9 }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn refusal(error: &anyhow::Error) -> Option<Errno> {
    error.downcast_ref::<CommandRefused>().map(|refused| refused.0)
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 3 + i / 512) as u8 ^ seed).collect()
}

#[test]
fn a_device_is_served_and_deleted() {
    let fixture = BrokerFixture::new("life");
    assert_ne!(fixture.client.features().unwrap() & feature::NEED_GET_DATA, 0);
    for threads in [1, 3] {
        let (id, server) = fixture.serve(spec(u32::MAX), BackingStore::Ram(Box::default()), threads);
        assert_eq!(fixture.client.list().unwrap(), [id]);
        assert_eq!(fixture.client.params(id).unwrap().basic.dev_sectors, SIZE / 512);
        let local = fixture.local(id);
        let data = pattern(3 << 20, threads as u8);
        local.write(8, &data, 0).unwrap();
        let mut back = vec![0; data.len()];
        local.read(8, &mut back).unwrap();
        assert!(back == data, "what comes back differs");
        local.run_without_data(IoOp::WriteZeroes, 0, 8, 16).unwrap();
        local.run_without_data(IoOp::Discard, 0, 64, 64).unwrap();
        local.run_without_data(IoOp::Flush, 0, 0, 0).unwrap();
        local.read(8, &mut back[..8192]).unwrap();
        assert_eq!(back[..8192], [0; 8192]);
        assert_eq!(local.read(SIZE / 512, &mut [0; 512]), Err(Errno::EIO));
        fixture.client.stop(id).unwrap();
        server.join().unwrap();
        fixture.client.delete(id).unwrap();
        assert_eq!(fixture.client.list().unwrap(), [0; 0]);
    }
}

#[test]
fn requests_from_many_threads_share_the_tags() {
    let fixture = BrokerFixture::new("many");
    let spec = DeviceSpec { queues: 2, depth: 4, ..spec(u32::MAX) };
    let (id, server) = fixture.serve(spec, BackingStore::Ram(Box::default()), 4);
    std::thread::scope(|scope| {
        for number in 0..8_u8 {
            let local = BlockingClient::new(fixture.device(id).unwrap(), number.into());
            scope.spawn(move || {
                for round in 0..40_u8 {
                    let data = pattern(512 << (round % 9), number << 4 ^ round);
                    let sector = u64::from(number) << 11;
                    local.write(sector, &data, 0).unwrap();
                    let mut back = vec![0; data.len()];
                    local.read(sector, &mut back).unwrap();
                    assert!(back == data, "thread {number} reads what another wrote");
                }
            });
        }
    });
    fixture.client.delete(id).unwrap();
    server.join().unwrap();
}

#[test]
fn a_lost_server_leaves_the_state_its_flags_ask_for() {
    let fixture = BrokerFixture::new("lost");
    let cases = [
        (0, state::DEAD),
        (feature::USER_RECOVERY, state::QUIESCED),
        (feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE, state::QUIESCED),
        (feature::USER_RECOVERY | feature::USER_RECOVERY_FAIL_IO, state::FAIL_IO),
    ];
    for (flags, expected) in cases {
        let target = BackingStore::Null;
        let (id, device) = add(&fixture.client, &DeviceSpec { flags, ..spec(u32::MAX) }, &target).unwrap();
        let starting = fixture.client.clone();
        // The server fetches its tags, and dies with a request in flight.
        let device = arm(device, move || starting.start(id).unwrap());
        wait_until("it is live", || fixture.device(id).is_some());
        let local = fixture.local(id);
        let request = std::thread::spawn(move || local.read(0, &mut [0; 512]));
        assert_eq!(device.completions().unwrap().len(), 1);
        drop(device);
        wait_until("the state is reported", || fixture.client.info(id).unwrap().state == expected);
        if flags & feature::USER_RECOVERY_REISSUE == 0 {
            assert_eq!(request.join().unwrap(), Err(Errno::EIO));
        } else {
            fixture.client.start_recovery(id).unwrap();
            let recovering = fixture.client.clone();
            let next = fixture.client.open(id).unwrap();
            let server = std::thread::spawn(move || serve(&next, &target, 1, move || recovering.end_recovery(id).unwrap()).unwrap());
            assert_eq!(request.join().unwrap(), Ok(()), "the request is given to the next server");
            assert_eq!(fixture.client.info(id).unwrap().state, state::LIVE);
            fixture.client.stop(id).unwrap();
            server.join().unwrap();
        }
        fixture.client.delete(id).unwrap();
    }
}

/// A server that fetches and then does nothing.
fn arm(device: CharDevice, on_armed: impl FnOnce() + Send + 'static) -> CharDevice {
    let fetch = |tag| Submission { cmd_op: Some(io::FETCH_REQ.into()), task: 1, cmd: IoCmd { q_id: 0, tag, result: 0, addr: 0 } };
    device.submit(&(0..device.depth).map(fetch).collect::<Vec<_>>()).unwrap();
    std::thread::spawn(on_armed);
    device
}

#[test]
fn driver_errors_reach_the_client() {
    let fixture = BrokerFixture::new("refusals");
    let client = &fixture.client;
    let code = |result: anyhow::Result<()>| refusal(&result.unwrap_err()).unwrap();
    assert_eq!(code(client.info(5).map(drop)), Errno::ENODEV);
    assert_eq!(code(client.open(5).map(drop)), Errno::ENOENT);
    assert_eq!(code(client.start_recovery(5)), Errno::ENODEV);
    let (id, device) = add(client, &spec(7), &BackingStore::Null).unwrap();
    assert_eq!(id, 7);
    assert_eq!(code(client.open(7).map(drop)), Errno::EBUSY);
    assert_eq!(code(add(client, &spec(7), &BackingStore::Null).map(drop)), Errno::EEXIST);
    drop(device);
    client.delete(7).unwrap();
    assert!(Broker::new(&fixture.dir, Vec::new()).is_err(), "two brokers in one directory");
}

#[test]
fn random_packets_end_only_their_connection() {
    let fixture = BrokerFixture::new("noise");
    let (id, server) = fixture.serve(spec(u32::MAX), BackingStore::Ram(Box::default()), 1);
    let local = fixture.local(id);
    local.write(0, &pattern(4096, 3), 0).unwrap();
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let hello = |purpose: u8, device: u8| [&b"uringUBL\x01\0"[..], &[purpose, 0, device, 0, 0, 0]].concat();
    for round in 0..300 {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(runtime_dir::socket(&fixture.dir)).unwrap()).unwrap();
        if round % 4 > 0 {
            // Also of a second number, so that some opens succeed.
            rustix::io::write(&socket, &hello((round % 4) as u8, (random() % 3) as u8)).unwrap();
        }
        for _ in 0..random() % 6 {
            let len = [0, 1, 16, 32, 40, 44, 64, 104, 4096][(random() % 9) as usize];
            let mut bytes: Vec<u8> = (0..len).map(|_| if random() % 2 == 0 { 0 } else { random() as u8 }).collect();
            // No command that would change a device.
            if bytes.len() > 8 {
                bytes[8] = 200;
            }
            if rustix::net::send(&socket, &bytes, rustix::net::SendFlags::NOSIGNAL).is_err() {
                break;
            }
        }
    }
    let mut back = [0; 4096];
    local.read(0, &mut back).unwrap();
    assert_eq!(back[..], pattern(4096, 3));
    fixture.client.delete(id).unwrap();
    server.join().unwrap();
}

/// Sends a control command on a connection of its own, without reading the reply.
fn send_command(fixture: &BrokerFixture, nr: u8, id: u32, data: u64) -> rustix::fd::OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(runtime_dir::socket(&fixture.dir)).unwrap()).unwrap();
    rustix::io::write(&socket, &Hello { version: VERSION, purpose: Purpose::Control }.to_bytes()).unwrap();
    let header = CtrlCmd { dev_id: id, queue_id: u16::MAX, data, ..CtrlCmd::default() };
    rustix::io::write(&socket, &ControlCall { cmd_op: nr.into(), header, payload: &[] }.to_bytes()).unwrap();
    socket
}

#[test]
fn a_waiting_command_ends_when_its_client_hangs_up() {
    let fixture = BrokerFixture::new("gone");
    let (id, device) = add(&fixture.client, &spec(u32::MAX), &BackingStore::Null).unwrap();
    let waiting: Vec<_> = (0..4).map(|_| send_command(&fixture, ctrl::START_DEV, id, 1)).collect();
    wait_until("all are there", || fixture.handle.connections() == 5);
    drop(waiting);
    wait_until("their threads end", || fixture.handle.connections() == 1);
    // No client is left that would start it.
    let device = arm(device, || ());
    assert_eq!(fixture.client.info(id).unwrap().state, state::DEAD);
    // A deletion goes on without its client; the number is free with the last close.
    let delete = send_command(&fixture, ctrl::DEL_DEV, id, 0);
    assert!(device.completions().unwrap().iter().all(|completion| completion.res == -Errno::ENODEV.into_raw()));
    drop(delete);
    wait_until("its thread ends", || fixture.handle.connections() == 1);
    assert_eq!(fixture.client.list().unwrap(), [id]);
    drop(device);
    wait_until("its number is free", || fixture.client.list().unwrap().is_empty());
}

/// The results of these commands, in any order.
fn results(device: &CharDevice, submissions: &[Submission]) -> Vec<(u16, u16, i32)> {
    device.submit(submissions).unwrap();
    let mut all = Vec::new();
    while all.len() < submissions.len() {
        let completions = device.completions().unwrap();
        assert!(!completions.is_empty(), "the broker hung up");
        all.extend(completions.iter().map(|completion| (completion.queue, completion.tag, completion.res)));
    }
    all
}

fn command(nr: u8, task: u64, q_id: u16, tag: u16) -> Submission {
    Submission { cmd_op: Some(nr.into()), task, cmd: IoCmd { q_id, tag, result: 512, addr: 0 } }
}

#[test]
fn invalid_io_commands_are_refused_and_the_device_goes_on() {
    let fixture = BrokerFixture::new("wrong");
    let client = fixture.client.clone();
    let (id, device) = add(&client, &spec(u32::MAX), &BackingStore::Null).unwrap();
    let device = arm(device, move || client.start(id).unwrap());
    wait_until("it is live", || fixture.device(id).is_some());
    let local = fixture.local(id);
    let request = std::thread::spawn(move || local.read(0, &mut [0; 512]));
    let served = device.completions().unwrap();
    let tag = served[0].tag;
    let idle = if tag == 0 { 1 } else { 0 };
    let (fetch, commit, get) = (io::FETCH_REQ, io::COMMIT_AND_FETCH_REQ, io::NEED_GET_DATA);
    let with_address = Submission { cmd: IoCmd { addr: 4096, ..command(commit, 1, 0, tag).cmd }, ..command(commit, 1, 0, tag) };
    for (what, submission, errno) in [
        ("a queue that is not there", command(commit, 1, 1, 0), Errno::EINVAL),
        ("the last one", command(commit, 1, u16::MAX, 0), Errno::EINVAL),
        ("a tag that is not there", command(commit, 1, 0, device.depth), Errno::EINVAL),
        ("the last one", command(fetch, 1, 0, u16::MAX), Errno::EINVAL),
        ("a second fetch", command(fetch, 1, 0, idle), Errno::EBUSY),
        ("a fetch of what is served", command(fetch, 1, 0, tag), Errno::EBUSY),
        ("a commit of what waits", command(commit, 1, 0, idle), Errno::EBUSY),
        ("a tag of another task", command(commit, 2, 0, tag), Errno::EINVAL),
        ("data that nobody asks for", command(get, 1, 0, tag), Errno::EINVAL),
        ("no such command", command(0x30, 1, 0, tag), Errno::EINVAL),
        ("a buffer on a device that has none", with_address, Errno::EINVAL),
    ] {
        let expected = (submission.cmd.q_id, submission.cmd.tag, -errno.into_raw());
        assert_eq!(results(&device, &[submission]), [expected], "{what}");
    }
    // A larger result than requested is cut.
    let boastful = Submission { cmd: IoCmd { result: i32::MAX, ..command(commit, 1, 0, tag).cmd }, ..command(commit, 1, 0, tag) };
    device.submit(&[boastful]).unwrap();
    assert_eq!(request.join().unwrap(), Ok(()));
    // Cancellations of commands that do not exist are ignored.
    let nowhere = |q_id, tag| Submission { cmd_op: None, ..command(0, 1, q_id, tag) };
    device.submit(&[nowhere(1, 0), nowhere(0, u16::MAX)]).unwrap();
    assert_eq!(results(&device, &[command(fetch, 1, 7, 7)]), [(7, 7, -Errno::EINVAL.into_raw())]);
    assert_eq!(fixture.client.info(id).unwrap().state, state::LIVE);
    drop(device);
    wait_until("it dies", || fixture.client.info(id).unwrap().state == state::DEAD);
    fixture.client.delete(id).unwrap();
}

#[test]
fn an_unreachable_broker_ends() {
    let dir = std::env::temp_dir().join(format!("ublkd-lonely-{}", std::process::id()));
    let broker = Broker::new(&dir, Vec::new()).unwrap();
    let thread = std::thread::spawn(move || broker.run(Some(1000 * TIMEOUT)).unwrap());
    let client = BrokerClient::new(&dir);
    let (id, device) = add(&client, &spec(u32::MAX), &BackingStore::Null).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    // The broker cannot report its end to the server, so it must not end while there is one.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!thread.is_finished(), "device {id} has a server");
    drop(device);
    thread.join().unwrap();
}

#[test]
fn a_server_that_never_reads_its_ring_is_disconnected() {
    let fixture = BrokerFixture::new("deaf-rings");
    let (id, device) = add(&fixture.client, &spec(u32::MAX), &BackingStore::Null).unwrap();
    let (_, other) = add(&fixture.client, &spec(u32::MAX), &BackingStore::Null).unwrap();
    let wrong = command(io::COMMIT_AND_FETCH_REQ, 1, 7, 0);
    wait_until("the broker has enough", || {
        // Fails while the ring is full.
        let _ = device.submit(&[wrong; 4]);
        fixture.client.open(id).is_ok()
    });
    assert_eq!(results(&other, &[wrong]), [(7, 0, -Errno::EINVAL.into_raw())], "others do not notice");
    drop(device);
    fixture.client.delete(id).unwrap();
}

#[test]
fn other_versions_are_told_ours() {
    let fixture = BrokerFixture::new("version");
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(runtime_dir::socket(&fixture.dir)).unwrap()).unwrap();
    rustix::io::write(&socket, &Hello { version: VERSION + 1, purpose: Purpose::Control }.to_bytes()).unwrap();
    let mut bytes = [0; 64];
    let len = rustix::io::read(&socket, &mut bytes).unwrap();
    let welcome = Welcome::parse(&bytes[..len]).unwrap();
    assert_eq!((welcome.version, welcome.res), (VERSION, -Errno::EPROTONOSUPPORT.into_raw()));
    assert_eq!(rustix::io::read(&socket, &mut bytes), Ok(0), "and that was all");
}
