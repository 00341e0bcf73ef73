//! The load generator: one thread with edge-triggered epoll, one message in flight per connection.
//! Every byte of every reply is compared.

use super::epoll_set::EpollSet;
use super::limits::SIZES;
use super::pauses::Pauses;
use super::server::ServerProcess;
use crate::latency_histogram::LatencyHistogram;
use crate::timing::{Metrics, process_cpu_time};
use anyhow::{Context, bail, ensure};
use rustix::event::epoll::EventFlags;
use rustix::net::sockopt::set_socket_linger;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// The load on the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct EchoLoad {
    pub(super) connections: usize,
    /// Length of a message, bytes.
    pub(super) size: usize,
    /// Measured time. It follows a warm-up of a fifth of it, or of several pauses.
    pub(super) time: Duration,
    /// Mean pause between a reply and the next message.
    pub(super) pause: Duration,
}

/// A run fails if no reply arrives for this long.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
const THREAD_COUNT_INTERVAL: Duration = Duration::from_millis(20);
/// A message starts at any byte of the first half.
const PATTERN: usize = 2 * *SIZES.end();

/// A connection and its message in flight.
struct EchoClient {
    stream: TcpStream,
    number: usize,
    /// Number of completed messages.
    sequence: usize,
    sent: usize,
    received: usize,
    is_paused: bool,
    sent_at: Instant,
}

/// Clock readings at one end of the measured window.
struct CpuMark {
    at: Instant,
    server: Duration,
    own: Duration,
}

struct LoadRun<'a> {
    server: &'a ServerProcess,
    load: EchoLoad,
    pattern: Box<[u8]>,
    receive_buffer: Box<[u8]>,
    /// `None` after a connection's last reply: it is closed, so that no worker of the server waits
    /// on it.
    clients: Vec<Option<EchoClient>>,
    times: LatencyHistogram,
    pauses: Pauses,
    window_start: Option<CpuMark>,
    window_end: Option<CpuMark>,
    threads: u32,
}

pub(super) fn run(server: &ServerProcess, load: &EchoLoad) -> anyhow::Result<Metrics> {
    let mut epoll = EpollSet::new()?;
    let mut run = LoadRun::new(server, *load)?;
    run.connect(&epoll)?;
    run.run_clients(&mut epoll)?;
    run.metrics()
}

/// Message content: pseudo-random, so that it does not repeat within a message.
fn pattern() -> Box<[u8]> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[4]
    };
    (0..PATTERN).map(|_| next()).collect()
}

impl EchoClient {
    /// Start of the message in the pattern, different for each connection and message.
    fn message(&self) -> usize {
        (self.number.wrapping_mul(31_337) + self.sequence.wrapping_mul(7_919)) % (PATTERN / 2)
    }

    /// Sends as much of the message as the socket takes.
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

    /// Receives and compares. True once the reply is complete.
    fn receive(&mut self, pattern: &[u8], size: usize, receive_buffer: &mut [u8]) -> anyhow::Result<bool> {
        let message = &pattern[self.message()..][..size];
        while self.received < size {
            match self.stream.read(&mut receive_buffer[..size - self.received]) {
                Ok(0) => bail!("the server closed connection {}", self.number),
                Ok(n) => {
                    let matches = receive_buffer[..n] == message[self.received..][..n];
                    ensure!(matches, "wrong bytes on connection {}, message {}", self.number, self.sequence);
                    self.received += n;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => bail!("receiving on connection {}: {error}", self.number),
            }
        }
        ensure!(self.sent == size, "a reply on connection {} to unsent bytes", self.number);
        Ok(true)
    }
}

impl<'a> LoadRun<'a> {
    fn new(server: &'a ServerProcess, load: EchoLoad) -> anyhow::Result<Self> {
        let receive_buffer = vec![0; load.size].into();
        let clients = Vec::with_capacity(load.connections);
        let (times, pauses) = (LatencyHistogram::new()?, Pauses::new(load.pause));
        Ok(Self {
            server,
            load,
            pattern: pattern(),
            receive_buffer,
            clients,
            times,
            pauses,
            window_start: None,
            window_end: None,
            threads: 0,
        })
    }

    fn connect(&mut self, epoll: &EpollSet) -> anyhow::Result<()> {
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        for number in 0..self.load.connections {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server.port)).with_context(|| format!("connection {number}"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            reset_at_close(&stream)?;
            epoll.add(&stream, events, number as u64)?;
            let sent_at = Instant::now();
            self.clients.push(Some(EchoClient { stream, number, sequence: 0, sent: 0, received: 0, is_paused: false, sent_at }));
        }
        Ok(())
    }

    /// Runs all connections: warm-up, measured window, then the messages still in flight.
    fn run_clients(&mut self, epoll: &mut EpollSet) -> anyhow::Result<()> {
        let first = Instant::now();
        let mut in_flight = self.clients.len();
        let (mut last_reply, mut threads_sampled) = (first, first);
        for client in self.clients.iter_mut().flatten() {
            client.sent_at = Instant::now();
            client.send(&self.pattern, self.load.size)?;
        }
        let mut ready = Vec::new();
        while in_flight > 0 {
            epoll.wait(Some(self.pauses.time_to_next(Instant::now(), THREAD_COUNT_INTERVAL)), &mut ready)?;
            let now = Instant::now();
            for &number in &ready {
                in_flight -= usize::from(self.on_ready(number as usize)?);
            }
            while let Some(number) = self.pauses.pop_ended(now) {
                in_flight -= usize::from(self.send_next(number)?);
            }
            if !ready.is_empty() {
                last_reply = now;
            }
            ensure!(now - last_reply < REPLY_TIMEOUT, "{in_flight} requests without a reply after {REPLY_TIMEOUT:?}");
            if now - threads_sampled >= THREAD_COUNT_INTERVAL {
                self.threads = self.threads.max(self.server.threads());
                threads_sampled = now;
            }
            self.update_window(first, now)?;
        }
        Ok(())
    }

    /// Handles a ready connection. True if its last message is complete.
    fn on_ready(&mut self, number: usize) -> anyhow::Result<bool> {
        let Some(client) = self.clients[number].as_mut().filter(|client| !client.is_paused) else { return Ok(false) };
        client.send(&self.pattern, self.load.size)?;
        if !client.receive(&self.pattern, self.load.size, &mut self.receive_buffer)? {
            return Ok(false);
        }
        let now = Instant::now();
        if self.window_start.is_some() && self.window_end.is_none() {
            self.times.add(now - client.sent_at);
        }
        client.is_paused = self.window_end.is_none() && self.pauses.begin(number, now);
        if client.is_paused { Ok(false) } else { self.send_next(number) }
    }

    /// Starts the next message; after the window, closes the connection and returns true.
    fn send_next(&mut self, number: usize) -> anyhow::Result<bool> {
        if self.window_end.is_some() {
            self.clients[number] = None;
            return Ok(true);
        }
        let Some(client) = &mut self.clients[number] else { return Ok(false) };
        (client.sequence, client.sent, client.received) = (client.sequence + 1, 0, 0);
        (client.is_paused, client.sent_at) = (false, Instant::now());
        client.send(&self.pattern, self.load.size)?;
        Ok(false)
    }

    /// Starts and ends the measured window. It lasts until at least one request is complete.
    fn update_window(&mut self, first: Instant, now: Instant) -> anyhow::Result<()> {
        let mark = |server: &ServerProcess| anyhow::Ok(CpuMark { at: Instant::now(), server: server.cpu_time()?, own: process_cpu_time() });
        match &self.window_start {
            None if now - first >= (self.load.time / 5).max(4 * self.load.pause) => self.window_start = Some(mark(self.server)?),
            Some(window_start) if self.window_end.is_none() && now - window_start.at >= self.load.time && self.times.count() > 0 => {
                self.window_end = Some(mark(self.server)?);
                self.threads = self.threads.max(self.server.threads());
            }
            _ => {}
        }
        Ok(())
    }

    fn metrics(&self) -> anyhow::Result<Metrics> {
        let (Some(window_start), Some(window_end)) = (&self.window_start, &self.window_end) else {
            bail!("the measured window never started")
        };
        let (requests, seconds) = (self.times.count() as f64, (window_end.at - window_start.at).as_secs_f64());
        let mut metrics = Metrics::value(requests / seconds);
        metrics.add("p50_us", self.times.percentile_us(50.0));
        metrics.add("p99_us", self.times.percentile_us(99.0));
        metrics.add("cpu_us", (window_end.server - window_start.server).as_secs_f64() * 1e6 / requests);
        metrics.add("threads", f64::from(self.threads));
        metrics.add("client_cpu_percent", (window_end.own - window_start.own).as_secs_f64() / seconds * 100.0);
        Ok(metrics)
    }
}

/// Closes with RST, so that thousands of connections leave none in TIME_WAIT.
fn reset_at_close(stream: &TcpStream) -> std::io::Result<()> {
    Ok(set_socket_linger(stream, Some(Duration::ZERO))?)
}
