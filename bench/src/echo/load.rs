//! Who loads the server: one thread, edge-triggered epoll, one message under way on each connection, every byte of every answer compared.

use super::SIZES;
use super::epoll::Epoll;
use super::histogram::Histogram;
use super::pauses::Pauses;
use super::server::Server;
use crate::timing::{Numbers, cpu_time};
use anyhow::{Context, bail, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// What is asked of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) connections: usize,
    /// Bytes of a message.
    pub(super) size: usize,
    /// Is measured; a fifth of it, and some pauses, come before.
    pub(super) time: Duration,
    /// Between an answer and the next message, on average.
    pub(super) pause: Duration,
}

/// No answer for so long is a failure.
const PATIENCE: Duration = Duration::from_secs(30);
const THREADS_EVERY: Duration = Duration::from_millis(20);
/// Messages begin at any byte of the first half.
const PATTERN: usize = 2 * *SIZES.end();

/// A connection, and the message that is under way.
struct Client {
    stream: TcpStream,
    number: usize,
    /// Messages so far.
    sequence: usize,
    sent: usize,
    received: usize,
    pauses: bool,
    since: Instant,
}

/// Where a window of time stands.
struct Mark {
    at: Instant,
    server: Duration,
    own: Duration,
}

struct Run<'a> {
    server: &'a Server,
    load: Load,
    pattern: Box<[u8]>,
    room: Box<[u8]>,
    /// Those that have had their last answer are closed, so that no worker of the server waits for more.
    clients: Vec<Option<Client>>,
    times: Histogram,
    pauses: Pauses,
    begun: Option<Mark>,
    ended: Option<Mark>,
    threads: u32,
}

pub(super) fn run(server: &Server, load: &Load) -> anyhow::Result<Numbers> {
    let mut epoll = Epoll::new()?;
    let mut run = Run::new(server, *load);
    run.connect(&epoll)?;
    run.exchange(&mut epoll)?;
    run.numbers()
}

/// The bytes of messages: such as do not repeat within one.
fn pattern() -> Box<[u8]> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..PATTERN).map(|_| next()).collect()
}

impl Client {
    /// Where in the pattern its message begins: elsewhere for each connection and each turn.
    fn message(&self) -> usize {
        (self.number.wrapping_mul(31_337) + self.sequence.wrapping_mul(7_919)) % (PATTERN / 2)
    }

    /// Goes on with sending.
    fn send(&mut self, pattern: &[u8], size: usize) -> anyhow::Result<()> {
        let message = &pattern[self.message()..][..size];
        while self.sent < size {
            match self.stream.write(&message[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => bail!("sending on connection {}: {error}", self.number),
            }
        }
        Ok(())
    }

    /// Takes what came and compares it; whether the answer is whole.
    fn receive(&mut self, pattern: &[u8], size: usize, room: &mut [u8]) -> anyhow::Result<bool> {
        let message = &pattern[self.message()..][..size];
        while self.received < size {
            match self.stream.read(&mut room[..size - self.received]) {
                Ok(0) => bail!("the server closed connection {}", self.number),
                Ok(n) => {
                    let is_same = room[..n] == message[self.received..][..n];
                    ensure!(is_same, "wrong bytes on connection {}, message {}", self.number, self.sequence);
                    self.received += n;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => bail!("receiving on connection {}: {error}", self.number),
            }
        }
        ensure!(self.sent == size, "an answer on connection {} to what was not sent yet", self.number);
        Ok(true)
    }
}

impl<'a> Run<'a> {
    fn new(server: &'a Server, load: Load) -> Self {
        let room = vec![0; load.size].into();
        let clients = Vec::with_capacity(load.connections);
        let (times, pauses) = (Histogram::new(), Pauses::new(load.pause));
        Self { server, load, pattern: pattern(), room, clients, times, pauses, begun: None, ended: None, threads: 0 }
    }

    fn connect(&mut self, epoll: &Epoll) -> anyhow::Result<()> {
        const EVENTS: i32 = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET;
        for number in 0..self.load.connections {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server.port)).with_context(|| format!("connection {number}"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            reset_at_close(&stream)?;
            epoll.add(stream.as_raw_fd(), EVENTS as u32, number as u64)?;
            let since = Instant::now();
            self.clients.push(Some(Client { stream, number, sequence: 0, sent: 0, received: 0, pauses: false, since }));
        }
        Ok(())
    }

    /// First all connections for a while, then the time that counts, then what is still under way.
    fn exchange(&mut self, epoll: &mut Epoll) -> anyhow::Result<()> {
        let first = Instant::now();
        let mut under_way = self.clients.len();
        let (mut last, mut looked) = (first, first);
        for client in self.clients.iter_mut().flatten() {
            client.since = Instant::now();
            client.send(&self.pattern, self.load.size)?;
        }
        let mut ready = Vec::new();
        while under_way > 0 {
            epoll.wait(Some(self.pauses.quiet(Instant::now(), THREADS_EVERY)), &mut ready)?;
            let now = Instant::now();
            for &number in &ready {
                under_way -= usize::from(self.turn(number as usize)?);
            }
            while let Some(number) = self.pauses.ended(now) {
                under_way -= usize::from(self.go_on(number)?);
            }
            if !ready.is_empty() {
                last = now;
            }
            ensure!(now - last < PATIENCE, "{under_way} requests have no answer after {PATIENCE:?}");
            if now - looked >= THREADS_EVERY {
                self.threads = self.threads.max(self.server.threads());
                looked = now;
            }
            self.mark(first, now)?;
        }
        Ok(())
    }

    /// A connection moved; whether it was its last message.
    fn turn(&mut self, number: usize) -> anyhow::Result<bool> {
        let Some(client) = self.clients[number].as_mut().filter(|client| !client.pauses) else { return Ok(false) };
        client.send(&self.pattern, self.load.size)?;
        if !client.receive(&self.pattern, self.load.size, &mut self.room)? {
            return Ok(false);
        }
        let now = Instant::now();
        if self.begun.is_some() && self.ended.is_none() {
            self.times.add(now - client.since);
        }
        client.pauses = self.ended.is_none() && self.pauses.begin(number, now);
        if client.pauses { Ok(false) } else { self.go_on(number) }
    }

    /// The next message, or none any more: whether it was the connection's last one.
    fn go_on(&mut self, number: usize) -> anyhow::Result<bool> {
        if self.ended.is_some() {
            self.clients[number] = None;
            return Ok(true);
        }
        let Some(client) = &mut self.clients[number] else { return Ok(false) };
        (client.sequence, client.sent, client.received) = (client.sequence + 1, 0, 0);
        (client.pauses, client.since) = (false, Instant::now());
        client.send(&self.pattern, self.load.size)?;
        Ok(false)
    }

    /// Begins and ends the time that counts. It lasts until there is something to tell.
    fn mark(&mut self, first: Instant, now: Instant) -> anyhow::Result<()> {
        let mark = |server: &Server| anyhow::Ok(Mark { at: Instant::now(), server: server.cpu_time()?, own: cpu_time() });
        match &self.begun {
            None if now - first >= (self.load.time / 5).max(4 * self.load.pause) => self.begun = Some(mark(self.server)?),
            Some(begun) if self.ended.is_none() && now - begun.at >= self.load.time && self.times.count() > 0 => {
                self.ended = Some(mark(self.server)?);
                self.threads = self.threads.max(self.server.threads());
            }
            _ => {}
        }
        Ok(())
    }

    fn numbers(&self) -> anyhow::Result<Numbers> {
        let (Some(begun), Some(ended)) = (&self.begun, &self.ended) else { bail!("nothing was measured") };
        let (requests, seconds) = (self.times.count() as f64, (ended.at - begun.at).as_secs_f64());
        let mut numbers = Numbers::value(requests / seconds);
        numbers.add("p50_us", self.times.percentile_us(50.0));
        numbers.add("p99_us", self.times.percentile_us(99.0));
        numbers.add("cpu_us", (ended.server - begun.server).as_secs_f64() * 1e6 / requests);
        numbers.add("threads", f64::from(self.threads));
        numbers.add("client_cpu_percent", (ended.own - begun.own).as_secs_f64() / seconds * 100.0);
        Ok(numbers)
    }
}

/// So that thousands of connections a second leave none in TIME_WAIT.
fn reset_at_close(stream: &TcpStream) -> std::io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let (level, name, len) = (libc::SOL_SOCKET, libc::SO_LINGER, size_of::<libc::linger>() as u32);
    // SAFETY: an option of our own, of that length.
    let answer = unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const linger).cast(), len) };
    if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
