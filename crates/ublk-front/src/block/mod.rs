//! A real block device, for root: what mkfs, mount and everybody else can use.
//!
//! ```text
//!   mount, fio --> /dev/ublkbN = a loop device --> a file of our own (FUSE) --> serve: reads /dev/fuse, submits
//!                                                                      reply <-- done(): writes /dev/fuse
//! ```
//! Nothing of it outlives its process: the filesystem is mounted nowhere, it lives as long as the loop device has its file open;
//! the loop device unbinds itself with its last user; a guard, a shell that waits for our end, removes the node after a crash.
//! A filesystem that was mounted on it then gets EIO, and can be unmounted; [`BlockFrontEnd::clean`] of the next process does that.
//! A device that is stopped while its server is there is written back before, as the kernel does when a disk goes: the filesystem on
//! it loses nothing, and then gets EIO.
//!
//! - wire: FUSE's structures (pure)        - serve: requests and replies
//! - disk: the three pieces of one device  - stale: what a killed process left
//! - this: the FrontEnd
//!
//! Differs: a discard reaches the server as a write of zeroes that may unmap (the loop device has one word for both); without
//! write-zeroes in the device's limits there is neither. FUA is a write and a flush. No partition scan.

mod disk;
mod serve;
mod stale;
mod wire;

use crate::sync::lock;
use disk::LoopDisk;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};

/// Makes `/dev/ublkbN` of each device.
#[derive(Debug)]
pub struct BlockFrontEnd {
    /// Where the nodes are made.
    dir: PathBuf,
    disks: Mutex<BTreeMap<u32, LoopDisk>>,
}

impl BlockFrontEnd {
    /// Makes nodes in `dir`, which is `/dev` but for tests.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), disks: Mutex::default() }
    }

    /// What this machine or user lacks for it, one sentence each.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !rustix::process::geteuid().is_root() {
            missing.push("only root can make block devices: run as root, or use NBD".to_owned());
        }
        for (path, what) in [("/dev/fuse", "FUSE (CONFIG_FUSE_FS)"), ("/dev/loop-control", "loop devices (CONFIG_BLK_DEV_LOOP)")] {
            if let Err(error) = std::fs::File::options().read(true).write(true).open(path) {
                missing.push(format!("cannot open {path}: {error}; the kernel needs {what}, and a container the device"));
            }
        }
        missing
    }

    /// Ends what processes of ours that were killed have left: mounts of filesystems on their devices (lazily: who is in them
    /// stays there, with errors), loop devices, nodes. One sentence for each. Nothing of a process that lives is touched.
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
    fn start(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno> {
        let id = device.id();
        if lock(&self.disks).contains_key(&id) {
            return Err(Errno::EEXIST);
        }
        // Not under the lock: requests may come before this returns.
        let disk = LoopDisk::new(device, &self.node(id))?;
        lock(&self.disks).insert(id, disk);
        Ok(())
    }

    fn resized(&self, device: &Arc<dyn BlockDevice>) {
        if let Some(disk) = lock(&self.disks).get(&device.id()) {
            // The old size stays where the kernel refuses the new one.
            let _ = disk.resize();
        }
    }

    fn before_stop(&self, id: u32) {
        // Not under the lock: it takes as long as there is something to write.
        let node_and_rdev = lock(&self.disks).get(&id).map(LoopDisk::node_and_rdev);
        if let Some((node, rdev)) = node_and_rdev {
            // What cannot be written is lost, as with a disk that is pulled: nobody is there to hear of it.
            let _ = disk::write_back(&node, rdev);
        }
    }

    fn stop(&self, id: u32) {
        let disk = lock(&self.disks).remove(&id);
        drop(disk);
    }
}
