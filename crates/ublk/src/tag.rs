//! One tag: the server's command and the client's request, and which steps are valid next. No
//! locks, no copies.

use crate::frontend::{BlockClient, BlockRequest, IoOp, SECTOR};
use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_abi::ublk::{IoDesc, feature, io};
use uringlet_sys::Errno;

/// Whether the server has fetched every tag of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueSetup {
    Fetching,
    Done,
}

/// The features of a device that matter to its tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TagFeatures {
    /// The driver copies data between slots and the server's buffers.
    pub(crate) copies_data: bool,
    /// UBLK_F_NEED_GET_DATA: WRITE data is copied after a second command.
    pub(crate) need_get_data: bool,
    /// Requests of a lost server are given to the next one.
    pub(crate) reissues: bool,
}

impl TagFeatures {
    pub(crate) fn of(flags: u64) -> Self {
        Self {
            copies_data: flags & feature::USER_COPY == 0,
            need_get_data: flags & feature::NEED_GET_DATA != 0,
            reissues: flags & feature::USER_RECOVERY != 0 && flags & feature::USER_RECOVERY_REISSUE != 0,
        }
    }
}

/// State of the request half. See README.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagState {
    Free,
    Allocated,
    Queued,
    Copying,
    NeedData,
    Dispatched,
    Completing,
}

impl TagState {
    /// Whether the request counts as in flight: the server has it, is about to get it, or has just
    /// committed it.
    pub(crate) fn is_busy(self) -> bool {
        matches!(self, Self::Copying | Self::NeedData | Self::Dispatched | Self::Completing)
    }
}

/// A request and its progress.
#[derive(Debug)]
pub(crate) struct TagIo {
    /// The part that is left: position and length move with short transfers.
    pub(crate) request: BlockRequest,
    /// Bytes left.
    pub(crate) left: u32,
    /// Bytes done.
    pub(crate) done: u32,
    /// A flush follows: FUA on a server without FUA.
    pub(crate) flush_after: bool,
    /// READ data of earlier pieces (USER_COPY: the server uses the slot's beginning for each
    /// piece).
    pub(crate) stash: Vec<u8>,
    pub(crate) client: Arc<dyn BlockClient>,
    pub(crate) cookie: u64,
}

impl TagIo {
    pub(crate) fn new(request: BlockRequest, client: Arc<dyn BlockClient>, cookie: u64) -> Self {
        let left = if request.op.has_data() { request.sectors * SECTOR as u32 } else { 0 };
        Self { request, left, done: 0, flush_after: false, stash: Vec::new(), client, cookie }
    }

    /// The descriptor of the part that is left.
    pub(crate) fn iod(&self, addr: u64) -> IoDesc {
        let BlockRequest { op, flags, sector, sectors, .. } = self.request;
        let nr_sectors = if op.has_data() { self.left / SECTOR as u32 } else { sectors };
        // The block layer gives a flush the sector -1.
        let start_sector = if op == IoOp::Flush { u64::MAX } else { sector };
        IoDesc { op_flags: op as u32 | flags, nr_sectors, start_sector, addr }
    }

    /// Accounts for `bytes` done. Returns whether that was all.
    pub(crate) fn advance(&mut self, bytes: u32) -> bool {
        self.done += bytes;
        self.left -= bytes;
        self.request.sector += u64::from(bytes) / SECTOR;
        self.left == 0
    }

    /// Turns the request into a flush.
    pub(crate) fn become_flush(&mut self) {
        self.flush_after = false;
        self.request = BlockRequest { op: IoOp::Flush, flags: 0, sector: 0, sectors: 0, ..self.request };
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tag<C> {
    /// The command that waits for a request.
    pub(crate) command: Option<C>,
    /// Address of the server's buffer.
    pub(crate) addr: u64,
    /// The task that fetched the tag; `None` before.
    pub(crate) task: Option<u64>,
    pub(crate) state: TagState,
    pub(crate) tag_io: Option<TagIo>,
}

impl<C> Tag<C> {
    pub(crate) fn new() -> Self {
        Self { command: None, addr: 0, task: None, state: TagState::Free, tag_io: None }
    }

    /// Back to the state before the first FETCH_REQ. The request half stays.
    pub(crate) fn forget_server(&mut self) {
        self.command = None;
        self.addr = 0;
        self.task = None;
    }

    fn op(&self) -> Option<IoOp> {
        self.tag_io.as_ref().map(|tag_io| tag_io.request.op)
    }

    /// Whether the server has the request, and has to send a command for it.
    fn is_with_server(&self) -> bool {
        matches!(self.state, TagState::NeedData | TagState::Dispatched) && self.command.is_none()
    }

    /// Checks an I/O command as ublk_drv does.
    ///
    /// # Errors
    /// `EINVAL` another task's tag, a command that does not fit the state, an address missing or
    /// unexpected; `EBUSY` the tag has a command already, or the queue is set up; `EOPNOTSUPP`
    /// unknown encoding.
    pub(crate) fn check(&self, features: TagFeatures, nr: Option<u8>, addr: u64, task: u64, setup: QueueSetup) -> Result<u8, Errno> {
        if self.task.is_some_and(|owner| owner != task) {
            return Err(Errno::EINVAL);
        }
        // A tag in Copying or Completing also has a command.
        if self.command.is_some() {
            return Err(Errno::EBUSY);
        }
        let asks = self.state == TagState::NeedData;
        if asks != (nr == Some(io::NEED_GET_DATA)) {
            return Err(Errno::EINVAL);
        }
        let nr = nr.ok_or(Errno::EOPNOTSUPP)?;
        let has_buffer = match nr {
            io::FETCH_REQ if setup == QueueSetup::Done => return Err(Errno::EBUSY),
            io::FETCH_REQ if self.task.is_some() => return Err(Errno::EINVAL),
            io::FETCH_REQ => !features.need_get_data,
            io::COMMIT_AND_FETCH_REQ if self.is_with_server() => !features.need_get_data || self.op() == Some(IoOp::Read),
            io::NEED_GET_DATA if self.is_with_server() => return Ok(nr),
            _ => return Err(Errno::EINVAL),
        };
        let fits = if features.copies_data { addr != 0 || !has_buffer } else { addr == 0 };
        if fits { Ok(nr) } else { Err(Errno::EINVAL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontend::{DataLocation, IoSlot};
    use alloc::vec;

    #[derive(Debug)]
    struct Nobody;
    impl BlockClient for Nobody {
        fn done(&self, _: u64, _: IoSlot, _: Result<(), Errno>) {}
    }

    const PLAIN: TagFeatures = TagFeatures { copies_data: true, need_get_data: false, reissues: false };
    const ASKS: TagFeatures = TagFeatures { need_get_data: true, ..PLAIN };
    const USER_COPY: TagFeatures = TagFeatures { copies_data: false, ..PLAIN };

    fn tag(state: TagState, op: IoOp, task: Option<u64>, command: Option<()>) -> Tag<()> {
        let request = BlockRequest { op, flags: 0, sector: 8, sectors: 2, data: DataLocation::Slot };
        let tag_io = state.is_busy().then(|| TagIo::new(request, Arc::new(Nobody), 0));
        Tag { command, addr: 0, task, state, tag_io }
    }

    #[test]
    fn wrong_commands_get_the_drivers_errno() {
        use QueueSetup::{Done, Fetching};
        use TagState::{Completing, Dispatched, Free, NeedData};
        let fetch = Some(io::FETCH_REQ);
        let commit = Some(io::COMMIT_AND_FETCH_REQ);
        let get = Some(io::NEED_GET_DATA);
        let fresh = || tag(Free, IoOp::Read, None, None);
        let armed = || tag(Free, IoOp::Read, Some(1), Some(()));
        let served = |op| tag(Dispatched, op, Some(1), None);
        let wants = || tag(NeedData, IoOp::Write, Some(1), None);
        let (busy, bad, unknown) = (Err(Errno::EBUSY), Err(Errno::EINVAL), Err(Errno::EOPNOTSUPP));
        let cases = vec![
            ("fetch", fresh(), PLAIN, fetch, 9, 1, Fetching, Ok(io::FETCH_REQ)),
            ("fetch without a buffer", fresh(), PLAIN, fetch, 0, 1, Fetching, bad),
            ("fetch without a buffer, NEED_GET_DATA", fresh(), ASKS, fetch, 0, 1, Fetching, Ok(io::FETCH_REQ)),
            ("fetch with a buffer, user copy", fresh(), USER_COPY, fetch, 9, 1, Fetching, bad),
            ("fetch, user copy", fresh(), USER_COPY, fetch, 0, 1, Fetching, Ok(io::FETCH_REQ)),
            ("commit before fetch", fresh(), PLAIN, commit, 9, 1, Fetching, bad),
            ("data before fetch", fresh(), ASKS, get, 9, 1, Fetching, bad),
            ("fetch twice", armed(), PLAIN, fetch, 9, 1, Fetching, busy),
            ("commit while armed", armed(), PLAIN, commit, 9, 1, Done, busy),
            ("another task", armed(), PLAIN, fetch, 9, 2, Done, bad),
            ("another task's commit", served(IoOp::Read), PLAIN, commit, 9, 2, Done, bad),
            ("fetch of a queue in use", served(IoOp::Read), PLAIN, fetch, 9, 1, Done, busy),
            ("fetch of a tag in use", served(IoOp::Read), PLAIN, fetch, 9, 1, Fetching, bad),
            ("commit", served(IoOp::Read), PLAIN, commit, 9, 1, Done, Ok(io::COMMIT_AND_FETCH_REQ)),
            ("commit without a buffer", served(IoOp::Write), PLAIN, commit, 0, 1, Done, bad),
            ("read's commit without a buffer", served(IoOp::Read), ASKS, commit, 0, 1, Done, bad),
            ("write's commit needs none", served(IoOp::Write), ASKS, commit, 0, 1, Done, Ok(io::COMMIT_AND_FETCH_REQ)),
            ("commit with a buffer, user copy", served(IoOp::Write), USER_COPY, commit, 9, 1, Done, bad),
            ("data not asked for", served(IoOp::Write), ASKS, get, 9, 1, Done, bad),
            ("data", wants(), ASKS, get, 9, 1, Done, Ok(io::NEED_GET_DATA)),
            ("commit instead of data", wants(), ASKS, commit, 9, 1, Done, bad),
            ("fetch instead of data", wants(), ASKS, fetch, 9, 1, Done, bad),
            ("while copy", tag(Completing, IoOp::Read, Some(1), Some(())), PLAIN, commit, 9, 1, Done, busy),
            ("no encoding", fresh(), PLAIN, None, 9, 1, Fetching, unknown),
            ("no command", fresh(), PLAIN, Some(0x30), 9, 1, Fetching, bad),
        ];
        for (what, tag, features, nr, addr, task, setup, want) in cases {
            assert_eq!(tag.check(features, nr, addr, task, setup), want, "{what}");
        }
    }

    #[test]
    fn a_short_transfer_advances_the_descriptor() {
        let request = BlockRequest { op: IoOp::Write, flags: 1 << 13, sector: 8, sectors: 8, data: DataLocation::Slot };
        let mut tag_io = TagIo::new(request, Arc::new(Nobody), 0);
        assert_eq!(tag_io.iod(7), IoDesc { op_flags: 1 | 1 << 13, nr_sectors: 8, start_sector: 8, addr: 7 });
        assert!(!tag_io.advance(1024));
        assert_eq!(tag_io.iod(7), IoDesc { op_flags: 1 | 1 << 13, nr_sectors: 6, start_sector: 10, addr: 7 });
        assert!(tag_io.advance(3072));
        tag_io.become_flush();
        assert_eq!(tag_io.iod(7), IoDesc { op_flags: 2, nr_sectors: 0, start_sector: u64::MAX, addr: 7 });
    }
}
