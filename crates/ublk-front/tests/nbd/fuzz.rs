//! The NBD server and random input: it closes the connection or replies, and serves other clients.

use crate::client::{Client, connect, is_closed, pattern, request, served, wait_until};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use uringlet_ublk_server::ram_device::RamDeviceSpec;

const SIZE: u64 = 1 << 20;

/// A deterministic random sequence.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Numbers at or near limits.
    fn edge(&mut self) -> u64 {
        let near = [0, 1, 511, 512, 4096, SIZE - 512, SIZE, SIZE + 512, 1 << 25, 1 << 31, u64::from(u32::MAX), u64::MAX - 511];
        let edge = near[self.below(near.len() as u64) as usize];
        if self.below(3) == 0 { edge.wrapping_add(self.below(3)).wrapping_sub(1) } else { edge }
    }
}

/// Sends the bytes until the server closes the connection.
fn pour(socket: &mut UnixStream, bytes: &[u8]) {
    // Reads too, since the server stops reading when its replies are not read.
    let mut drain = socket.try_clone().unwrap();
    let reader = std::thread::spawn(move || is_closed(&mut drain));
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    assert!(reader.join().unwrap(), "the server did not hang up");
}

fn option(random: &mut Random, number: u32) -> Vec<u8> {
    let len = random.below(40);
    let mut data = random.bytes(len);
    // Half of them begin with a small length, as an export name does.
    if random.below(2) == 0 && data.len() >= 4 {
        data[..4].copy_from_slice(&(random.below(8) as u32).to_be_bytes());
    }
    let announced = if random.below(8) == 0 { random.edge() as u32 } else { data.len() as u32 };
    [&b"IHAVEOPT"[..], &number.to_be_bytes(), &announced.to_be_bytes(), &data].concat()
}

#[test]
fn random_bytes_during_negotiation_do_not_break_the_server() {
    let (server, device) = served(RamDeviceSpec::with_size(SIZE));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..300 {
        let mut socket = connect(&server);
        let mut bytes = Vec::new();
        if round % 4 > 0 {
            bytes.extend((random.below(5) as u32).to_be_bytes());
        }
        if round % 4 > 1 {
            for _ in 0..random.below(8) {
                let number = random.below(14) as u32;
                bytes.extend(option(&mut random, number));
            }
        }
        let tail = random.below(60);
        bytes.extend(random.bytes(tail));
        pour(&mut socket, &bytes);
    }
    assert_eq!(Client::new(&server, true).read(0, 0, 512), Ok(vec![0; 512]));
    wait_until("slots are free again", || device.free_slots() == 64);
}

#[test]
fn random_commands_do_not_break_the_server() {
    let (server, device) = served(RamDeviceSpec { depth: 2, ..RamDeviceSpec::with_size(SIZE) });
    let mut random = Random(0x1234_5678_9abc_def1);
    // Random commands spare the first sector.
    let kept = pattern(512, 9);
    let mut good = Client::new(&server, true);
    for round in 0..300 {
        assert_eq!(good.write(0, 0, &kept), 0);
        let mut client = Client::new(&server, round % 2 == 0);
        let mut bytes = Vec::new();
        for _ in 0..random.below(20) {
            let command = random.below(9) as u16;
            let flags = if random.below(3) == 0 { random.below(64) as u16 } else { 0 };
            let (offset, len) = (random.edge().max(512), random.edge() as u32);
            bytes.extend(request(command, flags, random.next(), offset, len));
            if command == 1 {
                let len = if random.below(4) == 0 { random.below(2000) } else { u64::from(len).min(4096) };
                bytes.extend(random.bytes(len));
            }
        }
        let tail = random.below(30);
        bytes.extend(random.bytes(tail));
        pour(&mut client.socket, &bytes);
        assert_eq!(good.read(0, 512, 512).map(|data| data.len()), Ok(512));
    }
    assert_eq!(good.read(0, 0, 512), Ok(kept));
    wait_until("slots are free again", || device.free_slots() == 4);
}

#[test]
fn half_open_clients_do_not_block_others() {
    let (server, _device) = served(RamDeviceSpec::with_size(SIZE));
    let silent: Vec<_> = (0..100).map(|_| connect(&server)).collect();
    assert_eq!(Client::new(&server, true).read(0, 0, 512), Ok(vec![0; 512]));
    // Connections beyond the maximum are refused.
    let more: Vec<_> = (0..60).map(|_| UnixStream::pair().unwrap()).map(|(client, peer)| (client, server.serve(peer.into()))).collect();
    assert!(more.iter().any(|(_, served)| served.is_err()));
    drop((silent, more));
    let mut open = None;
    wait_until("there is room again", || {
        let (client, peer) = UnixStream::pair().unwrap();
        let is_served = server.serve(peer.into()).is_ok();
        open = is_served.then_some(client);
        is_served
    });
    // Dropping the server does not wait for the open connection.
    drop(server);
    drop(open);
}
