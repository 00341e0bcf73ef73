//! A server whose broker was killed adds its device at the next broker. Clients connect again and
//! repeat the requests that were not answered.

use super::daemon;
use anyhow::{Context, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uringlet_abi::ublk::DevInfo;
use uringlet_ublk_server::device;
use uringlet_ublkd::client::{BrokerClient, BrokerGone, CharDevice, ServerParams};

/// Brokers that were lost within this time of their start count as one that cannot run.
const SHORT_LIFE: Duration = Duration::from_secs(5);
const SHORT_LIVES_MAX: u32 = 5;

/// What a broker has to know of a device.
pub(super) struct AddedDevice<'a> {
    client: &'a BrokerClient,
    info: DevInfo,
    params: ServerParams,
    joined: Instant,
    short_lives: u32,
}

impl<'a> AddedDevice<'a> {
    /// That of a device with parameters.
    pub(super) fn new(client: &'a BrokerClient, id: u32) -> anyhow::Result<Self> {
        let (info, params) = (client.info(id)?, client.params(id)?);
        Ok(Self { client, info, params, joined: Instant::now(), short_lives: 0 })
    }

    /// Adds the device at the next broker. `None`: `stop` was set meanwhile.
    ///
    /// # Errors
    /// The broker that has ended the connection still runs; there is no next one; the number is not
    /// free any more.
    pub(super) fn rejoin(&mut self, stop: &AtomicBool) -> anyhow::Result<Option<CharDevice>> {
        let id = self.info.dev_id;
        // A broker that was killed has forgotten the device.
        let is_unwanted = self.client.is_running()? && self.client.info(id).is_ok();
        ensure!(!is_unwanted, "the broker has ended the connection: its log says why");
        self.short_lives = if self.joined.elapsed() < SHORT_LIFE { self.short_lives + 1 } else { 0 };
        ensure!(self.short_lives < SHORT_LIVES_MAX, BrokerGone);
        eprintln!("uringlet ublk: the broker has ended; device {id} waits for the next one");
        if !daemon::wait_for_next(self.client, stop).context("starting the next broker")? {
            return Ok(None);
        }
        let (_, device) = device::create(self.client, &self.info, self.params)?;
        self.joined = Instant::now();
        if stop.load(Ordering::Relaxed) {
            // The signal may have found no broker.
            let _ = self.client.delete_async(id);
            return Ok(None);
        }
        Ok(Some(device))
    }
}
