//! I/O commands and completions as messages of shared rings. See WIRE.md.

use crate::wire::{Completion, Submission};
use uringlet_abi::ublk::{IoCmd, IoDesc};
pub use uringlet_sys::shm_channel::{ChannelDirection, CorruptPeer, Full, Receiver, Sender, ShmChannel, ShmMessage, WaitDecision};

/// Capacity of each ring of a device: every tag may have one command that ends and one on its way.
#[must_use]
pub fn capacity(queues: u16, depth: u16) -> u32 {
    (2 * u32::from(queues) * u32::from(depth)).next_power_of_two()
}

/// A completion, with the descriptor of its tag at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoEvent {
    /// The completed command.
    pub completion: Completion,
    /// The number that came with the command.
    pub cookie: u32,
    /// The request, if the completion announces one.
    pub iod: IoDesc,
}

impl Submission {
    /// Encodes it as a message. Its completion returns `cookie`.
    #[must_use]
    pub fn to_message(&self, cookie: u32) -> ShmMessage {
        let (kind, cmd_op) = self.cmd_op.map_or((1, 0), |cmd_op| (0, cmd_op));
        let IoCmd { q_id, tag, result, addr } = self.cmd;
        let cmd = u64::from(q_id) | u64::from(tag) << 16 | u64::from(result.cast_unsigned()) << 32;
        [kind | u64::from(cmd_op) << 32, self.task, cmd, addr, cookie.into()]
    }

    /// Decodes a message: the submission and its cookie. `None`: malformed.
    #[must_use]
    pub fn from_message(&[head, task, cmd, addr, cookie]: &ShmMessage) -> Option<(Self, u32)> {
        let cmd_op = match head as u32 {
            0 => Some((head >> 32) as u32),
            1 => None,
            _ => return None,
        };
        let cmd = IoCmd { q_id: cmd as u16, tag: (cmd >> 16) as u16, result: ((cmd >> 32) as u32).cast_signed(), addr };
        Some((Self { cmd_op, task, cmd }, u32::try_from(cookie).ok()?))
    }
}

impl IoEvent {
    /// Encodes it as a message.
    #[must_use]
    pub fn to_message(&self) -> ShmMessage {
        let Self { completion: Completion { queue, tag, res, done }, cookie, iod } = self;
        let head = u64::from(*queue) | u64::from(*tag) << 16 | u64::from(res.cast_unsigned()) << 32;
        [
            head,
            u64::from(*done) | u64::from(*cookie) << 32,
            u64::from(iod.op_flags) | u64::from(iod.nr_sectors) << 32,
            iod.start_sector,
            iod.addr,
        ]
    }

    /// Decodes a message.
    #[must_use]
    pub fn from_message(&[head, done, what, start_sector, addr]: &ShmMessage) -> Self {
        let (queue, tag, res) = (head as u16, (head >> 16) as u16, ((head >> 32) as u32).cast_signed());
        let iod = IoDesc { op_flags: what as u32, nr_sectors: (what >> 32) as u32, start_sector, addr };
        Self { completion: Completion { queue, tag, res, done: done as u32 }, cookie: (done >> 32) as u32, iod }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_through_the_rings() {
        let cmd = IoCmd { q_id: 1, tag: 65_535, result: -5, addr: u64::MAX };
        for cmd_op in [Some(0xc010_7522), Some(0), None] {
            let submission = Submission { cmd_op, task: 1 << 63, cmd };
            assert_eq!(Submission::from_message(&submission.to_message(u32::MAX)), Some((submission, u32::MAX)));
        }
        assert_eq!(Submission::from_message(&[2, 0, 0, 0, 0]), None);
        assert_eq!(Submission::from_message(&[0, 0, 0, 0, 1 << 32]), None);
        let iod = IoDesc { op_flags: 1 | 13 << 8, nr_sectors: 8, start_sector: 1 << 50, addr: 77 };
        let arrival = IoEvent { completion: Completion { queue: 7, tag: 4095, res: -19, done: 1 << 20 }, cookie: 77, iod };
        assert_eq!(IoEvent::from_message(&arrival.to_message()), arrival);
        assert_eq!(capacity(1, 64), 128);
        assert_eq!(capacity(3, 1), 8);
    }
}
