//! `/dev/ublk-control` and `/dev/ublkcN` of a program whose devices are a broker's: the engine's virtual files, and behind them the wire (see WIRE.md).
//!
//! A control command has a connection of its own, and a worker that waits for the answer. An open char device is a connection too; a thread of the engine
//! takes its completions. The data of devices without USER_COPY is copied here, between the shared file and the server's buffers, whose addresses only
//! this process knows.
//!
//! `Differs:` a forked child cannot use a char device that its parent has opened (EINVAL, as the driver says to every task but the one that fetched);
//! the server is lost with the process that opened it.

mod char_file;
mod control;

use crate::control::char_device_id;
use crate::wire::{Hello, LIST, Purpose, SOCKET, VERSION, Welcome};
use alloc::ffi::CString;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use char_file::{BrokerCharFile, CharFileShared};
use control::BrokerControlFile;
use uringlet::{OpenedFile, VirtualFiles};
use uringlet_sys::fd::EngineFd;
use uringlet_sys::lock::Mutex;
use uringlet_sys::seqpacket::{FDS_MAX, Seqpacket};
use uringlet_sys::shared_file::placeholder_fd;
use uringlet_sys::{Errno, spawn};

/// Where programs are that the broker uses.
const SEARCH_PATH: &core::ffi::CStr = c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where the broker is met, and what starts one.
#[derive(Debug)]
struct BrokerEndpoint {
    dir: CString,
    /// The program `uringlet`; none: nobody starts a broker from here.
    program: Option<CString>,
}

/// Opens the files of a broker's devices.
#[derive(Debug)]
pub struct BrokerFiles {
    broker: Mutex<Option<Arc<BrokerEndpoint>>>,
    /// The char devices that are open, and some that were.
    open: Mutex<Vec<Weak<CharFileShared>>>,
}

/// The one of this process: for `Engine::set_opener`, after [`BrokerFiles::set_broker`].
pub static BROKER_FILES: BrokerFiles = BrokerFiles { broker: Mutex::new(None), open: Mutex::new(Vec::new()) };

impl BrokerFiles {
    /// The broker's folder, and the program `uringlet`, which starts one if there is none. Neither has a NUL.
    pub fn set_broker(&self, dir: &[u8], program: Option<&[u8]>) {
        let program = program.and_then(|path| CString::new(path).ok());
        *self.broker.lock() = CString::new(dir).ok().map(|dir| Arc::new(BrokerEndpoint { dir, program }));
    }

    /// What a question about a path is about instead: see [`LIST`].
    pub fn remap_path(&self, path: &[u8]) -> Option<CString> {
        if path == b"/dev/ublk-control" {
            return Some(c"/dev/null".into());
        }
        let broker = self.broker()?;
        let target = if char_device_id(path).is_some() {
            // From its last slash on.
            broker.path(&[LIST.as_bytes(), path.strip_prefix(b"/dev")?])
        } else if let Some(rest) = path.strip_prefix(b"/sys/class/ublk-char") {
            broker.path(&[LIST.as_bytes(), rest])
        } else if path == b"/sys/module/ublk_drv" {
            broker.path(&[])
        } else {
            return None;
        };
        CString::new(target).ok()
    }

    fn broker(&self) -> Option<Arc<BrokerEndpoint>> {
        self.broker.lock().clone()
    }
}

impl VirtualFiles for BrokerFiles {
    fn open(&self, path: &[u8], flags: u32) -> Option<Result<OpenedFile, Errno>> {
        if path == b"/dev/ublk-control" {
            let broker = self.broker()?;
            let reached = broker.connect_or_start();
            return Some(
                reached.and_then(|_| placeholder_fd(flags)).map(|fd| -> OpenedFile { (fd, Arc::new(BrokerControlFile { broker })) }),
            );
        }
        let id = char_device_id(path)?;
        match BrokerCharFile::open(&*self.broker()?, id, flags) {
            // The kernel's own answer stands.
            Err(Errno::ENOENT | Errno::ECONNREFUSED) => None,
            Err(errno) => Some(Err(errno)),
            Ok((fd, file)) => {
                let mut open = self.open.lock();
                open.retain(|shared| shared.strong_count() > 0);
                open.push(Arc::downgrade(&file.0));
                Some(Ok((fd, Arc::new(file))))
            }
        }
    }

    fn before_fork(&self) {
        self.broker.lock_for_fork();
        self.open.lock_for_fork();
    }

    /// The broker shall see the end of the one process that serves, whatever children it has.
    fn after_fork(&self) {
        self.open.unlock_after_fork();
        self.broker.unlock_after_fork();
        self.open.lock().iter().filter_map(Weak::upgrade).for_each(|shared| shared.detach_in_child());
    }
}

/// A connection that was welcomed.
struct BrokerConnection {
    socket: Seqpacket,
    welcome: Welcome,
    files: [Option<EngineFd>; FDS_MAX],
}

impl BrokerEndpoint {
    /// A path in its folder.
    fn path(&self, parts: &[&[u8]]) -> Vec<u8> {
        [&[self.dir.as_bytes(), b"/"], parts].concat().concat()
    }

    fn connect(&self) -> Result<Seqpacket, Errno> {
        Seqpacket::connect(&self.path(&[SOCKET.as_bytes()]))
    }

    fn connect_or_start(&self) -> Result<Seqpacket, Errno> {
        match (self.connect(), &self.program) {
            (Err(Errno::ENOENT | Errno::ECONNREFUSED), Some(program)) => {
                // It starts a broker, unless another process was quicker, and comes back when that can be reached.
                let argv = [Some(c"uringlet"), Some(c"ublk"), Some(c"features"), Some(c"--dir"), Some(&*self.dir), None];
                spawn::run(program, &argv, &[Some(SEARCH_PATH), None])?;
                self.connect()
            }
            (connected, _) => connected,
        }
    }

    /// A connection for something.
    fn open_connection(&self, purpose: Purpose) -> Result<BrokerConnection, Errno> {
        let socket = self.connect_or_start()?;
        socket.send(&Hello { version: VERSION, purpose }.to_bytes())?;
        let mut bytes = [0; Welcome::SIZE];
        let (len, files) = socket.receive(&mut bytes)?;
        let welcome = Welcome::parse(&bytes[..len]).filter(|welcome| welcome.version == VERSION).ok_or(Errno::EPROTONOSUPPORT)?;
        if welcome.res < 0 { Err(Errno::new(-welcome.res)) } else { Ok(BrokerConnection { socket, welcome, files }) }
    }
}
