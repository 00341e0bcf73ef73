//! Devices whose blocks are in a store: data in each buffer mode; stores that fail, go and come
//! back.
#![forbid(unsafe_code)]

mod fixture;
mod loss;
mod volumes;

use fixture::{RpcFixture, SIZE, ServedStore, TIMEOUT, pattern, port};
use std::io::{Read, Write};
use uringlet_abi::ublk::{feature, iod, param};
use uringlet_sys::Errno;
use uringlet_ublk::blocking::BlockingClient;
use uringlet_ublk::frontend::IoOp;
use uringlet_ublk_rpc::remote::RemoteBackend;
use uringlet_ublk_rpc::store::BlockStore;
use uringlet_ublk_rpc::{StoreClaim, StoreEndpoint};
use uringlet_ublk_server::backing::BackingStore;
use uringlet_ublk_server::buffers::BufferMode;
use uringlet_ublk_server::volume::{BackingVolume, Volume, name_hash};
use volumes::{Failing, file};

const MODES: [BufferMode; 3] = [BufferMode::OnDemand, BufferMode::Preallocated, BufferMode::UserCopy];

fn ram() -> BackingVolume {
    BackingVolume::new(BackingStore::Ram(Box::default()), SIZE, false).unwrap()
}

/// Small random numbers.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed >> 11
}

/// Random operations on one part of the device, compared with a model in memory.
fn exercise(local: &BlockingClient, first: u64, sectors: u64, rounds: u64) {
    let mut model = vec![0; sectors as usize * 512];
    let mut seed = 0x1234_5678 ^ (first + 1) << 20;
    for round in 0..rounds {
        let at = random(&mut seed) % sectors;
        let longest = if round % 5 == 0 { sectors } else { 9 };
        let len = (1 + random(&mut seed) % longest).min(sectors - at);
        let (from, to) = (at as usize * 512, (at + len) as usize * 512);
        match random(&mut seed) % 8 {
            0..4 => {
                let data = pattern(to - from, round);
                local.write(first + at, &data, if round % 3 == 0 { iod::F_FUA } else { 0 }).unwrap();
                model[from..to].copy_from_slice(&data);
            }
            4 => {
                local.run_without_data(IoOp::WriteZeroes, 0, first + at, len).unwrap();
                model[from..to].fill(0);
            }
            5 => {
                local.run_without_data(IoOp::Discard, 0, first + at, len).unwrap();
                // The content is undefined until it is written again.
                local.write(first + at, &model[from..to], 0).unwrap();
            }
            6 => local.run_without_data(IoOp::Flush, 0, 0, 0).unwrap(),
            _ => {
                let mut back = vec![0xee; to - from];
                local.read(first + at, &mut back).unwrap();
                assert!(back == model[from..to], "{len} sectors at {at} differ in round {round}");
            }
        }
    }
    let mut back = vec![0xee; model.len()];
    local.read(first, &mut back).unwrap();
    assert!(back == model, "what is there at last differs");
}

#[test]
fn data_survives_in_each_buffer_mode() {
    for buffers in MODES {
        let fixture = RpcFixture::new(&format!("data-{buffers:?}"));
        let address = port();
        let (path, volume) = file("data", SIZE);
        let _store = ServedStore::new(&address, volume);
        let device = fixture.device(&address, buffers, TIMEOUT);
        assert_eq!(BufferMode::from_flags(fixture.client.info(device.id).unwrap().flags), buffers);
        // Four parts of the device, and requests longer than the longest message.
        std::thread::scope(|scope| {
            for part in 0..4 {
                let local = fixture.local(&device, part);
                scope.spawn(move || exercise(&local, u64::from(part) << 13, 1 << 13, 40));
            }
        });
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_store_can_be_embedded_or_behind_a_unix_socket() {
    let fixture = RpcFixture::new("embedded");
    let device = fixture.serve(BufferMode::OnDemand, || async {
        let endpoint = StoreEndpoint::embedded(BlockStore::new(ram()));
        RemoteBackend::open(endpoint, StoreClaim::IfUnused, TIMEOUT).await.unwrap()
    });
    exercise(&fixture.local(&device, 0), 0, 4096, 40);
    let socket = std::env::temp_dir().join(format!("ublk-rpc-socket-{}", std::process::id()));
    let address = format!("unix:{}", socket.display());
    let store = ServedStore::new(&address, ram());
    let other = fixture.device(&address, BufferMode::Preallocated, TIMEOUT);
    exercise(&fixture.local(&other, 1), 0, 4096, 40);
    drop((other, store));
    fixture::wait_until("the socket's name is gone", || !socket.exists());
}

#[test]
fn fua_and_flush_reach_the_store() {
    let fixture = RpcFixture::new("fua");
    let address = port();
    let volume = Failing::new(SIZE);
    let faults = volume.faults();
    let _store = ServedStore::new(&address, volume);
    let device = fixture.device(&address, BufferMode::OnDemand, TIMEOUT);
    let attrs = fixture.client.params(device.id).unwrap().basic.attrs;
    assert_eq!(attrs & (param::ATTR_FUA | param::ATTR_VOLATILE_CACHE), param::ATTR_FUA | param::ATTR_VOLATILE_CACHE);
    assert_eq!(fixture.client.info(device.id).unwrap().flags & feature::USER_COPY, 0);
    let local = fixture.local(&device, 0);
    local.write(8, &pattern(4096, 1), 0).unwrap();
    assert_eq!((faults.fuas(), faults.flushes()), (0, 0));
    local.write(8, &pattern(4096, 2), iod::F_FUA).unwrap();
    assert_eq!((faults.fuas(), faults.flushes()), (1, 0));
    local.run_without_data(IoOp::Flush, 0, 0, 0).unwrap();
    assert_eq!((faults.fuas(), faults.flushes()), (1, 1));
    local.run_without_data(IoOp::WriteZeroes, iod::F_FUA, 0, 8).unwrap();
    local.run_without_data(IoOp::Discard, iod::F_FUA, 0, 8).unwrap();
    assert_eq!((faults.fuas(), faults.flushes()), (1, 3));
    local.run_without_data(IoOp::WriteZeroes, 0, 0, 8).unwrap();
    assert_eq!((faults.fuas(), faults.flushes()), (1, 3));
}

#[test]
fn store_errors_become_device_errors() {
    for buffers in MODES {
        let fixture = RpcFixture::new(&format!("errors-{buffers:?}"));
        let address = port();
        let volume = Failing::new(SIZE);
        let faults = volume.faults();
        let _store = ServedStore::new(&address, volume);
        let device = fixture.device(&address, buffers, TIMEOUT);
        let local = fixture.local(&device, 0);
        local.write(0, &pattern(4096, 1), 0).unwrap();
        for errno in [Errno::ENOSPC, Errno::EIO, Errno::ENODATA, Errno::ETIMEDOUT] {
            faults.set(Some(errno));
            assert_eq!(local.write(0, &pattern(4096, 2), 0), Err(errno));
            assert_eq!(local.read(0, &mut [0; 512]), Err(errno));
            assert_eq!(local.run_without_data(IoOp::Flush, 0, 0, 0), Err(errno));
            assert_eq!(local.run_without_data(IoOp::Discard, 0, 0, 8), Err(errno));
            assert_eq!(local.run_without_data(IoOp::WriteZeroes, 0, 0, 8), Err(errno));
        }
        // The block layer has no status for it.
        faults.set(Some(Errno::EACCES));
        assert_eq!(local.read(0, &mut [0; 512]), Err(Errno::EIO));
        faults.set(None);
        let mut back = vec![0; 4096];
        local.read(0, &mut back).unwrap();
        assert_eq!(back, pattern(4096, 1));
    }
}

#[test]
fn requests_run_concurrently() {
    let fixture = RpcFixture::new("together");
    let address = port();
    let volume = Failing::new(SIZE);
    let faults = volume.faults();
    let _store = ServedStore::new(&address, volume);
    let device = fixture.device(&address, BufferMode::OnDemand, TIMEOUT);
    faults.stick(true);
    // At least as many as one queue's tags.
    std::thread::scope(|scope| {
        for number in 0..8_u16 {
            let local = fixture.local(&device, number);
            scope.spawn(move || local.write(u64::from(number) * 8, &pattern(4096, number.into()), 0).unwrap());
        }
        fixture::wait_until("all have begun, and none has ended", || faults.started() == 8);
        faults.stick(false);
    });
    let mut back = vec![0; 8 * 4096];
    fixture.local(&device, 0).read(0, &mut back).unwrap();
    assert_eq!(back, (0..8).flat_map(|number| pattern(4096, number)).collect::<Vec<_>>());
}

#[test]
fn random_bytes_on_the_port_do_not_disturb_a_store() {
    let fixture = RpcFixture::new("noise");
    let address = port();
    let _store = ServedStore::new(&address, ram());
    let device = fixture.device(&address, BufferMode::OnDemand, TIMEOUT);
    let local = fixture.local(&device, 0);
    local.write(0, &pattern(4096, 3), 0).unwrap();
    let mut seed = 0x9e37_79b9;
    for round in 0..100 {
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        if round % 2 == 0 {
            // The HTTP/2 preface and an empty SETTINGS frame.
            let _ = socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        }
        let bytes: Vec<u8> = (0..random(&mut seed) % 300).map(|_| random(&mut seed) as u8).collect();
        let _ = socket.write_all(&bytes);
    }
    let mut back = vec![0; 4096];
    local.read(0, &mut back).unwrap();
    assert_eq!(back, pattern(4096, 3));
}

#[test]
fn a_store_serves_one_device() {
    let address = port();
    let stored = ram();
    let volume = stored.info().name;
    let _store = ServedStore::new(&address, stored);
    let open = |claim| {
        let endpoint = StoreEndpoint::parse(&address).unwrap();
        fixture::runtime().block_on(RemoteBackend::open(endpoint, claim, TIMEOUT)).map(drop)
    };
    let fixture = RpcFixture::new("one");
    let device = fixture.device(&address, BufferMode::OnDemand, TIMEOUT);
    let refusal = open(StoreClaim::IfUnused).unwrap_err().to_string();
    assert!(refusal.contains("another device uses"), "{refusal}");
    let local = fixture.local(&device, 0);
    local.write(0, &[1; 512], 0).unwrap();
    let refusal = open(StoreClaim::TakeOver(1)).unwrap_err().to_string();
    assert!(refusal.contains("has another volume than the device"), "{refusal}");
    local.write(0, &[1; 512], 0).unwrap();
    open(StoreClaim::TakeOver(name_hash(&volume))).unwrap();
    assert_eq!(local.write(0, &[1; 512], 0), Err(Errno::EIO), "it was taken away");
    drop(device);
    fixture::wait_until("the store is free", || open(StoreClaim::IfUnused).is_ok());
}

#[test]
fn a_peer_that_is_not_a_store_is_reported() {
    let unused = port();
    let open = |text: &str| {
        let endpoint = StoreEndpoint::parse(text).unwrap();
        let opened =
            fixture::runtime().block_on(RemoteBackend::open(endpoint, StoreClaim::IfUnused, std::time::Duration::from_millis(500)));
        opened.unwrap_err().to_string()
    };
    let error = open(&unused);
    assert!(error.contains("uringlet ublk store") && error.contains("refused"), "{error}");
    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = web.accept().unwrap();
        let _ = socket.read(&mut [0; 1024]);
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let error = open(&address);
    assert!(error.contains(&address), "{error}");
    server.join().unwrap();
}
