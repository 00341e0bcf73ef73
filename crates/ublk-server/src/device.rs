//! Adding a device.

use crate::backing::BackingStore;
use anyhow::Context;
use uringlet_abi::ublk::{DevInfo, ParamBasic, ParamDiscard, feature, param};
use uringlet_sys::Errno;
use uringlet_ublk::frontend::SECTOR;
use uringlet_ublkd::client::{BrokerClient, CharDevice, CommandRefused, ServerParams};

/// Longest read or write, bytes.
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// The properties of a new device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSpec {
    /// Its number; `u32::MAX`: the lowest free one.
    pub id: u32,
    /// Bytes.
    pub size: u64,
    /// Queues.
    pub queues: u16,
    /// Tags of each.
    pub depth: u16,
    /// `UBLK_F_*` besides those that each server here needs.
    pub flags: u64,
    /// What is served, as a number: `recover` compares it. The driver keeps it for the server.
    pub identity: u64,
    /// Writes are refused.
    pub is_read_only: bool,
    /// log2 of the logical block, bytes.
    pub block_shift: u8,
}

impl DeviceSpec {
    /// ADD_DEV's info for a server that copies the data itself.
    #[must_use]
    pub fn info(&self) -> DevInfo {
        DevInfo {
            nr_hw_queues: self.queues,
            queue_depth: self.depth,
            max_io_buf_bytes: IO_BYTES_MAX,
            dev_id: self.id,
            ublksrv_pid: std::process::id().cast_signed(),
            flags: self.flags | feature::USER_COPY | feature::CMD_IOCTL_ENCODE,
            ublksrv_flags: self.identity,
            ..DevInfo::default()
        }
    }

    /// The parameters of a device with this backing store.
    #[must_use]
    pub fn params(&self, target: &BackingStore) -> ServerParams {
        let attrs = if self.is_read_only { param::ATTR_READ_ONLY } else { 0 };
        let cache = if matches!(target, BackingStore::File(_)) { param::ATTR_VOLATILE_CACHE } else { 0 };
        let basic = ParamBasic {
            attrs: attrs | cache,
            logical_bs_shift: self.block_shift,
            physical_bs_shift: self.block_shift.max(12),
            io_opt_shift: self.block_shift.max(12),
            io_min_shift: self.block_shift,
            max_sectors: IO_BYTES_MAX / SECTOR as u32,
            dev_sectors: self.size / SECTOR,
            ..ParamBasic::default()
        };
        let discard = ParamDiscard {
            discard_granularity: 4096,
            max_discard_sectors: 1 << 21,
            max_write_zeroes_sectors: 1 << 21,
            max_discard_segments: 1,
            ..ParamDiscard::default()
        };
        ServerParams { basic, discard }
    }
}

/// Adds a device, sets its parameters and opens its char device.
///
/// # Errors
/// The broker's, with advice.
pub fn add(client: &BrokerClient, spec: &DeviceSpec, target: &BackingStore) -> anyhow::Result<(u32, CharDevice)> {
    create(client, &spec.info(), spec.params(target))
}

/// As [`add`], with any info and parameters.
///
/// # Errors
/// The broker's, with advice.
pub fn create(client: &BrokerClient, info: &DevInfo, params: ServerParams) -> anyhow::Result<(u32, CharDevice)> {
    let added = client.add(info).map_err(|error| match error.downcast_ref() {
        Some(CommandRefused(Errno::EEXIST)) => error.context(whose(client, info.dev_id)),
        _ if info.dev_id == u32::MAX => error.context("adding a device"),
        _ => error.context(format!("adding device {}", info.dev_id)),
    })?;
    let id = added.dev_id;
    let opened = client.set_params(id, params).context("setting its parameters").and_then(|()| client.open(id));
    if opened.is_err() {
        // An incomplete device is of no use; the error of the failed step is returned.
        let _ = client.delete_async(id);
    }
    Ok((id, opened?))
}

/// The owner of a number that was refused.
fn whose(client: &BrokerClient, id: u32) -> String {
    if client.info(id).is_ok() {
        return format!("there is a device {id} already: choose another number, or delete it");
    }
    format!("the number {id} is not free on this machine (another broker has it, or /dev/ublkb{id} is not ours): choose another one")
}
