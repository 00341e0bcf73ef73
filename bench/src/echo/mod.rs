//! An echo server over TCP on the loopback, and who loads it.
//!
//! `echo-server` is one thread and a state a connection (`connection`), driven by a ring (`ring`) or by epoll (`epoll`). `echo` (`load`) is another
//! process: it starts the server, which therefore runs as any program does, and ends with it. Each connection has one message under way, its bytes are
//! compared with what was sent, and what the server cost is read from outside.

mod connection;
mod epoll;
pub(crate) mod histogram;
mod load;
mod pauses;
mod ring;
mod server;

use anyhow::{bail, ensure};
use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::timing::Metrics;

/// Bytes of a message.
const SIZES: std::ops::RangeInclusive<usize> = 1..=65_536;
/// As many as a ring of 16,384 entries has room for.
const CONNECTIONS: std::ops::RangeInclusive<usize> = 1..=10_000;

/// What the server, or who loads it, is asked for.
#[derive(Debug)]
struct EchoWorkerArgs {
    connections: usize,
    size: usize,
    time: Duration,
    pause: Duration,
    via: String,
    way: ring::RingOptions,
    server: Vec<OsString>,
}

fn parse() -> anyhow::Result<EchoWorkerArgs> {
    use lexopt::prelude::*;
    let mut args = EchoWorkerArgs {
        connections: 1,
        size: 12,
        time: crate::timing::DEFAULT_TIME,
        pause: Duration::ZERO,
        via: "ring".to_owned(),
        way: ring::RingOptions::default(),
        server: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_args(std::env::args_os().skip(2));
    while let Some(arg) = parser.next()? {
        match arg {
            Long("connections") => args.connections = parser.value()?.parse()?,
            Long("size") => args.size = parser.value()?.parse()?,
            Long("seconds") => args.time = Duration::try_from_secs_f64(parser.value()?.parse()?)?,
            Long("pause-ms") => args.pause = Duration::from_millis(parser.value()?.parse()?),
            Long("via") => args.via = parser.value()?.string()?,
            Long("defer-taskrun") => args.way.defers = true,
            Long("registered-files") => args.way.registers_files = true,
            Long("async-workers") => args.way.async_workers = Some(parser.value()?.parse()?),
            Value(word) => {
                args.server.push(word);
                args.server.extend(parser.raw_args()?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    ensure!(SIZES.contains(&args.size), "messages have 1 to 65536 bytes");
    ensure!(CONNECTIONS.contains(&args.connections), "there are 1 to 10000 connections");
    Ok(args)
}

/// Starts the server that the arguments name, loads it, and tells.
pub(crate) fn load() -> anyhow::Result<Metrics> {
    let args = parse()?;
    ensure!(!args.server.is_empty(), "which server? (-- uringlet-bench-worker echo-server ...)");
    server::allow_files(args.connections as u64 + 64)?;
    let server = server::ServerProcess::start(&args.server)?;
    let EchoWorkerArgs { connections, size, time, pause, .. } = args;
    load::run(&server, &load::EchoLoad { connections, size, time, pause })
}

/// Tells its port, then serves until it is killed.
pub(crate) fn serve() -> anyhow::Result<Metrics> {
    let args = parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // All may come at once: a connection that finds no room is tried again after a second. The kernel cuts it down to what is allowed.
    // SAFETY: no address.
    let answer = unsafe { libc::listen(listener.as_raw_fd(), *CONNECTIONS.end() as i32) };
    ensure!(answer == 0, "listen: {}", std::io::Error::last_os_error());
    let port = listener.local_addr()?.port();
    let limits = connection::ServerLimits { connections: args.connections, size: args.size };
    let on_ready = || {
        println!("{port}");
        std::io::stdout().flush()
    };
    match args.via.as_str() {
        "ring" => ring::serve(&listener, limits, args.way, on_ready)?,
        "epoll" => epoll::serve(&listener, limits, on_ready)?,
        via => bail!("there is no way to serve `{via}`"),
    }
    Ok(Metrics::default())
}
