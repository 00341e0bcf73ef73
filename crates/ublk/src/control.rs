//! The table of devices, and the control commands: permissions, and the checks of ublk_drv in its
//! order.

use crate::device::{DeviceOwner, UblkDevice};
use crate::frontend::FrontEnd;
use crate::params::{self, DeviceParams};
use crate::platform::{Caller, Payload, Platform};
use crate::wire::DeviceRecord;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire};
use uringlet_abi::ublk::{self, CtrlCmd, DevInfo, ctrl, feature, io, param};
use uringlet_sys::Errno;
use uringlet_sys::lock::{Mutex, futex_wait, futex_wake};
use uringlet_sys::process::monotonic_ns;
use uringlet_sys::sync::{AtomicBool, AtomicU32};

/// The supported `UBLK_F_*`: the reply to GET_FEATURES.
pub const FEATURES: u64 = feature::URING_CMD_COMP_IN_TASK
    | feature::NEED_GET_DATA
    | feature::USER_RECOVERY
    | feature::USER_RECOVERY_REISSUE
    | feature::UNPRIVILEGED_DEV
    | feature::CMD_IOCTL_ENCODE
    | feature::USER_COPY
    | feature::USER_RECOVERY_FAIL_IO
    | feature::UPDATE_SIZE
    | feature::QUIESCE
    | feature::PER_IO_DAEMON;

const RECOVERY: u64 = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE | feature::USER_RECOVERY_FAIL_IO;
/// Limit of device numbers: the number of the kernel's minors.
pub const MAX_DEVICES: u32 = 1 << 20;
/// Limit of unprivileged devices.
const MAX_UNPRIVILEGED: usize = 64;
const PATH_MAX: u16 = 4096;
const PAGE: u32 = 4096;
/// The major numbers in GET_PARAMS, from the experimental range. No node has them.
const CHAR_MAJOR: u32 = 240;
const DISK_MAJOR: u32 = 241;

/// The driver: a table of devices.
#[derive(Debug)]
pub struct Driver<P: Platform> {
    shared: Arc<DriverShared<P>>,
    /// Held by ADD_DEV from the choice of a number until the table has it.
    adding: Mutex<()>,
    /// The devices that [`lock_for_fork`](Self::lock_for_fork) has locked.
    locked_for_fork: Mutex<Vec<Arc<UblkDevice<P>>>>,
}

#[derive(Debug)]
struct DriverShared<P: Platform> {
    platform: P,
    front_ends: Vec<Arc<dyn FrontEnd>>,
    table: Mutex<BTreeMap<u32, Arc<UblkDevice<P>>>>,
    /// Counts removed devices: the futex word of DEL_DEV.
    event_seq: AtomicU32,
}

impl<P: Platform> DeviceOwner<P> for DriverShared<P> {
    fn front_ends(&self) -> &[Arc<dyn FrontEnd>] {
        &self.front_ends
    }

    fn remove(&self, id: u32) {
        // Before the table forgets it: the next ADD_DEV of this number must find both free.
        self.release(id);
        let removed = self.table.lock().remove(&id);
        drop(removed);
        self.notify();
    }
}

impl<P: Platform> DriverShared<P> {
    fn notify(&self) {
        self.event_seq.fetch_add(1, AcqRel);
        futex_wake(&self.event_seq, u32::MAX);
    }

    /// Reserves a number at every front end.
    fn reserve(&self, id: u32) -> Result<(), Errno> {
        for (at, front_end) in self.front_ends.iter().enumerate() {
            if let Err(errno) = front_end.reserve(id) {
                self.front_ends[..at].iter().for_each(|front_end| front_end.release(id));
                return Err(errno);
            }
        }
        Ok(())
    }

    fn release(&self, id: u32) {
        self.front_ends.iter().for_each(|front_end| front_end.release(id));
    }
}

impl<P: Platform> Driver<P> {
    /// A driver without devices. Its devices will be offered by `front_ends`.
    #[must_use]
    pub fn new(platform: P, front_ends: Vec<Arc<dyn FrontEnd>>) -> Self {
        let shared = DriverShared { platform, front_ends, table: Mutex::new(BTreeMap::new()), event_seq: AtomicU32::new(0) };
        Self { shared: Arc::new(shared), adding: Mutex::new(()), locked_for_fork: Mutex::new(Vec::new()) }
    }

    /// The device of a number.
    #[must_use]
    pub fn device(&self, id: u32) -> Option<Arc<UblkDevice<P>>> {
        self.shared.table.lock().get(&id).cloned()
    }

    /// All numbers in use.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.shared.table.lock().keys().copied().collect()
    }

    /// Runs a control command of `/dev/ublk-control` to its end: START_DEV, STOP_DEV, DEL_DEV,
    /// QUIESCE_DEV and END_USER_RECOVERY may wait. `payload` is the memory at `header.addr`.
    ///
    /// # Errors
    /// Those of ublk_drv.
    pub fn control(&self, caller: &Caller, cmd_op: u32, header: CtrlCmd, payload: &mut dyn Payload) -> Result<(), Errno> {
        self.control_cancellable(&AtomicBool::new(false), caller, cmd_op, header, payload)
    }

    /// As [`control`](Self::control), but a wait ends once `cancelled` is set and
    /// [`recheck_waiters`](Self::recheck_waiters) is called after that: the client has
    /// disconnected.
    ///
    /// # Errors
    /// Those of ublk_drv; `EINTR` for a cancelled wait. A stop or deletion that has begun goes on
    /// by itself.
    pub fn control_cancellable(
        &self,
        cancelled: &AtomicBool,
        caller: &Caller,
        cmd_op: u32,
        header: CtrlCmd,
        payload: &mut dyn Payload,
    ) -> Result<(), Errno> {
        let nr = ublk::ioctl_nr(cmd_op).ok_or(Errno::EOPNOTSUPP)?;
        let mut cmd = ControlCmd { caller, nr, header, payload, skip: 0 };
        if cmd_op == ublk::U_CMD_GET_FEATURES {
            return cmd.get_features();
        }
        if nr == ctrl::ADD_DEV {
            return self.add(&mut cmd);
        }
        let device = self.device(header.dev_id).ok_or(Errno::ENODEV)?;
        self.check_permission(&device, &mut cmd)?;
        match nr {
            ctrl::START_DEV => cmd.start(&device, cancelled),
            ctrl::STOP_DEV => device.stop(cancelled),
            ctrl::GET_DEV_INFO | ctrl::GET_DEV_INFO2 => cmd.get_info(&device),
            ctrl::DEL_DEV => self.delete(&device, Some(cancelled)),
            ctrl::DEL_DEV_ASYNC => self.delete(&device, None),
            ctrl::GET_QUEUE_AFFINITY => cmd.get_affinity(&device, self.shared.platform.cpus()),
            ctrl::GET_PARAMS => cmd.get_params(&device),
            ctrl::SET_PARAMS => cmd.set_params(&device),
            ctrl::START_USER_RECOVERY => device.start_recovery(),
            ctrl::END_USER_RECOVERY => device.end_recovery(header.data as i32, cancelled),
            ctrl::UPDATE_SIZE if device.has(feature::UPDATE_SIZE) => device.resize(header.data),
            ctrl::QUIESCE_DEV if device.has(feature::QUIESCE) => {
                let ms = if header.data == 0 { u64::from(u32::MAX) } else { header.data };
                device.quiesce(monotonic_ns().saturating_add(ms.saturating_mul(1_000_000)), cancelled)
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Makes every waiting command check its `cancelled` flag.
    pub fn recheck_waiters(&self) {
        let devices: Vec<_> = self.shared.table.lock().values().cloned().collect();
        devices.iter().for_each(|device| device.notify());
        self.shared.notify();
    }

    /// Takes every lock of the driver until [`unlock_after_fork`](Self::unlock_after_fork): for
    /// fork(2).
    pub fn lock_for_fork(&self) {
        let devices: Vec<_> = self.shared.table.lock().values().cloned().collect();
        self.adding.lock_for_fork();
        self.shared.table.lock_for_fork();
        devices.iter().for_each(|device| device.lock_for_fork());
        self.locked_for_fork.lock().clone_from(&devices);
    }

    /// Undoes [`lock_for_fork`](Self::lock_for_fork), in the parent and in the child.
    pub fn unlock_after_fork(&self) {
        let devices = core::mem::take(&mut *self.locked_for_fork.lock());
        devices.iter().for_each(|device| device.unlock_after_fork());
        self.shared.table.unlock_after_fork();
        self.adding.unlock_after_fork();
    }

    fn add(&self, cmd: &mut ControlCmd<'_>) -> Result<(), Errno> {
        let mut info = cmd.new_device()?;
        info.nr_hw_queues = info.nr_hw_queues.min(self.shared.platform.cpus().clamp(1, u32::from(u16::MAX)) as u16);
        let _adding = self.adding.lock();
        info.dev_id = self.reserve_number(info.dev_id)?;
        let added = self.add_reserved(cmd, info);
        if added.is_err() {
            self.shared.release(info.dev_id);
        }
        added
    }

    /// Adds a device as another driver has had it. Its server opens it, fetches its tags and starts
    /// it.
    ///
    /// # Errors
    /// `EINVAL` not the record of a valid device; `EEXIST` its number is taken.
    pub fn adopt(&self, record: &DeviceRecord, buffers: P::Buffers) -> Result<Arc<UblkDevice<P>>, Errno> {
        let info = DevInfo { state: ublk::state::DEAD, ublksrv_pid: -1, ..record.info };
        let is_size = (1..=io::MAX_DEPTH).contains(&info.queue_depth) && (1..=io::MAX_QUEUES).contains(&info.nr_hw_queues);
        if !is_size || info.dev_id >= MAX_DEVICES || info.flags & !FEATURES != 0 {
            return Err(Errno::EINVAL);
        }
        let params = DeviceParams::of_record(&record.params, info.max_io_buf_bytes)?;
        let _adding = self.adding.lock();
        self.reserve_number(info.dev_id)?;
        let device = UblkDevice::new(info, buffers, Arc::clone(&self.shared) as Arc<dyn DeviceOwner<P>>);
        device.state().params = params;
        self.shared.table.lock().insert(info.dev_id, Arc::clone(&device));
        Ok(device)
    }

    /// The number of a new device, reserved at the front ends: this one, or for -1 the lowest that
    /// is free here and there.
    fn reserve_number(&self, id: u32) -> Result<u32, Errno> {
        let is_free = |id: &u32| !self.shared.table.lock().contains_key(id);
        if id == u32::MAX {
            return (0..MAX_DEVICES).filter(is_free).find(|&id| self.shared.reserve(id).is_ok()).ok_or(Errno::ENOSPC);
        }
        if !is_free(&id) {
            return Err(Errno::EEXIST);
        }
        self.shared.reserve(id).map(|()| id)
    }

    fn add_reserved(&self, cmd: &mut ControlCmd<'_>, info: DevInfo) -> Result<(), Errno> {
        let mut table = self.shared.table.lock();
        let is_unprivileged = |device: &Arc<UblkDevice<P>>| device.has(feature::UNPRIVILEGED_DEV);
        if info.flags & feature::UNPRIVILEGED_DEV != 0 && table.values().filter(|d| is_unprivileged(d)).count() >= MAX_UNPRIVILEGED {
            return Err(Errno::EACCES);
        }
        let buffers = self.shared.platform.alloc_buffers(info.nr_hw_queues, info.queue_depth)?;
        cmd.write(0, &info.to_bytes())?;
        let owner = Arc::clone(&self.shared) as Arc<dyn DeviceOwner<P>>;
        table.insert(info.dev_id, UblkDevice::new(info, buffers, owner));
        Ok(())
    }

    /// Waits until the number is free, or `cancelled` is set; `None`: does not wait.
    fn delete(&self, device: &Arc<UblkDevice<P>>, cancelled: Option<&AtomicBool>) -> Result<(), Errno> {
        let id = device.info().dev_id;
        if !device.state().is_deleted {
            let stopped = device.stop(cancelled.unwrap_or(&AtomicBool::new(false)));
            // Even if the wait for the stop was cancelled.
            device.delete();
            stopped?;
        }
        loop {
            let seen = self.shared.event_seq.load(Acquire);
            let is_there = self.device(id).is_some_and(|other| Arc::ptr_eq(&other, device));
            let Some(cancelled) = cancelled.filter(|_| is_there) else { return Ok(()) };
            if cancelled.load(Acquire) {
                return Err(Errno::EINTR);
            }
            if futex_wait(&self.shared.event_seq, seen, u64::MAX) == Err(Errno::EINTR) {
                return Err(Errno::EINTR);
            }
        }
    }

    /// Unprivileged users put the path of the char device in front of the payload, and have the
    /// rights of that file's owner.
    fn check_permission(&self, device: &UblkDevice<P>, cmd: &mut ControlCmd<'_>) -> Result<(), Errno> {
        if !device.has(feature::UNPRIVILEGED_DEV) {
            if !cmd.caller.is_admin {
                return Err(Errno::EPERM);
            }
            if cmd.nr != ctrl::GET_DEV_INFO2 {
                return Ok(());
            }
        }
        let len = cmd.header.dev_path_len;
        if len == 0 || len > PATH_MAX || cmd.header.len < len {
            return Err(Errno::EINVAL);
        }
        let mut path = alloc::vec![0; len as usize];
        cmd.payload.read(0, &mut path)?;
        if cmd.nr == ctrl::DEL_DEV_ASYNC {
            // Not in the kernel's list of commands with a path.
            return Err(Errno::EINVAL);
        }
        let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
        let info = device.info();
        match char_device_id(path) {
            Some(id) if id == info.dev_id => {}
            Some(id) if self.device(id).is_none() => return Err(Errno::ENOENT),
            _ => return Err(Errno::EPERM),
        }
        if !cmd.caller.is_admin && cmd.caller.uid != info.owner_uid {
            return Err(Errno::EACCES);
        }
        cmd.skip = len as usize;
        cmd.header.len -= len;
        Ok(())
    }
}

/// The number N of `/dev/ublkcN`.
#[must_use]
pub fn char_device_id(path: &[u8]) -> Option<u32> {
    parse_id(path.strip_prefix(b"/dev/ublkc")?)
}

/// A decimal number in a path, without leading zeroes.
pub(crate) fn parse_id(digits: &[u8]) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.len() < 10 && (digits.len() == 1 || digits[0] != b'0');
    if !is_number || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |n, digit| n * 10 + u32::from(digit - b'0')))
}

/// One control command.
struct ControlCmd<'a> {
    caller: &'a Caller,
    nr: u8,
    header: CtrlCmd,
    payload: &'a mut dyn Payload,
    /// Length of the path in front of the payload.
    skip: usize,
}

impl ControlCmd<'_> {
    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        self.payload.read(self.skip + at, bytes)
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        self.payload.write(self.skip + at, bytes)
    }

    /// `EINVAL` unless there is an address with at least `len` bytes.
    fn require_payload(&self, len: usize) -> Result<(), Errno> {
        if (self.header.len as usize) < len || self.header.addr == 0 { Err(Errno::EINVAL) } else { Ok(()) }
    }

    fn get_features(&mut self) -> Result<(), Errno> {
        if self.header.len != 8 {
            return Err(Errno::EINVAL);
        }
        self.require_payload(8)?;
        self.write(0, &FEATURES.to_le_bytes())
    }

    /// ADD_DEV: validates the request, and reduces it to what is supported.
    fn new_device(&mut self) -> Result<DevInfo, Errno> {
        self.require_payload(DevInfo::SIZE)?;
        if self.header.queue_id != u16::MAX {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; DevInfo::SIZE];
        self.read(0, &mut bytes)?;
        let mut info = DevInfo::from_bytes(&bytes);
        if !(1..=io::MAX_DEPTH).contains(&info.queue_depth) || !(1..=io::MAX_QUEUES).contains(&info.nr_hw_queues) {
            return Err(Errno::EINVAL);
        }
        info.flags = negotiate_features(info.flags, self.caller.is_admin)?;
        if self.header.dev_id != info.dev_id || (info.dev_id != u32::MAX && info.dev_id >= MAX_DEVICES) {
            return Err(Errno::EINVAL);
        }
        info.owner_uid = self.caller.uid;
        info.owner_gid = self.caller.gid;
        info.max_io_buf_bytes &= !(PAGE - 1);
        info.state = ublk::state::DEAD;
        info.ublksrv_pid = -1;
        Ok(info)
    }

    fn start<P: Platform>(&self, device: &UblkDevice<P>, cancelled: &AtomicBool) -> Result<(), Errno> {
        let pid = self.header.data as i32;
        if pid <= 0 || !device.state().params.has(param::BASIC) {
            return Err(Errno::EINVAL);
        }
        device.start(pid, cancelled)
    }

    fn get_info<P: Platform>(&mut self, device: &UblkDevice<P>) -> Result<(), Errno> {
        self.require_payload(DevInfo::SIZE)?;
        self.write(0, &device.info().to_bytes())
    }

    fn get_affinity<P: Platform>(&mut self, device: &UblkDevice<P>, cpus: u32) -> Result<(), Errno> {
        let len = self.header.len as usize;
        if len * 8 < cpus as usize || !len.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        self.require_payload(0)?;
        let queues = u64::from(device.info().nr_hw_queues);
        let queue = self.header.data;
        if queue >= queues {
            return Err(Errno::EINVAL);
        }
        let mut mask = alloc::vec![0_u8; len];
        for cpu in (0..cpus as usize).filter(|&cpu| cpu as u64 * queues / u64::from(cpus) == queue) {
            mask[cpu / 8] |= 1 << (cpu % 8);
        }
        self.write(0, &mask)
    }

    /// Reads length and types of a parameter structure. Returns how many of its bytes count.
    fn params_len(&mut self) -> Result<(usize, u32), Errno> {
        self.require_payload(params::HEADER + 1)?;
        let mut header = [0; params::HEADER];
        self.read(0, &mut header)?;
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (len, types) = (word(0), word(4));
        if len == 0 || len > u32::from(self.header.len) {
            return Err(Errno::EINVAL);
        }
        Ok(((len as usize).min(params::SIZE), types))
    }

    fn get_params<P: Platform>(&mut self, device: &UblkDevice<P>) -> Result<(), Errno> {
        let (len, _) = self.params_len()?;
        let bytes = {
            let mut state = device.state();
            let id = device.info_id();
            let disk = if state.is_started { (DISK_MAJOR, id) } else { (0, 0) };
            state.params.set_devices((CHAR_MAJOR, id), disk);
            *state.params.bytes()
        };
        self.write(0, &bytes[..len])
    }

    fn set_params<P: Platform>(&mut self, device: &UblkDevice<P>) -> Result<(), Errno> {
        let (len, types) = self.params_len()?;
        if types == 0 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; params::SIZE];
        let copied = self.read(0, &mut bytes[..len]);
        let mut state = device.state();
        if state.is_started {
            return Err(Errno::EACCES);
        }
        copied?;
        let max_io_bytes = device.max_io_bytes();
        let params: &mut DeviceParams = &mut state.params;
        params.set(&bytes[..len], max_io_bytes)
    }
}

/// The features that a new device gets.
fn negotiate_features(mut flags: u64, is_admin: bool) -> Result<u64, Errno> {
    if is_admin {
        flags &= !feature::UNPRIVILEGED_DEV;
    } else if flags & feature::UNPRIVILEGED_DEV == 0 {
        return Err(Errno::EPERM);
    }
    let recovery = flags & RECOVERY;
    let is_known_recovery = recovery == 0 || (recovery & feature::USER_RECOVERY != 0 && recovery != RECOVERY);
    if !is_known_recovery || (flags & feature::QUIESCE != 0 && recovery == 0) {
        return Err(Errno::EINVAL);
    }
    if flags & feature::UNPRIVILEGED_DEV != 0 {
        flags &= !(feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE);
        if flags & feature::USER_COPY != 0 {
            return Err(Errno::EINVAL);
        }
    }
    // Zoned devices are not supported.
    if flags & feature::ZONED != 0 {
        return Err(Errno::EINVAL);
    }
    flags = flags & FEATURES | feature::CMD_IOCTL_ENCODE | feature::URING_CMD_COMP_IN_TASK | feature::PER_IO_DAEMON;
    if flags & feature::USER_COPY != 0 {
        flags &= !feature::NEED_GET_DATA;
    }
    Ok(flags)
}
