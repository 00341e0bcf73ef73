//! Where the broker listens, and how a program of ours connects to it.

use crate::wire::{Hello, Purpose, SOCKET, VERSION, Welcome};
use alloc::ffi::CString;
use alloc::vec::Vec;
use uringlet_sys::fd::EngineFd;
use uringlet_sys::seqpacket::{FDS_MAX, Seqpacket};
use uringlet_sys::{Errno, spawn};

/// Where the broker looks for the programs that it runs.
const SEARCH_PATH: &core::ffi::CStr = c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The broker's directory, and the program that starts a broker.
#[derive(Debug)]
pub(super) struct BrokerEndpoint {
    dir: CString,
    /// The program `uringlet`; `None`: no broker is started from here.
    program: Option<CString>,
}

/// A connection after the broker's Welcome.
pub(super) struct BrokerConnection {
    pub(super) socket: Seqpacket,
    pub(super) welcome: Welcome,
    pub(super) files: [Option<EngineFd>; FDS_MAX],
}

impl BrokerEndpoint {
    /// `None` if the directory contains a NUL.
    pub(super) fn new(dir: &[u8], program: Option<&[u8]>) -> Option<Self> {
        let program = program.and_then(|path| CString::new(path).ok());
        CString::new(dir).ok().map(|dir| Self { dir, program })
    }

    /// A path in the broker's directory.
    pub(super) fn path(&self, parts: &[&[u8]]) -> Vec<u8> {
        [&[self.dir.as_bytes(), b"/"], parts].concat().concat()
    }

    fn connect(&self) -> Result<Seqpacket, Errno> {
        Seqpacket::connect(&self.path(&[SOCKET.as_bytes()]))
    }

    pub(super) fn connect_or_start(&self) -> Result<Seqpacket, Errno> {
        match (self.connect(), &self.program) {
            (Err(Errno::ENOENT | Errno::ECONNREFUSED), Some(program)) => {
                // The command starts a broker, unless another process was quicker, and returns once
                // a broker can be reached.
                let argv = [Some(c"uringlet"), Some(c"ublk"), Some(c"features"), Some(c"--dir"), Some(&*self.dir), None];
                spawn::run(program, &argv, &[Some(SEARCH_PATH), None])?;
                self.connect()
            }
            (connected, _) => connected,
        }
    }

    pub(super) fn open_connection(&self, purpose: Purpose) -> Result<BrokerConnection, Errno> {
        let socket = self.connect_or_start()?;
        socket.send(&Hello { version: VERSION, purpose }.to_bytes())?;
        let mut bytes = [0; Welcome::SIZE];
        let (len, files) = socket.receive(&mut bytes)?;
        let welcome = Welcome::parse(&bytes[..len]).filter(|welcome| welcome.version == VERSION).ok_or(Errno::EPROTONOSUPPORT)?;
        if welcome.res < 0 { Err(Errno::new(-welcome.res)) } else { Ok(BrokerConnection { socket, welcome, files }) }
    }
}
