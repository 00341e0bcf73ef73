//! The messages between a server's process and the broker: see WIRE.md. Bytes to values and back,
//! without I/O.

use crate::params;
use alloc::vec::Vec;
use uringlet_abi::ublk::{CtrlCmd, DevInfo, IoCmd, io};

/// First bytes of each connection, in both directions.
pub const MAGIC: u64 = u64::from_le_bytes(*b"uringUBL");
/// Version of the protocol. The broker refuses others.
pub const VERSION: u16 = 3;
/// The broker's socket in its directory.
pub const SOCKET: &str = "ublkd.sock";
/// A subdirectory of the broker's that stands for `/sys/class/ublk-char`, which a real `ublk_drv`
/// provides: one link per device, to some char device.
pub const LIST: &str = "ublk-char";
/// A file in the broker's directory that is there while the last broker was one that is started on
/// demand. Others are started again by whoever started them.
pub const ON_DEMAND_MARK: &str = "ublkd.on-demand";
/// How long that may take, before servers start a broker, ns.
pub const SUPERVISOR_TIMEOUT_NS: u64 = 10_000_000_000;
/// Longest message: a control command with the longest payload that its 16-bit length allows.
pub const MESSAGE_MAX: usize = 64 * 1024 + 64;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Control commands, one after the other.
    Control,
    /// The char device of this number, open as long as the connection. Its I/O goes over shared
    /// rings ([`crate::io_channel`]).
    Open(u32),
    /// The numbers of all devices.
    List,
    /// The path of this device's block device.
    BlockNode(u32),
    /// As `Open`, of a device that another broker has had: its server brings its file along.
    Adopt(u32),
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// The client's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// See [`VERSION`].
    pub version: u16,
    /// What the connection is for.
    pub purpose: Purpose,
}

impl Hello {
    /// Encoded length, bytes.
    pub const SIZE: usize = 16;

    /// Encodes it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let (purpose, device) = match self.purpose {
            Purpose::Control => (1_u16, 0),
            Purpose::Open(device) => (2, device),
            Purpose::List => (3, 0),
            Purpose::BlockNode(device) => (4, device),
            Purpose::Adopt(device) => (5, device),
        };
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10..12].copy_from_slice(&purpose.to_le_bytes());
        bytes[12..].copy_from_slice(&device.to_le_bytes());
        bytes
    }

    /// Decodes it. `None`: not the first message of this protocol.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::SIZE || u64_at(bytes, 0)? != MAGIC {
            return None;
        }
        let purpose = match u16_at(bytes, 10)? {
            1 => Purpose::Control,
            2 => Purpose::Open(u32_at(bytes, 12)?),
            3 => Purpose::List,
            4 => Purpose::BlockNode(u32_at(bytes, 12)?),
            5 => Purpose::Adopt(u32_at(bytes, 12)?),
            _ => return None,
        };
        Some(Self { version: u16_at(bytes, 8)?, purpose })
    }
}

/// The broker's first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Welcome {
    /// The broker's version.
    pub version: u16,
    /// 0, or -errno: the connection ends.
    pub res: i32,
    /// For an open device: number of queues.
    pub queues: u16,
    /// Tags per queue.
    pub depth: u16,
    /// `UBLK_F_*`.
    pub flags: u64,
}

impl Welcome {
    /// Encoded length, bytes.
    pub const SIZE: usize = 32;

    /// Encodes it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.res.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.queues.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.depth.to_le_bytes());
        bytes[24..].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }

    /// Decodes it. `None`: not a broker of this protocol.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::SIZE || u64_at(bytes, 0)? != MAGIC {
            return None;
        }
        let res = u32_at(bytes, 12)?.cast_signed();
        let (queues, depth) = (u16_at(bytes, 16)?, u16_at(bytes, 18)?);
        Some(Self { version: u16_at(bytes, 8)?, res, queues, depth, flags: u64_at(bytes, 24)? })
    }
}

/// What a broker has to know of a live device, in the device's shared file: with it the server can
/// bring the device to the next broker. All zero while the device is not live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
    /// As GET_DEV_INFO returns it.
    pub info: DevInfo,
    /// `struct ublk_params`, as much as the driver keeps.
    pub params: [u8; params::SIZE],
}

impl DeviceRecord {
    /// Where it lies: in the last page before the data.
    pub const OFFSET: u64 = io::BUF_OFFSET - 4096;
    /// Encoded length, bytes.
    pub const SIZE: usize = 8 + DevInfo::SIZE + params::SIZE;

    /// Encodes it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..8 + DevInfo::SIZE].copy_from_slice(&self.info.to_bytes());
        bytes[8 + DevInfo::SIZE..].copy_from_slice(&self.params);
        bytes
    }

    /// Decodes it. `None`: there is none.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let is_whole = bytes.len() == Self::SIZE && u64_at(bytes, 0)? == MAGIC;
        let record = Self { info: DevInfo::from_bytes(&array(bytes, 8)?), params: array(bytes, 8 + DevInfo::SIZE)? };
        is_whole.then_some(record)
    }
}

/// A control command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlCall<'a> {
    /// As in the SQE.
    pub cmd_op: u32,
    /// As in the SQE; of `addr` only whether it is 0.
    pub header: CtrlCmd,
    /// The memory at `addr`: `header.len` bytes, or none if they cannot be read.
    pub payload: &'a [u8],
}

impl<'a> ControlCall<'a> {
    const HEAD: usize = 4 + 4 + CtrlCmd::SIZE;

    /// Encodes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEAD + self.payload.len());
        bytes.extend(self.cmd_op.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.header.to_bytes());
        bytes.extend(self.payload);
        bytes
    }

    /// Decodes it. `None`: malformed.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = CtrlCmd::from_bytes(&array(bytes, 8)?);
        let payload = bytes.get(Self::HEAD..)?;
        let fits = payload.is_empty() || payload.len() == header.len as usize;
        fits.then_some(Self { cmd_op: u32_at(bytes, 0)?, header, payload })
    }
}

/// The reply to a control command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlReply<'a> {
    /// The CQE's result.
    pub res: i32,
    /// Offset of `bytes` in the payload.
    pub at: u16,
    /// Bytes to write there.
    pub bytes: &'a [u8],
}

impl<'a> ControlReply<'a> {
    /// Encodes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.bytes.len());
        bytes.extend(self.res.to_le_bytes());
        bytes.extend(u32::from(self.at).to_le_bytes());
        bytes.extend(self.bytes);
        bytes
    }

    /// Decodes it. `None`: malformed, or more than `room` bytes of payload.
    #[must_use]
    pub fn parse(bytes: &'a [u8], room: u16) -> Option<Self> {
        let at = u16::try_from(u32_at(bytes, 4)?).ok()?;
        let written = bytes.get(8..)?;
        let fits = written.is_empty() || usize::from(at) + written.len() <= usize::from(room);
        fits.then_some(Self { res: u32_at(bytes, 0)?.cast_signed(), at, bytes: written })
    }
}

/// One I/O command, or the cancellation of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// `None`: the ring of the tag's command ends.
    pub cmd_op: Option<u32>,
    /// The thread that submits it.
    pub task: u64,
    /// As in the SQE.
    pub cmd: IoCmd,
}

/// A completed I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Queue.
    pub queue: u16,
    /// Tag.
    pub tag: u16,
    /// The CQE's result.
    pub res: i32,
    /// The request's data begins this many bytes into the slot.
    pub done: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        for purpose in [Purpose::Control, Purpose::Open(7), Purpose::List, Purpose::BlockNode(9), Purpose::Adopt(3)] {
            let hello = Hello { version: 3, purpose };
            assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
        }
        let record = DeviceRecord { info: DevInfo { dev_id: 7, flags: 1 << 40, ..DevInfo::default() }, params: [9; params::SIZE] };
        assert_eq!(DeviceRecord::parse(&record.to_bytes()), Some(record));
        assert_eq!(DeviceRecord::parse(&[0; DeviceRecord::SIZE]), None);
        let welcome = Welcome { version: 1, res: -16, queues: 2, depth: 128, flags: 1 << 40 };
        assert_eq!(Welcome::parse(&welcome.to_bytes()), Some(welcome));
        let header = CtrlCmd { dev_id: 3, len: 4, addr: 1, data: 9, ..CtrlCmd::default() };
        let call = ControlCall { cmd_op: 77, header, payload: b"four" };
        assert_eq!(ControlCall::parse(&call.to_bytes()), Some(call));
        let answer = ControlReply { res: -22, at: 2, bytes: b"xy" };
        assert_eq!(ControlReply::parse(&answer.to_bytes(), 4), Some(answer));
    }

    #[test]
    fn messages_of_wrong_length_are_rejected() {
        let hello = Hello { version: 1, purpose: Purpose::List }.to_bytes();
        assert_eq!(Hello::parse(&hello[..15]), None);
        let header = CtrlCmd { len: 4, ..CtrlCmd::default() };
        let call = ControlCall { cmd_op: 1, header, payload: b"four" }.to_bytes();
        assert_eq!(ControlCall::parse(&call[..call.len() - 1]), None);
        assert_eq!(ControlCall::parse(&call[..ControlCall::HEAD]).map(|call| call.payload.len()), Some(0));
        let answer = ControlReply { res: 0, at: 2, bytes: b"xy" }.to_bytes();
        assert_eq!(ControlReply::parse(&answer, 3), None);
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..20_000_usize {
            let bytes: Vec<u8> = (0..round % 200)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    // Small numbers come often: almost valid messages find more bugs.
                    if seed & 3 == 0 { seed as u8 } else { (seed >> 8) as u8 & 3 }
                })
                .collect();
            let _ = (Hello::parse(&bytes), Welcome::parse(&bytes));
            if let Some(call) = ControlCall::parse(&bytes) {
                assert!(call.payload.is_empty() || call.payload.len() == call.header.len as usize);
            }
            if let Some(answer) = ControlReply::parse(&bytes, 64) {
                assert!(answer.bytes.is_empty() || usize::from(answer.at) + answer.bytes.len() <= 64);
            }
        }
    }
}
