//! The driver inside the program that it serves: virtual files of the engine for
//! `/dev/ublk-control`, `/dev/ublkcN` and, for a user of the device in the same process,
//! `/dev/uringlet/ublkbN`.
//!
//! Commands are parked requests of the program's rings. Data is copied between the buffers of the
//! device's user and of the server, whose addresses may be bad (`uringlet_sys::uaccess`). With
//! USER_COPY it lies in a memfd.
//!
//! `Differs:` devices live and die with the process; its user is the administrator.

mod buffers;
mod client;
mod files;
mod platform;

use crate::control::{Driver, char_device_id};
use alloc::sync::Arc;
use alloc::vec::Vec;
use client::ClientFile;
use files::{DriverCharFile, DriverControlFile};
pub(crate) use files::{check_mmap, command_bytes};
pub use platform::InProcessPlatform;
use uringlet_core::{OpenedFile, VirtualFiles};
use uringlet_sys::Errno;
use uringlet_sys::lock::Mutex;
use uringlet_sys::shared_file::placeholder_fd;

/// Opens the files of the one driver of this process.
#[derive(Debug)]
pub struct DeviceFiles {
    /// Created by the first open.
    driver: Mutex<Option<Arc<Driver<InProcessPlatform>>>>,
}

/// The instance of this process: for `Engine::set_opener`.
pub static DEVICE_FILES: DeviceFiles = DeviceFiles { driver: Mutex::new(None) };

impl DeviceFiles {
    fn driver(&self) -> Arc<Driver<InProcessPlatform>> {
        let mut driver = self.driver.lock();
        Arc::clone(driver.get_or_insert_with(|| Arc::new(Driver::new(InProcessPlatform, Vec::new()))))
    }
}

impl VirtualFiles for DeviceFiles {
    fn open(&self, path: &[u8], flags: u32) -> Option<Result<OpenedFile, Errno>> {
        if path == b"/dev/ublk-control" {
            let file = DriverControlFile { driver: self.driver() };
            return Some(placeholder_fd(flags).map(|fd| -> OpenedFile { (fd, Arc::new(file)) }));
        }
        if let Some(id) = char_device_id(path) {
            let device = self.driver().device(id)?;
            return Some(DriverCharFile::open(device, flags).map(|(fd, file)| -> OpenedFile { (fd, Arc::new(file)) }));
        }
        let id = path.strip_prefix(b"/dev/uringlet/ublkb").and_then(crate::control::parse_id)?;
        let device = self.driver().device(id)?;
        if !device.is_live() {
            return None;
        }
        Some(placeholder_fd(flags).map(|fd| -> OpenedFile { (fd, Arc::new(ClientFile::new(device))) }))
    }

    fn before_fork(&self) {
        let driver = self.driver.lock().clone();
        self.driver.lock_for_fork();
        if let Some(driver) = driver {
            driver.lock_for_fork();
        }
    }

    fn after_fork(&self) {
        self.driver.unlock_after_fork();
        let driver = self.driver.lock().clone();
        if let Some(driver) = driver {
            driver.unlock_after_fork();
        }
    }
}
