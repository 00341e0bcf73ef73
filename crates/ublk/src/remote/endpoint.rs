//! Where the broker listens, and how a program of ours connects to it.

use crate::wire::{Hello, LIST, ON_DEMAND_MARK, Purpose, SOCKET, VERSION, Welcome};
use alloc::ffi::CString;
use alloc::vec::Vec;
use uringlet_sys::fd::EngineFd;
use uringlet_sys::seqpacket::{FDS_MAX, Seqpacket};
use uringlet_sys::{Errno, directory, spawn};

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

    /// Makes the broker's directory and its list of devices, which is empty as long as no broker
    /// has been here. Where that fails the caller finds no list.
    pub(super) fn make_list(&self) {
        directory::make_private(&self.dir);
        if let Ok(list) = CString::new(self.path(&[LIST.as_bytes()])) {
            directory::make_private(&list);
        }
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

    /// Whether a broker answers. Starts one if the last one was started on demand, or `may_start`.
    pub(super) fn is_back(&self, may_start: bool) -> bool {
        let mark = CString::new(self.path(&[ON_DEMAND_MARK.as_bytes()]));
        let is_on_demand = mark.is_ok_and(|mark| directory::file_version(&mark).is_ok());
        if is_on_demand || may_start { self.connect_or_start().is_ok() } else { self.connect().is_ok() }
    }

    pub(super) fn open_connection(&self, purpose: Purpose) -> Result<BrokerConnection, Errno> {
        let socket = self.connect_or_start()?;
        socket.send(&Hello { version: VERSION, purpose }.to_bytes())?;
        Self::welcomed(socket)
    }

    /// Brings a device to another broker. `file`: the descriptor of its shared file.
    pub(super) fn bring(&self, id: u32, file: i32) -> Result<BrokerConnection, Errno> {
        let socket = self.connect()?;
        socket.send(&Hello { version: VERSION, purpose: Purpose::Adopt(id) }.to_bytes())?;
        socket.send_fd(&[0], file)?;
        Self::welcomed(socket)
    }

    fn welcomed(socket: Seqpacket) -> Result<BrokerConnection, Errno> {
        let mut bytes = [0; Welcome::SIZE];
        let (len, files) = socket.receive(&mut bytes)?;
        if len == 0 {
            return Err(Errno::ECONNRESET);
        }
        let welcome = Welcome::parse(&bytes[..len]).filter(|welcome| welcome.version == VERSION).ok_or(Errno::EPROTONOSUPPORT)?;
        if welcome.res < 0 { Err(Errno::new(-welcome.res)) } else { Ok(BrokerConnection { socket, welcome, files }) }
    }
}
