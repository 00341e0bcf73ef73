//! `/dev/ublk-control` and `/dev/ublkcN` of a program whose devices a broker owns: virtual files of
//! the engine, in front of the wire protocol (WIRE.md).
//!
//! A control command has a connection of its own, and an io-wq worker that waits for the reply. An
//! open char device is a connection too; a thread of the engine receives its completions. This
//! process copies the data of devices without USER_COPY between the shared file and the server's
//! buffers, as only it can reach their addresses. That thread also brings the device to the next
//! broker if this one is killed.
//!
//! `Differs:` a forked child cannot use a char device that its parent has opened (EINVAL, which the
//! driver returns to every task but the one that fetched the tag). The server is lost with the
//! process that opened the device.

mod char_file;
mod control;
mod endpoint;

use crate::control::char_device_id;
use crate::wire::LIST;
use alloc::ffi::CString;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use char_file::{BrokerCharFile, CharFileShared};
use control::BrokerControlFile;
use endpoint::BrokerEndpoint;
use uringlet_core::{OpenedFile, VirtualFiles};
use uringlet_sys::Errno;
use uringlet_sys::lock::Mutex;
use uringlet_sys::shared_file::placeholder_fd;

/// Opens the files of a broker's devices.
#[derive(Debug)]
pub struct BrokerFiles {
    broker: Mutex<Option<Arc<BrokerEndpoint>>>,
    /// Char devices that are open, and some that were closed since.
    open: Mutex<Vec<Weak<CharFileShared>>>,
}

/// The instance of this process: for `Engine::set_opener`, after [`BrokerFiles::set_broker`].
pub static BROKER_FILES: BrokerFiles = BrokerFiles { broker: Mutex::new(None), open: Mutex::new(Vec::new()) };

impl BrokerFiles {
    /// Sets the broker's directory, and the program `uringlet`, which starts a broker if none runs.
    /// Neither contains a NUL.
    pub fn set_broker(&self, dir: &[u8], program: Option<&[u8]>) {
        *self.broker.lock() = BrokerEndpoint::new(dir, program).map(Arc::new);
    }

    /// The path to use instead of a path of `ublk_drv`, for calls that only ask about it (stat,
    /// readdir): see [`LIST`].
    pub fn remap_path(&self, path: &[u8]) -> Option<CString> {
        match path {
            b"/dev/ublk-control" => return Some(c"/dev/null".into()),
            // That the module is loaded: any folder.
            b"/sys/module/ublk_drv" | b"/sys/module/ublk_drv/" => return Some(c"/".into()),
            _ => {}
        }
        let broker = self.broker()?;
        let target = if char_device_id(path).is_some() {
            // The part from the last slash on.
            broker.path(&[LIST.as_bytes(), path.strip_prefix(b"/dev")?])
        } else {
            let rest = path.strip_prefix(b"/sys/class/ublk-char").filter(|rest| rest.first().is_none_or(|&byte| byte == b'/'))?;
            broker.make_list();
            broker.path(&[LIST.as_bytes(), rest])
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
        match BrokerCharFile::open(&self.broker()?, id, flags) {
            // The kernel opens the path.
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

    /// The broker has to see the end of the serving process even if that has children: a child
    /// drops its copies of the sockets.
    fn after_fork(&self) {
        self.open.unlock_after_fork();
        self.broker.unlock_after_fork();
        self.open.lock().iter().filter_map(Weak::upgrade).for_each(|shared| shared.detach_in_child());
    }
}
