//! What a program has registered for polling network devices. Nothing is polled: it is kept to be
//! told.

use alloc::vec::Vec;
use uringlet_abi::register::{NAPI_TRACKING_INACTIVE, NapiReg};

/// See the module.
#[derive(Debug)]
pub(crate) struct Napi {
    /// How long to poll, microseconds.
    pub(crate) busy_poll_to: u32,
    pub(crate) prefer_busy_poll: bool,
    /// `IO_URING_NAPI_TRACKING_*`.
    pub(crate) tracking: u32,
    /// With `TRACKING_STATIC`: the devices.
    pub(crate) ids: Vec<u32>,
}

impl Default for Napi {
    fn default() -> Self {
        Self { busy_poll_to: 0, prefer_busy_poll: false, tracking: NAPI_TRACKING_INACTIVE, ids: Vec::new() }
    }
}

impl Napi {
    /// As it is told to the program, but for the tracking.
    pub(crate) fn told(&self) -> NapiReg {
        NapiReg { busy_poll_to: self.busy_poll_to, prefer_busy_poll: u8::from(self.prefer_busy_poll), ..NapiReg::default() }
    }
}
