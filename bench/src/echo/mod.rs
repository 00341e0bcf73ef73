//! An echo server over TCP on the loopback, and its load generator.
//!
//! `echo-server` is one thread with a state per connection (`connection`), driven by a ring
//! (`ring`) or by epoll (`epoll`). `echo` (`load`) is another process: it starts the server as an
//! ordinary program and ends with it. Each connection has one message in flight, replies are
//! compared with what was sent, and the server's CPU time is read from outside.

mod connection;
mod epoll;
mod epoll_set;
mod limits;
mod load;
mod pauses;
mod ring;
mod server;

use anyhow::{bail, ensure};
use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use crate::timing::Metrics;
use limits::{CONNECTIONS, SIZES};

/// Options of the server and of the load generator.
#[derive(Debug)]
struct EchoWorkerArgs {
    connections: usize,
    size: usize,
    time: Duration,
    pause: Duration,
    via: String,
    ring_options: ring::RingOptions,
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
        ring_options: ring::RingOptions::default(),
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
            Long("defer-taskrun") => args.ring_options.defers = true,
            Long("registered-files") => args.ring_options.registers_files = true,
            Long("async-workers") => args.ring_options.async_workers = Some(parser.value()?.parse()?),
            Value(word) => {
                args.server.push(word);
                args.server.extend(parser.raw_args()?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    ensure!(SIZES.contains(&args.size), "a message has 1 to 65536 bytes");
    ensure!(CONNECTIONS.contains(&args.connections), "1 to 10000 connections are supported");
    Ok(args)
}

/// Starts the server given by the arguments and loads it.
pub(crate) fn load() -> anyhow::Result<Metrics> {
    let args = parse()?;
    ensure!(!args.server.is_empty(), "the server's command is missing (-- uringlet-bench-worker echo-server ...)");
    server::raise_file_limit(args.connections as u64 + 64)?;
    let server = server::ServerProcess::start(&args.server)?;
    let EchoWorkerArgs { connections, size, time, pause, .. } = args;
    load::run(&server, &load::EchoLoad { connections, size, time, pause })
}

/// Prints its port, then serves until killed.
pub(crate) fn serve() -> anyhow::Result<Metrics> {
    let args = parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // All clients may connect at once, and one that finds the backlog full retries only after a
    // second. The kernel cuts the backlog to its limit.
    rustix::net::listen(&listener, i32::try_from(*CONNECTIONS.end())?)?;
    let port = listener.local_addr()?.port();
    let limits = connection::ServerLimits { connections: args.connections, size: args.size };
    let on_ready = || {
        println!("{port}");
        std::io::stdout().flush()
    };
    match args.via.as_str() {
        "ring" => ring::serve(&listener, limits, args.ring_options, on_ready)?,
        "epoll" => epoll::serve(&listener, limits, on_ready)?,
        via => bail!("there is no server `{via}`"),
    }
    Ok(Metrics::default())
}
