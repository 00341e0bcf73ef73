//! The broker's client: for the command line, and for servers without an io_uring.

use crate::packets::{PacketReceiver, connected, ring_doorbell, send, wait_doorbell};
use crate::runtime_dir;
use crate::sync::lock;
use anyhow::{Context, bail, ensure};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno as IoErrno;
use rustix::net::{RecvFlags, Shutdown, shutdown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use uringlet_abi::ublk::{CtrlCmd, DevInfo, ParamBasic, ParamDiscard, U_CMD_GET_FEATURES, ctrl, param};
use uringlet_sys::Errno;
use uringlet_ublk::adaptive_spin::AdaptiveSpin;
use uringlet_ublk::io_channel::{self, ChannelDirection, IoEvent, Receiver, Sender, ShmChannel, WaitDecision};
use uringlet_ublk::wire::{Completion, ControlCall, ControlReply, Hello, Purpose, Submission, VERSION, Welcome};

/// Offsets of the two structures in `struct ublk_params`, and its length with both.
const BASIC_AT: usize = 8;
const DISCARD_AT: usize = BASIC_AT + ParamBasic::SIZE;
const PARAMS_LEN: usize = DISCARD_AT + ParamDiscard::SIZE;

/// A client of the broker whose runtime directory is `dir`.
#[derive(Clone, Debug)]
pub struct BrokerClient {
    dir: PathBuf,
}

/// The device parameters that this project's servers set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerParams {
    /// `struct ublk_param_basic`
    pub basic: ParamBasic,
    /// `struct ublk_param_discard`
    pub discard: ParamDiscard,
}

impl ServerParams {
    /// `struct ublk_params`.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let types = param::BASIC | param::DISCARD;
        let head = [(PARAMS_LEN as u32).to_le_bytes(), types.to_le_bytes()].concat();
        [&head[..], &self.basic.to_bytes(), &self.discard.to_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let basic = ParamBasic::from_bytes(bytes.get(BASIC_AT..DISCARD_AT)?.try_into().ok()?);
        let discard = ParamDiscard::from_bytes(bytes.get(DISCARD_AT..PARAMS_LEN)?.try_into().ok()?);
        Some(Self { basic, discard })
    }
}

/// The driver refused a control command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandRefused(pub Errno);

impl std::fmt::Display for CommandRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0.into_raw()).fmt(f)
    }
}

impl std::error::Error for CommandRefused {}

/// The connection of an open char device has ended without a completion that says why: the broker
/// was killed, or does not trust the server any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerGone;

impl std::fmt::Display for BrokerGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the broker has ended, and the device with it: add it again")
    }
}

impl std::error::Error for BrokerGone {}

impl BrokerClient {
    /// A client of the broker in `dir`.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The broker's runtime directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether a broker answers.
    ///
    /// # Errors
    /// The directory cannot be looked into, so there may be one.
    pub fn is_running(&self) -> anyhow::Result<bool> {
        let path = runtime_dir::socket(&self.dir);
        match connected(&path) {
            Ok(_) => Ok(true),
            Err(IoErrno::NOENT | IoErrno::CONNREFUSED) => Ok(false),
            Err(errno) => Err(errno).with_context(|| format!("connecting to {}", path.display())),
        }
    }

    fn connect(&self, purpose: Purpose) -> anyhow::Result<(OwnedFd, Welcome, Vec<OwnedFd>)> {
        let path = runtime_dir::socket(&self.dir);
        let socket = connected(&path).with_context(|| format!("no broker answers on {}", path.display()))?;
        send(&socket, &Hello { version: VERSION, purpose }.to_bytes())?;
        let mut receiver = PacketReceiver::new();
        let (bytes, fds) = receiver.receive(&socket, RecvFlags::empty())?;
        let welcome = Welcome::parse(bytes).with_context(|| format!("what listens on {} is not a broker", path.display()))?;
        ensure!(
            welcome.version == VERSION,
            "the broker speaks version {}, this program {VERSION}: end the broker and retry",
            welcome.version
        );
        if welcome.res < 0 {
            return Err(CommandRefused(Errno::new(-welcome.res)).into());
        }
        Ok((socket, welcome, fds))
    }

    /// The numbers of all devices.
    ///
    /// # Errors
    /// No broker answers.
    pub fn list(&self) -> anyhow::Result<Vec<u32>> {
        let (socket, ..) = self.connect(Purpose::List)?;
        let mut receiver = PacketReceiver::new();
        let (bytes, _) = receiver.receive(&socket, RecvFlags::empty())?;
        Ok(bytes.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]])).collect())
    }

    /// The path of the block device that the broker has made for a device.
    ///
    /// # Errors
    /// [`CommandRefused`]: `ENODEV`; no broker answers.
    pub fn block_node(&self, id: u32) -> anyhow::Result<Option<String>> {
        let (socket, ..) = self.connect(Purpose::BlockNode(id))?;
        let mut receiver = PacketReceiver::new();
        let (bytes, _) = receiver.receive(&socket, RecvFlags::empty())?;
        Ok((!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned()))
    }

    /// Runs one control command. Returns the payload with what the driver wrote into it.
    ///
    /// # Errors
    /// [`CommandRefused`]; no broker answers.
    pub fn control(&self, cmd_op: u32, header: CtrlCmd, payload: &[u8]) -> anyhow::Result<Vec<u8>> {
        let (socket, ..) = self.connect(Purpose::Control)?;
        let len = u16::try_from(payload.len()).context("the payload is too long")?;
        let header = CtrlCmd { len, addr: u64::from(len > 0), ..header };
        send(&socket, &ControlCall { cmd_op, header, payload }.to_bytes())?;
        let mut receiver = PacketReceiver::new();
        let (bytes, _) = receiver.receive(&socket, RecvFlags::empty())?;
        let answer = ControlReply::parse(bytes, len).context("the broker has ended")?;
        if answer.res < 0 {
            return Err(CommandRefused(Errno::new(-answer.res)).into());
        }
        let mut payload = payload.to_vec();
        let at = usize::from(answer.at);
        if let Some(room) = payload.get_mut(at..at + answer.bytes.len()) {
            room.copy_from_slice(answer.bytes);
        }
        Ok(payload)
    }

    fn command(&self, nr: u8, id: u32, data: u64) -> anyhow::Result<()> {
        let header = CtrlCmd { dev_id: id, queue_id: u16::MAX, data, ..CtrlCmd::default() };
        self.control(nr.into(), header, &[]).map(drop)
    }

    /// GET_FEATURES.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn features(&self) -> anyhow::Result<u64> {
        let bytes = self.control(U_CMD_GET_FEATURES, CtrlCmd::default(), &[0; 8])?;
        Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// ADD_DEV. Returns the device's info as the driver set it.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn add(&self, info: &DevInfo) -> anyhow::Result<DevInfo> {
        let header = CtrlCmd { dev_id: info.dev_id, queue_id: u16::MAX, ..CtrlCmd::default() };
        let bytes = self.control(ctrl::ADD_DEV.into(), header, &info.to_bytes())?;
        Ok(DevInfo::from_bytes(&bytes.try_into().unwrap_or([0; DevInfo::SIZE])))
    }

    /// GET_DEV_INFO.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn info(&self, id: u32) -> anyhow::Result<DevInfo> {
        let header = CtrlCmd { dev_id: id, queue_id: u16::MAX, ..CtrlCmd::default() };
        let bytes = self.control(ctrl::GET_DEV_INFO.into(), header, &[0; DevInfo::SIZE])?;
        Ok(DevInfo::from_bytes(&bytes.try_into().unwrap_or([0; DevInfo::SIZE])))
    }

    /// SET_PARAMS.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn set_params(&self, id: u32, params: ServerParams) -> anyhow::Result<()> {
        let header = CtrlCmd { dev_id: id, queue_id: u16::MAX, ..CtrlCmd::default() };
        self.control(ctrl::SET_PARAMS.into(), header, &params.to_bytes()).map(drop)
    }

    /// GET_PARAMS.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn params(&self, id: u32) -> anyhow::Result<ServerParams> {
        let header = CtrlCmd { dev_id: id, queue_id: u16::MAX, ..CtrlCmd::default() };
        let bytes = self.control(ctrl::GET_PARAMS.into(), header, &ServerParams::default().to_bytes())?;
        ServerParams::from_bytes(&bytes).context("the parameters are too short")
    }

    /// START_DEV: returns when all tags are fetched and the front ends offer the device.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn start(&self, id: u32) -> anyhow::Result<()> {
        self.command(ctrl::START_DEV, id, std::process::id().into())
    }

    /// STOP_DEV.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn stop(&self, id: u32) -> anyhow::Result<()> {
        self.command(ctrl::STOP_DEV, id, 0)
    }

    /// DEL_DEV: returns when the number is free.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn delete(&self, id: u32) -> anyhow::Result<()> {
        self.command(ctrl::DEL_DEV, id, 0)
    }

    /// DEL_DEV_ASYNC: returns at once.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn delete_async(&self, id: u32) -> anyhow::Result<()> {
        self.command(ctrl::DEL_DEV_ASYNC, id, 0)
    }

    /// START_USER_RECOVERY.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn start_recovery(&self, id: u32) -> anyhow::Result<()> {
        self.command(ctrl::START_USER_RECOVERY, id, 0)
    }

    /// END_USER_RECOVERY: returns when all tags are fetched.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn end_recovery(&self, id: u32) -> anyhow::Result<()> {
        self.command(ctrl::END_USER_RECOVERY, id, std::process::id().into())
    }

    /// Opens the char device.
    ///
    /// # Errors
    /// [`CommandRefused`]: `ENOENT`, `EBUSY`; no broker answers.
    pub fn open(&self, id: u32) -> anyhow::Result<CharDevice> {
        let (socket, welcome, fds) = self.connect(Purpose::Open(id))?;
        let Ok([file, rings]) = <[OwnedFd; 2]>::try_from(fds) else { bail!("the broker sent no files") };
        let capacity = io_channel::capacity(welcome.queues, welcome.depth);
        let shm = ShmChannel::of_file(rings.as_raw_fd(), capacity).map_err(CommandRefused).context("the rings that the broker sent")?;
        let shm = Arc::new(shm);
        let commands = Mutex::new(Sender::new(Arc::clone(&shm), ChannelDirection::ToCreator));
        let events = Mutex::new(Receiver::new(shm, ChannelDirection::FromCreator));
        let (queues, depth) = (welcome.queues, welcome.depth);
        Ok(CharDevice { socket, file, queues, depth, commands, events })
    }
}

/// An open char device; dropping it closes it.
#[derive(Debug)]
pub struct CharDevice {
    socket: OwnedFd,
    /// The file with the descriptors and slots.
    pub file: OwnedFd,
    /// Queues.
    pub queues: u16,
    /// Tags of each.
    pub depth: u16,
    commands: Mutex<Sender>,
    events: Mutex<Receiver>,
}

/// The rings' shared indices or messages are invalid.
const CORRUPT_RINGS: &str = "the broker's rings are broken";

impl CharDevice {
    /// Sends I/O commands.
    ///
    /// # Errors
    /// More commands than tags; the broker is gone, as [`IoEventReceiver::wait_events`] reports
    /// too.
    pub fn submit(&self, submissions: &[Submission]) -> anyhow::Result<()> {
        let must_ring = {
            let mut commands = lock(&self.commands);
            let put = submissions.iter().try_for_each(|submission| commands.put(&submission.to_message(0)));
            let must_ring = commands.publish();
            ensure!(put.is_ok(), "more commands than the device has tags");
            must_ring
        };
        if must_ring {
            ring_doorbell(&self.socket);
        }
        Ok(())
    }

    /// The right to wait for events. One thread at a time has it; others block here.
    pub fn lock_events(&self) -> IoEventReceiver<'_> {
        IoEventReceiver { device: self, ring: lock(&self.events) }
    }

    /// Ends the connection: waits for events return none, now and later.
    pub fn hang_up(&self) {
        // An error means that it has ended already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Waits for completions. None: the broker is gone.
    ///
    /// # Errors
    /// The rings are corrupt.
    pub fn completions(&self) -> anyhow::Result<Vec<Completion>> {
        let mut events = Vec::new();
        self.lock_events().wait_events(usize::MAX, &mut AdaptiveSpin::new(), &mut events)?;
        Ok(events.iter().map(|event| event.completion).collect())
    }
}

/// See [`CharDevice::lock_events`].
#[derive(Debug)]
pub struct IoEventReceiver<'a> {
    device: &'a CharDevice,
    ring: MutexGuard<'a, Receiver>,
}

impl IoEventReceiver<'_> {
    /// Waits for events and puts at most `max` into `events`. None: the broker is gone.
    ///
    /// # Errors
    /// The rings are corrupt.
    pub fn wait_events(&mut self, max: usize, spin: &mut AdaptiveSpin, events: &mut Vec<IoEvent>) -> anyhow::Result<()> {
        events.clear();
        loop {
            while events.len() < max
                && let Some(message) = self.ring.take().ok().context(CORRUPT_RINGS)?
            {
                events.push(IoEvent::from_message(&message));
            }
            if !events.is_empty() {
                return Ok(());
            }
            let sleep = || self.ring.prepare_wait() == WaitDecision::Ready || wait_doorbell(&self.device.socket);
            if spin.wait(|| !self.ring.is_empty(), sleep) == Some(false) {
                return Ok(());
            }
        }
    }
}
