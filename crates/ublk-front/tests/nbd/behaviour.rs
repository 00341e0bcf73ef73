//! The NBD server as a client sees it.

use crate::client::{
    BLOCK_STATUS, CACHE, Client, DISCONNECT, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES, connect, is_closed, pattern, request, served,
    wait_until,
};
use std::io::Write;
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{FrontEnd, IoOp};
use uringlet_ublk_server::ram_device::{RamDeviceSpec, is_fua};

const FUA: u16 = 1;
const DONT_FRAGMENT: u16 = 4;
const FAST_ZERO: u16 = 16;

const SIZE: u64 = 64 << 20;

fn specs() -> [RamDeviceSpec; 3] {
    let spec = RamDeviceSpec::with_size(SIZE);
    [spec, RamDeviceSpec { threads: 0, ..spec }, RamDeviceSpec { depth: 1, queues: 1, ..spec }]
}

#[test]
fn data_survives_in_each_reply_format() {
    for spec in specs() {
        for (is_structured, flags) in [(false, 0), (true, 0), (true, DONT_FRAGMENT)] {
            let (server, device) = served(spec);
            let mut client = Client::new(&server, is_structured);
            assert_eq!(client.size, SIZE);
            let longest = if spec.depth == 1 { 32 << 20 } else { 5 << 20 };
            for (offset, len) in [(0, 512), (512, 3 << 20), (SIZE - 4096, 4096), (1 << 20, longest)] {
                let data = pattern(len, len as u8);
                assert_eq!(client.write(0, offset, &data), 0);
                assert_eq!(client.read(flags, offset, len), Ok(data), "{len} bytes at {offset}");
            }
            assert_eq!(client.read(flags, SIZE - 512, 512).map(|data| data.len()), Ok(512));
            wait_until("slots are free again", || device.free_slots() == usize::from(spec.depth * spec.queues));
        }
    }
}

#[test]
fn commands_without_data_reach_the_device() {
    let (server, device) = served(RamDeviceSpec::with_size(SIZE));
    let mut client = Client::new(&server, true);
    assert_eq!(client.write(FUA, 0, &pattern(65536, 1)), 0);
    assert!(is_fua(&device.requests()[0]));
    for (command, flags, op) in
        [(FLUSH, 0, IoOp::Flush), (TRIM, FUA, IoOp::Discard), (WRITE_ZEROES, FAST_ZERO, IoOp::WriteZeroes), (CACHE, 0, IoOp::Read)]
    {
        let len = if command == FLUSH { 0 } else { 8192 };
        assert_eq!(client.ask(command, flags, 0, len), 0);
        let last = *device.requests().last().unwrap();
        assert_eq!((last.op, is_fua(&last)), (op, flags == FUA));
    }
    let expected = [vec![0; 8192], pattern(65536, 1)[8192..].to_vec()].concat();
    assert_eq!(client.read(0, 0, 65536), Ok(expected));
}

#[test]
fn write_zeroes_falls_back_to_plain_writes() {
    let mut spec = RamDeviceSpec::with_size(SIZE);
    spec.limits.max_write_zeroes = 0;
    spec.limits.max_discard = 0;
    let (server, device) = served(spec);
    let mut client = Client::new(&server, true);
    assert_eq!(client.write(0, 0, &pattern(3 << 20, 1)), 0);
    assert_eq!(client.ask(WRITE_ZEROES, FAST_ZERO, 0, 4096), 95);
    assert_eq!(client.ask(WRITE_ZEROES, FUA, 512, 2 << 20), 0);
    assert!(is_fua(device.requests().last().unwrap()));
    assert_eq!(client.read(0, 512, 2 << 20), Ok(vec![0; 2 << 20]));
    assert_eq!(client.ask(TRIM, 0, 0, 4096), 22);
}

#[test]
fn block_status_covers_the_range_and_requires_negotiation() {
    let (server, _device) = served(RamDeviceSpec::with_size(SIZE));
    let mut client = Client::new(&server, true);
    client.send(BLOCK_STATUS, 0, 5, 4096, 1 << 20);
    let reply = client.reply(0);
    assert_eq!((reply.cookie, reply.kind, reply.is_done), (5, Some(5), true));
    assert_eq!(reply.data, [1_u32, 1 << 20, 0].map(u32::to_be_bytes).concat());
    let mut simple = Client::new(&server, false);
    assert_eq!(simple.ask(BLOCK_STATUS, 0, 0, 4096), 22);
}

#[test]
fn errors_have_nbd_numbers_and_the_connection_continues() {
    let mut spec = RamDeviceSpec::with_size(SIZE);
    spec.limits.logical_block = 4096;
    let (server, device) = served(spec);
    device.fail(1 << 14..(1 << 14) + 1, Errno::ENOSPC);
    for is_structured in [false, true] {
        let mut client = Client::new(&server, is_structured);
        let read = |client: &mut Client, offset, len: u32| client.read(0, offset, len as usize).err();
        assert_eq!(read(&mut client, SIZE, 4096), Some(22));
        assert_eq!(read(&mut client, u64::MAX - 4095, 4096), Some(22));
        assert_eq!(read(&mut client, 0, 0), Some(22), "no bytes");
        assert_eq!(client.write(0, SIZE - 4096, &[1; 8192]), 28, "beyond the end");
        assert_eq!(client.write(0, 8 << 20, &[1; 8192]), 28, "the device's own error");
        assert_eq!(read(&mut client, (8 << 20) - (2 << 20), 8 << 20), Some(28), "one piece of many fails");
        assert_eq!(client.ask(WRITE_ZEROES, 0, SIZE, 4096), 28);
        assert_eq!(client.ask(TRIM, 0, SIZE, 4096), 22);
        assert_eq!(client.ask(FLUSH, 0, 0, 4096), 22);
        assert_eq!(client.ask(99, 0, 0, 0), 22, "no such command");
        assert_eq!(client.ask(TRIM, 0x8000, 0, 4096), 22, "no such flag");
        assert_eq!(client.write(0x8000, 0, &[1; 4096]), 22, "no such flag; its data is skipped");
        assert_eq!(client.write(0, 0, &pattern(4096, 3)), 0);
        assert_eq!(client.read(0, 0, 4096), Ok(pattern(4096, 3)));
    }
}

#[test]
fn an_oversized_read_fails_and_an_absurd_write_disconnects() {
    let (server, _device) = served(RamDeviceSpec::with_size(SIZE));
    let mut client = Client::new(&server, true);
    assert_eq!(client.read(0, 0, (32 << 20) + 512), Err(75));
    assert_eq!(client.write(0, 0, &vec![1; (32 << 20) + 512]), 75);
    client.send(WRITE, 0, 1, 0, u32::MAX);
    assert!(is_closed(&mut client.socket));
}

#[test]
fn a_read_only_export_rejects_writes() {
    let mut spec = RamDeviceSpec::with_size(SIZE);
    spec.limits.is_read_only = true;
    let (server, _device) = served(spec);
    let mut client = Client::new(&server, true);
    assert_eq!(client.flags & 3, 3);
    assert_eq!(client.write(0, 0, &[1; 512]), 1);
    assert_eq!(client.ask(TRIM, 0, 0, 4096), 1);
    assert_eq!(client.ask(WRITE_ZEROES, 0, 0, 4096), 1);
    assert_eq!(client.read(0, 0, 512), Ok(vec![0; 512]));
}

#[test]
fn a_client_that_does_not_read_holds_no_slot() {
    let spec = RamDeviceSpec { depth: 2, queues: 1, ..RamDeviceSpec::with_size(SIZE) };
    let (server, device) = served(spec);
    let mut slow = Client::new(&server, true);
    let mut half = Client::new(&server, true);
    // Far more than the socket and READ_BYTES_MAX admit.
    let mut slow_socket = slow.socket.try_clone().unwrap();
    let asking = std::thread::spawn(move || (0..300).try_for_each(|i| slow_socket.write_all(&request(READ, 0, i, 0, 1 << 20))));
    // A part of a write, and no more.
    half.send(WRITE, 0, 1, 0, 1 << 20);
    half.socket.write_all(&[1; 4096]).unwrap();
    let mut other = Client::new(&server, true);
    for i in 0..50 {
        assert_eq!(other.write(0, 0, &pattern(8192, i)), 0);
        assert_eq!(other.read(0, 0, 8192), Ok(pattern(8192, i)));
    }
    // The first client gets all its data once it reads.
    for _ in 0..300 {
        let mut bytes = 0;
        while bytes < 1 << 20 {
            bytes += slow.reply(0).data.len() - 8;
        }
        assert_eq!(bytes, 1 << 20);
    }
    asking.join().unwrap().unwrap();
    drop((slow, half));
    wait_until("slots are free again", || device.free_slots() == 2);
}

#[test]
fn disconnect_waits_for_requests_in_flight() {
    let (server, device) = served(RamDeviceSpec::with_size(SIZE));
    let mut client = Client::new(&server, true);
    device.pause();
    client.send(READ, 0, 4, 0, 4096);
    client.send(DISCONNECT, 0, 0, 0, 0);
    wait_until("the read is there", || device.requests().len() == 1);
    device.resume();
    assert_eq!(client.reply(0).data.len(), 4104);
    assert!(is_closed(&mut client.socket));
}

#[test]
fn a_vanished_client_releases_its_slots() {
    let (server, device) = served(RamDeviceSpec::with_size(SIZE));
    device.pause();
    let mut client = Client::new(&server, true);
    for i in 0..100 {
        client.send(READ, 0, i, 0, 4096);
    }
    wait_until("all slots of its queue are taken", || device.requests().len() == 32);
    drop(client);
    device.resume();
    wait_until("slots are free again", || device.free_slots() == 64);
    assert_eq!(Client::new(&server, true).read(0, 0, 512), Ok(vec![0; 512]));
}

#[test]
fn a_freed_slot_skips_disconnected_clients() {
    let (server, device) = served(RamDeviceSpec { depth: 1, queues: 1, ..RamDeviceSpec::with_size(SIZE) });
    device.pause();
    let mut clients: Vec<_> = (0..4).map(|_| Client::new(&server, true)).collect();
    for client in &mut clients {
        client.send(READ, 0, 1, 0, 4096);
        wait_until("the slot is taken", || device.requests().len() == 1);
    }
    // All but the first wait for its slot, in any order; two of them disconnect before they get it.
    let mut last = clients.pop().unwrap();
    let first = clients.swap_remove(0);
    drop(clients);
    device.resume();
    assert_eq!(last.reply(0).data.len(), 4104);
    drop(first);
    wait_until("slots are free again", || device.free_slots() == 1);
}

#[test]
fn a_stopped_device_closes_connections_after_their_replies() {
    let (server, device) = served(RamDeviceSpec::with_size(SIZE));
    let mut client = Client::new(&server, true);
    let mut idle = Client::new(&server, false);
    device.pause();
    client.send(READ, 0, 4, 0, 4096);
    wait_until("the read is there", || device.requests().len() == 1);
    server.stop(0);
    assert!(is_closed(&mut idle.socket));
    device.resume();
    assert_eq!(client.reply(0).data.len(), 4104);
    assert!(is_closed(&mut client.socket));
    let mut late = connect(&server);
    late.write_all(&[&3_u32.to_be_bytes()[..], b"IHAVEOPT\0\0\0\x01\0\0\0\0"].concat()).unwrap();
    assert!(is_closed(&mut late), "EXPORT_NAME without an export");
}

#[test]
fn concurrent_connections_do_not_mix_data() {
    let (server, _device) = served(RamDeviceSpec { depth: 4, ..RamDeviceSpec::with_size(SIZE) });
    std::thread::scope(|scope| {
        for id in 0..8_u8 {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::new(server, id % 2 == 0);
                let offset = u64::from(id) << 20;
                for round in 0..60_u8 {
                    let data = pattern(512 << (round % 9), id << 4 ^ round);
                    assert_eq!(client.write(0, offset, &data), 0);
                    assert_eq!(client.read(0, offset, data.len()), Ok(data));
                }
            });
        }
    });
}

#[test]
fn unaligned_commands_are_exact_to_the_byte() {
    for (logical_block, threads) in [(512, 2), (4096, 0), (4096, 2)] {
        let mut spec = RamDeviceSpec { threads, depth: 2, queues: 1, ..RamDeviceSpec::with_size(SIZE) };
        spec.limits.logical_block = logical_block;
        let (server, device) = served(spec);
        for is_structured in [false, true] {
            let mut client = Client::new(&server, is_structured);
            let mut model = pattern(3 << 20, 5);
            assert_eq!(client.write(0, 0, &model), 0);
            for (offset, len) in [(0, 1), (1, 511), (511, 2), (4095, 4098), (100_000, 1 << 20), (4096, 100)] {
                let data = pattern(len, (offset + len) as u8);
                assert_eq!(client.write(FUA, offset as u64, &data), 0);
                assert!(device.requests().iter().rev().find(|request| request.op == IoOp::Write).is_some_and(is_fua));
                model[offset..offset + len].copy_from_slice(&data);
                assert_eq!(client.ask(WRITE_ZEROES, 0, 1_500_000 + offset as u64, len as u32), 0);
                model[1_500_000 + offset..1_500_000 + offset + len].fill(0);
                assert_eq!(client.read(0, offset as u64, len), Ok(data));
            }
            assert_eq!(client.ask(TRIM, 0, 4097, 100), 0, "a hint, about nothing here");
            assert_eq!(client.ask(CACHE, 0, 4097, 100), 0);
            assert!(client.read(0, 0, 3 << 20) == Ok(model));
            assert_eq!(client.read(0, SIZE - 3, 4), Err(22));
            assert_eq!(client.write(0, SIZE - 3, &[1; 4]), 28);
            assert_eq!(client.write(0, SIZE - 3, &[1; 3]), 0);
        }
        wait_until("slots are free again", || device.free_slots() == 2);
    }
}

#[test]
fn concurrent_writes_within_one_block_are_not_lost() {
    let mut spec = RamDeviceSpec { depth: 4, ..RamDeviceSpec::with_size(SIZE) };
    spec.limits.logical_block = 4096;
    let (server, _device) = served(spec);
    // Eight clients, each with its own part of the same block and an aligned block nearby.
    std::thread::scope(|scope| {
        for id in 0..8_u8 {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::new(server, id % 2 == 0);
                let (offset, len) = (u64::from(id) * 1000, 1000);
                for round in 0..100_u8 {
                    let data = pattern(len, id << 4 ^ round);
                    assert_eq!(client.write(0, offset, &data), 0);
                    assert_eq!(client.write(0, 65536 + u64::from(id) * 4096, &[id; 4096]), 0);
                    assert_eq!(client.read(0, offset, len), Ok(data), "client {id}, round {round}");
                }
            });
        }
    });
}
