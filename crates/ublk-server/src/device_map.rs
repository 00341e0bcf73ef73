//! A front end that keeps live devices by number, for use within this process.

use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};

/// See the module.
#[derive(Debug, Default)]
pub struct DeviceMap(Mutex<BTreeMap<u32, Arc<dyn BlockDevice>>>);

impl DeviceMap {
    /// The device, while it is live.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<Arc<dyn BlockDevice>> {
        lock(&self.0).get(&id).cloned()
    }

    /// The device with the lowest number.
    #[must_use]
    pub fn first(&self) -> Option<Arc<dyn BlockDevice>> {
        lock(&self.0).values().next().cloned()
    }
}

impl FrontEnd for DeviceMap {
    fn start(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno> {
        lock(&self.0).insert(device.id(), device);
        Ok(())
    }

    fn stop(&self, id: u32) {
        lock(&self.0).remove(&id);
    }
}
