//! The part of a device that START_DEV, STOP_DEV, recovery and the char device change: under one
//! lock.

use crate::params::DeviceParams;
use uringlet_abi::ublk::state;

/// What a device becomes once no request is in flight any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teardown {
    Stop,
    Quiesce,
    FailIo,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct DeviceState {
    /// `UBLK_S_DEV_*`.
    pub(crate) dev_state: u16,
    /// The server's, as START_DEV or END_USER_RECOVERY passed it.
    pub(crate) pid: i32,
    pub(crate) params: DeviceParams,
    /// Front ends offer the device.
    pub(crate) is_started: bool,
    /// The char device is open.
    pub(crate) is_open: bool,
    pub(crate) is_deleted: bool,
    /// A whole queue was fetched since ADD_DEV or START_USER_RECOVERY.
    pub(crate) had_server: bool,
    /// Waits for the requests in flight.
    pub(super) teardown: Option<Teardown>,
    /// STOP_DEV has begun: front ends flush, requests still go to the server. Only a teardown can
    /// follow.
    pub(super) is_stopping: bool,
    /// The char device was closed during a teardown, which finishes the close.
    pub(super) is_close_pending: bool,
    /// `FrontEnd::start` is being called. The same thread then calls `stop`, if a teardown has
    /// finished meanwhile.
    pub(super) is_notifying_start: bool,
    /// `FrontEnd::stop` is being called, or will be.
    pub(super) is_notifying_stop: bool,
}

impl DeviceState {
    /// That of a new device.
    pub(super) const fn new() -> Self {
        Self {
            dev_state: state::DEAD,
            pid: -1,
            params: DeviceParams::empty(),
            is_started: false,
            is_open: false,
            is_deleted: false,
            had_server: false,
            teardown: None,
            is_stopping: false,
            is_close_pending: false,
            is_notifying_start: false,
            is_notifying_stop: false,
        }
    }
}
