//! Exports: devices by name.

use super::unaligned::RmwLock;
use super::wire::{BlockSizeInfo, ExportInfo, PAYLOAD_MAX, transmission_flag};
use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::{BlockDevice, SECTOR};

/// The export name of a device.
pub(super) fn export_name(id: u32) -> String {
    format!("ublkb{id}")
}

/// A connection that uses an export.
pub(super) trait ExportUser: Send + Sync + std::fmt::Debug {
    /// The device is no longer offered: take no more commands.
    fn export_removed(&self);
}

/// An exported device.
#[derive(Debug)]
pub(super) struct Export {
    pub(super) device: Arc<dyn BlockDevice>,
    /// Every change of the device holds it.
    pub(super) rmw: RmwLock,
    users: Mutex<ExportUsers>,
    next_queue: AtomicU16,
}

#[derive(Debug, Default)]
struct ExportUsers {
    is_closed: bool,
    connections: Vec<Weak<dyn ExportUser>>,
}

/// What a client learns about an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExportSummary {
    pub(super) size: u64,
    pub(super) flags: u16,
    pub(super) block_min: u32,
    pub(super) block_best: u32,
    pub(super) block_max: u32,
}

impl ExportSummary {
    pub(super) fn info(&self) -> ExportInfo {
        ExportInfo { size: self.size.into(), flags: self.flags.into() }
    }

    pub(super) fn block_sizes(&self) -> BlockSizeInfo {
        BlockSizeInfo { minimum: self.block_min.into(), preferred: self.block_best.into(), maximum: self.block_max.into() }
    }
}

impl Export {
    fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, rmw: RmwLock::default(), users: Mutex::default(), next_queue: AtomicU16::new(0) }
    }

    pub(super) fn name(&self) -> String {
        export_name(self.device.id())
    }

    pub(super) fn summary(&self, is_structured: bool) -> ExportSummary {
        let limits = self.device.limits();
        let mut flags = transmission_flag::HAS_FLAGS
            | transmission_flag::FLUSH
            | transmission_flag::FUA
            | transmission_flag::WRITE_ZEROES
            | transmission_flag::MULTI_CONN
            | transmission_flag::CACHE
            | transmission_flag::FAST_ZERO;
        for (is_so, flag) in [
            (limits.is_read_only, transmission_flag::READ_ONLY),
            (limits.is_rotational, transmission_flag::ROTATIONAL),
            (limits.max_discard > 0, transmission_flag::TRIM),
            (is_structured, transmission_flag::DONT_FRAGMENT),
        ] {
            flags |= if is_so { flag } else { 0 };
        }
        let block_min = limits.logical_block.max(SECTOR as u32);
        let block_best = limits.physical_block.max(limits.io_opt).max(4096).clamp(block_min, PAYLOAD_MAX);
        let block_best = if block_best.is_power_of_two() { block_best } else { 4096.max(block_min) };
        ExportSummary { size: limits.sectors * SECTOR, flags, block_min, block_best, block_max: PAYLOAD_MAX }
    }

    /// The queue of a new connection, round robin.
    pub(super) fn pick_queue(&self) -> u16 {
        self.next_queue.fetch_add(1, Relaxed) % self.device.queues().0
    }

    /// Registers a connection to be told when the device is removed. False: it is removed already.
    pub(super) fn register(&self, connection: &Arc<dyn ExportUser>) -> bool {
        let mut users = lock(&self.users);
        users.connections.retain(|connection| connection.strong_count() > 0);
        users.connections.push(Arc::downgrade(connection));
        !users.is_closed
    }

    fn close(&self) {
        let connections = {
            let mut users = lock(&self.users);
            users.is_closed = true;
            std::mem::take(&mut users.connections)
        };
        connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.export_removed());
    }
}

/// All exports.
#[derive(Debug, Default)]
pub(super) struct Exports {
    by_id: Mutex<BTreeMap<u32, Arc<Export>>>,
}

impl Exports {
    pub(super) fn add(&self, device: Arc<dyn BlockDevice>) -> Result<(), Errno> {
        use std::collections::btree_map::Entry;
        match lock(&self.by_id).entry(device.id()) {
            Entry::Occupied(_) => Err(Errno::EEXIST),
            Entry::Vacant(entry) => {
                entry.insert(Arc::new(Export::new(device)));
                Ok(())
            }
        }
    }

    /// Removes a device and asks its connections to end.
    pub(super) fn remove(&self, id: u32) {
        let export = lock(&self.by_id).remove(&id);
        if let Some(export) = export {
            export.close();
        }
    }

    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *lock(&self.by_id));
        all.values().for_each(|export| export.close());
    }

    /// Finds an export. The empty name selects the only device, if there is exactly one.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Export>> {
        let by_id = lock(&self.by_id);
        let mut all = by_id.values();
        match name {
            "" if by_id.len() == 1 => all.next().cloned(),
            "" => None,
            name => all.find(|export| export.name() == name).cloned(),
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        lock(&self.by_id).values().map(|export| export.name()).collect()
    }
}
