//! Stores that go away and come back.

use crate::fixture::{RpcFixture, SIZE, ServedStore, TIMEOUT, pattern, port, wait_until};
use crate::ram;
use crate::volumes::{Failing, again, file};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::IoOp;
use uringlet_ublk_server::buffers::BufferMode;

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a_restarted_store_is_reconnected_without_data_loss() {
    for buffers in [BufferMode::OnDemand, BufferMode::Preallocated] {
        let fixture = RpcFixture::new(&format!("restart-{buffers:?}"));
        let address = port();
        let (path, volume) = file("restart", SIZE);
        let mut store = Some(ServedStore::new(&address, volume));
        let device = fixture.device(&address, buffers, TIMEOUT);
        let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4_u16 {
                let local = fixture.local(&device, thread);
                let (is_over, count) = (&is_over, &count);
                scope.spawn(move || {
                    let mut round = 0;
                    while !is_over.load(SeqCst) {
                        let sector = u64::from(thread) << 10;
                        local.write(sector, &pattern(65536, round), 0).unwrap();
                        let mut back = vec![0; 65536];
                        local.read(sector, &mut back).unwrap();
                        assert!(back == pattern(65536, round), "thread {thread}, round {round}");
                        round += 1;
                        count.fetch_add(1, SeqCst);
                    }
                });
            }
            for _ in 0..4 {
                let before = count.load(SeqCst);
                wait_until("they go on", || count.load(SeqCst) > before + 8);
                drop(store.take());
                // The port is free when the last of the store's tasks has ended.
                wait_until("its port is free", || TcpListener::bind(&address).is_ok());
                store = Some(ServedStore::new(&address, again(&path, SIZE)));
            }
            is_over.store(true, SeqCst);
        });
        drop((device, store));
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn requests_fail_while_the_store_is_away_and_succeed_afterwards() {
    let fixture = RpcFixture::new("away");
    let address = port();
    let (path, volume) = file("away", SIZE);
    let store = ServedStore::new(&address, volume);
    let device = fixture.device(&address, BufferMode::OnDemand, SHORT);
    let local = fixture.local(&device, 0);
    local.write(0, &pattern(4096, 7), 0).unwrap();
    drop(store);
    assert_eq!(local.write(0, &pattern(4096, 8), 0), Err(Errno::EIO));
    assert_eq!(local.read(0, &mut [0; 512]), Err(Errno::EIO));
    assert_eq!(local.run_without_data(IoOp::Flush, 0, 0, 0), Err(Errno::EIO));
    let _store = ServedStore::new(&address, again(&path, SIZE));
    let mut back = vec![0; 4096];
    wait_until("it is back", || local.read(0, &mut back).is_ok());
    assert_eq!(back, pattern(4096, 7));
    drop(device);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_silent_store_counts_as_absent() {
    let fixture = RpcFixture::new("silent");
    let address = port();
    let volume = Failing::new(SIZE);
    let faults = volume.faults();
    let store = ServedStore::new(&address, volume);
    let device = fixture.device(&address, BufferMode::OnDemand, SHORT);
    let local = fixture.local(&device, 0);
    // A hanging disk also delays the next session.
    faults.stick(true);
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(local.write(0, &pattern(4096, 1), 0), Err(Errno::EIO));
    }
    assert!(start.elapsed() < TIMEOUT);
    assert_eq!(faults.started(), 1, "nothing overtakes what hangs");
    faults.stick(false);
    wait_until("it goes on", || local.write(0, &pattern(4096, 2), 0).is_ok());
    let mut back = vec![0; 4096];
    local.read(0, &mut back).unwrap();
    assert_eq!(back, pattern(4096, 2));
    drop(store);
    // A server that accepts and never answers.
    wait_until("its port is free", || TcpListener::bind(&address).is_ok());
    let _listener = TcpListener::bind(&address).unwrap();
    assert_eq!(local.write(0, &pattern(4096, 1), 0), Err(Errno::EIO));
}

#[test]
fn a_store_with_another_volume_is_rejected() {
    let fixture = RpcFixture::new("other");
    let address = port();
    let store = ServedStore::new(&address, ram());
    let device = fixture.device(&address, BufferMode::OnDemand, SHORT);
    let local = fixture.local(&device, 0);
    local.write(0, &pattern(4096, 7), 0).unwrap();
    drop(store);
    wait_until("its port is free", || TcpListener::bind(&address).is_ok());
    // Another process has other memory: zeroes would be wrong, and so would any write.
    let _store = ServedStore::new(&address, ram());
    assert_eq!(local.read(0, &mut [0; 512]), Err(Errno::EIO));
    assert_eq!(local.write(0, &pattern(4096, 7), 0), Err(Errno::EIO));
}
