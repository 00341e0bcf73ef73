//! A block device of the kernel, for root: for mkfs, mount and any other program.
//!
//! ```text
//!   mount, fio --> /dev/ublkbN, a loop device --> a FUSE file --> serve: reads /dev/fuse, submits
//!                                                 reply <-- done(): writes /dev/fuse
//! ```
//! Nothing outlives its process. The filesystem is mounted nowhere and lives as long as the loop
//! device has its file open. The loop device unbinds itself with its last user. A guard, a shell
//! that waits for the end of the process, removes the node after a crash. A filesystem mounted on
//! it then gets EIO and can be unmounted; [`BlockFrontEnd::clean`] of the next process does that.
//!
//! A device that is stopped while its server runs is written back first, as the kernel does when a
//! disk is removed: a filesystem on it loses nothing and then gets EIO.
//!
//! - wire: FUSE's structures (pure)         - serve: requests and replies
//! - disk: the three parts of one device    - stale: remains of a killed process
//! - numbers: which process has which       - this file: the FrontEnd
//!
//! Differs: a discard reaches the server as a write of zeroes that may unmap, as the loop device
//! has one request for both; without write-zeroes in the device's limits there is neither. FUA is a
//! write and a flush. No partition scan.

mod disk;
mod numbers;
mod serve;
mod stale;
mod wire;

use crate::sync::lock;
use disk::LoopDisk;
use numbers::NumberLocks;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};

/// Makes `/dev/ublkbN` for each device.
#[derive(Debug)]
pub struct BlockFrontEnd {
    /// The directory of the nodes.
    dir: PathBuf,
    disks: Mutex<BTreeMap<u32, LoopDisk>>,
    numbers: NumberLocks,
}

impl BlockFrontEnd {
    /// Makes nodes in `dir`: `/dev`, or a temporary directory in tests.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), disks: Mutex::default(), numbers: NumberLocks::new(dir) }
    }

    /// What this machine or user lacks, one sentence each.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !rustix::process::geteuid().is_root() {
            missing.push("only root can make block devices: run as root, or use NBD".to_owned());
        }
        for (path, what) in [("/dev/fuse", "FUSE (CONFIG_FUSE_FS)"), ("/dev/loop-control", "loop devices (CONFIG_BLK_DEV_LOOP)")] {
            if let Err(error) = std::fs::File::options().read(true).write(true).open(path) {
                missing.push(format!("cannot open {path}: {error}; it needs {what}, and in a container access to the device"));
            }
        }
        missing
    }

    /// Removes the remains of killed processes: mounts on their devices (lazily: users of the mount
    /// stay and get errors), loop devices, nodes. One sentence for each. Live processes are not
    /// affected.
    #[must_use]
    pub fn clean(&self) -> Vec<String> {
        stale::clean(&self.dir)
    }

    /// The node of a device.
    #[must_use]
    pub fn node(&self, id: u32) -> PathBuf {
        self.dir.join(format!("ublkb{id}"))
    }
}

impl FrontEnd for BlockFrontEnd {
    fn reserve(&self, id: u32) -> Result<(), Errno> {
        self.numbers.lock(id)?;
        disk::check_name(&self.node(id)).inspect_err(|_| self.numbers.unlock(id))
    }

    fn release(&self, id: u32) {
        self.numbers.unlock(id);
    }

    fn block_node(&self, id: u32) -> Option<String> {
        lock(&self.disks).get(&id).map(|disk| disk.node_and_rdev().0.to_string_lossy().into_owned())
    }

    fn start(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno> {
        let id = device.id();
        if lock(&self.disks).contains_key(&id) {
            return Err(Errno::EEXIST);
        }
        // Not under the lock: requests may arrive before this returns.
        let disk = LoopDisk::new(device, &self.node(id))?;
        lock(&self.disks).insert(id, disk);
        Ok(())
    }

    fn resized(&self, device: &Arc<dyn BlockDevice>) {
        if let Some(disk) = lock(&self.disks).get(&device.id()) {
            // If the kernel refuses the new size, the old one stays.
            let _ = disk.resize();
        }
    }

    fn before_stop(&self, id: u32) {
        // Not under the lock: writing back may take long.
        let node_and_rdev = lock(&self.disks).get(&id).map(LoopDisk::node_and_rdev);
        if let Some((node, rdev)) = node_and_rdev {
            // An error is not reported: data that cannot be written is lost, as when a disk is
            // pulled.
            let _ = disk::write_back(&node, rdev);
        }
    }

    fn stop(&self, id: u32) {
        let disk = lock(&self.disks).remove(&id);
        drop(disk);
    }
}
