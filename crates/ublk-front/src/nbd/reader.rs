//! A connection's own thread: turns commands into device requests.

use super::conn::{COMMANDS_MAX, Conn, Disconnected, NbdCommand, PendingRead, READ_BYTES_MAX, WaitFor, is_always_structured};
use super::inbox::{Inbox, ReadOutcome};
use super::unaligned::{UnalignedIo, block_size};
use super::wire::{self, PAYLOAD_DISCONNECT, PAYLOAD_MAX, RequestHeader, command, command_flag};
use crate::io_cookie::IoCookie;
use rustix::event::Timespec;
use std::sync::Arc;
use uringlet_abi::ublk::iod;
use uringlet_sys::Errno;
use uringlet_ublk::adaptive_spin::AdaptiveSpin;
use uringlet_ublk::frontend::{BlockClient, BlockLimits, BlockRequest, DataLocation, IoOp, IoSlot, SECTOR};

/// Longest request that this front end makes, sectors. A write's data for one request is received
/// before it takes a slot, so that a slow client never holds one.
const REQUEST_SECTORS_MAX: u32 = 2048;

/// How long the last replies of a connection that ends wait for a client that does not read.
const DRAIN_TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

static ZEROES: [u8; 64 * 1024] = [0; 64 * 1024];

#[derive(Debug)]
pub(super) struct CommandReader {
    conn: Arc<Conn>,
    client: Arc<dyn BlockClient>,
    inbox: Inbox,
    spin: AdaptiveSpin,
}

/// A command in terms of the device.
#[derive(Clone, Copy, Debug)]
struct NbdIo {
    op: IoOp,
    flags: u32,
    sector: u64,
    sectors: u64,
    /// The device has no write-zeroes operation: write zeroes as data.
    is_zero_write: bool,
    /// Whole blocks. Otherwise sector and length are rounded down and not used.
    is_aligned: bool,
}

impl NbdIo {
    fn pieces(self, limits: &BlockLimits) -> Box<dyn Iterator<Item = (u64, u32)>> {
        match self.op {
            IoOp::Flush => Box::new(std::iter::once((0, 0))),
            op => Box::new(limits.split(op, self.sector, self.sectors)),
        }
    }
}

impl CommandReader {
    pub(super) fn new(conn: Arc<Conn>, inbox: Inbox) -> Self {
        let client = Arc::clone(&conn) as Arc<dyn BlockClient>;
        Self { conn, client, inbox, spin: AdaptiveSpin::new() }
    }

    /// Serves the client until the connection ends.
    pub(super) fn run(mut self) {
        // An error means that the client is gone.
        let _ = self.serve();
        self.conn.export.device.unplug();
        self.conn.shut_down();
    }

    fn serve(&mut self) -> Result<(), Disconnected> {
        while self.serve_command()? {}
        self.drain()
    }

    /// Waits until all commands are replied to.
    fn drain(&mut self) -> Result<(), Disconnected> {
        loop {
            let state = self.conn.state();
            if state.commands.is_empty() && state.out.len() == 0 {
                return Ok(());
            }
            let seen = state.event_seq;
            // A command takes as long as the device needs; a client that has only to read is
            // limited.
            let limit = if state.commands.is_empty() { Some(DRAIN_TIMEOUT) } else { None };
            drop(state);
            if !self.conn.wait(WaitFor::Event(seen), limit)? {
                return Err(Disconnected);
            }
        }
    }

    /// Executes one command. False: there will be no more.
    fn serve_command(&mut self) -> Result<bool, Disconnected> {
        if !self.receive_at_least(RequestHeader::SIZE)? {
            return Ok(false);
        }
        let bytes = self.inbox.take(RequestHeader::SIZE);
        let header = bytes.try_into().ok().and_then(RequestHeader::parse).ok_or(Disconnected)?;
        if header.command == command::DISCONNECT {
            return Ok(false);
        }
        let is_write = header.command == command::WRITE;
        if is_write && header.len > PAYLOAD_DISCONNECT {
            return Err(Disconnected);
        }
        let limits = self.limits();
        match self.plan(&header, &limits) {
            Ok(Some(plan)) if plan.is_aligned => self.start(&header, plan, &limits)?,
            Ok(Some(plan)) => self.serve_unaligned(&header, plan, limits)?,
            Ok(None) => self.conn.reply(self.block_status(&header)),
            Err(errno) => {
                if is_write {
                    self.discard_payload(header.len)?;
                }
                self.conn.reply(self.error_reply(&header, errno));
            }
        }
        self.wait_for_room(0)?;
        Ok(true)
    }

    fn limits(&self) -> BlockLimits {
        let limits = self.conn.export.device.limits();
        let block = (limits.logical_block / SECTOR as u32).max(1);
        // Whole blocks: a request that ends inside a block would be refused.
        BlockLimits { max_sectors: limits.max_sectors.min(REQUEST_SECTORS_MAX.max(block)) / block * block, ..limits }
    }

    /// The device operation of a command; `None` if it needs none.
    fn plan(&self, header: &RequestHeader, limits: &BlockLimits) -> Result<Option<NbdIo>, Errno> {
        let known = command_flag::FUA
            | match header.command {
                command::READ if self.conn.is_structured => command_flag::DONT_FRAGMENT,
                command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
                command::BLOCK_STATUS => command_flag::REQ_ONE,
                _ => 0,
            };
        if header.flags & !known != 0 {
            return Err(Errno::EINVAL);
        }
        let fua = if header.flags & command_flag::FUA != 0 { iod::F_FUA } else { 0 };
        let (offset, len, block) = (header.offset, u64::from(header.len), block_size(limits));
        let is_aligned = offset.is_multiple_of(block) && len.is_multiple_of(block);
        let plan = |op, flags| NbdIo { op, flags, sector: offset / SECTOR, sectors: len / SECTOR, is_zero_write: false, is_aligned };
        let plan = match header.command {
            command::FLUSH if header.len == 0 && header.offset == 0 => return Ok(Some(plan(IoOp::Flush, 0))),
            command::READ | command::CACHE => plan(IoOp::Read, 0),
            command::WRITE => plan(IoOp::Write, fua),
            command::TRIM if limits.max_discard > 0 => plan(IoOp::Discard, fua),
            command::WRITE_ZEROES => plan_zeroes(header, limits, plan(IoOp::WriteZeroes, fua))?,
            command::BLOCK_STATUS if self.conn.has_allocation => {
                check_range(header, limits)?;
                return Ok(None);
            }
            _ => return Err(Errno::EINVAL),
        };
        check_range(header, limits)?;
        if plan.op.has_data() && !plan.is_zero_write && header.len > PAYLOAD_MAX {
            return Err(Errno::EOVERFLOW);
        }
        if plan.op.is_change() && limits.is_read_only {
            return Err(Errno::EPERM);
        }
        Ok(Some(if plan.op == IoOp::Discard { shrink_to_granules(header, plan, limits) } else { plan }))
    }

    /// Executes an unaligned command to its end.
    fn serve_unaligned(&mut self, header: &RequestHeader, plan: NbdIo, limits: BlockLimits) -> Result<(), Disconnected> {
        let data = if header.command == command::WRITE { self.receive(header.len as usize)? } else { Vec::new() };
        let is_read = header.command == command::READ;
        let reserved = if is_read { header.len as usize } else { 0 };
        self.wait_for_room(reserved)?;
        let conn = Arc::clone(&self.conn);
        let bytes = UnalignedIo::new(&conn.export.device, conn.queue, &conn.export.rmw, limits);
        let done = conn.uncorked(|| match plan.op {
            // CACHE is a read whose bytes are dropped.
            IoOp::Read => bytes.read(header.offset, header.len as usize),
            _ if plan.is_zero_write || plan.op == IoOp::WriteZeroes => {
                bytes.write_zeroes(header.offset, header.len.into(), plan.flags).map(|()| Vec::new())
            }
            _ => bytes.write(header.offset, &data, plan.flags).map(|()| Vec::new()),
        });
        match done {
            Ok(data) if is_read => {
                conn.state().reserved_bytes += reserved;
                conn.reply_data(header.cookie, header.offset, data);
            }
            Ok(_) => conn.reply(wire::simple_reply(header.cookie, 0)),
            Err(errno) => conn.reply(self.error_reply(header, errno)),
        }
        Ok(())
    }

    /// Receives a whole payload.
    fn receive(&mut self, len: usize) -> Result<Vec<u8>, Disconnected> {
        let mut data = Vec::with_capacity(len);
        while data.len() < len {
            let part = (len - data.len()).min(REQUEST_SECTORS_MAX as usize * SECTOR as usize);
            if !self.receive_at_least(part)? {
                return Err(Disconnected);
            }
            data.extend_from_slice(self.inbox.take(part));
        }
        Ok(data)
    }

    /// Starts a command: submits its requests.
    fn start(&mut self, header: &RequestHeader, plan: NbdIo, limits: &BlockLimits) -> Result<(), Disconnected> {
        let count = plan.pieces(limits).count() as u32;
        let is_read = header.command == command::READ;
        let reserved = if is_read { header.len as usize } else { 0 };
        self.wait_for_room(reserved)?;
        if count == 0 {
            self.conn.reply(wire::simple_reply(header.cookie, 0));
            return Ok(());
        }
        let read = is_read.then(|| self.read_reply(header, count));
        let key = {
            let mut state = self.conn.state();
            state.reserved_bytes += reserved;
            let is_change = plan.op.is_change();
            let command =
                NbdCommand { cookie: header.cookie, offset: header.offset, remaining: count, error: None, is_change, read, reserved };
            state.commands.insert(command) as u16
        };
        let has_payload = header.command == command::WRITE;
        for (sector, sectors) in plan.pieces(limits) {
            let io = IoCookie { command: key, is_read, start: (sector - plan.sector.min(sector)) as u32, sectors };
            let request = BlockRequest { op: plan.op, flags: plan.flags, sector, sectors, data: DataLocation::Slot };
            let len = sectors as usize * SECTOR as usize;
            if has_payload && !self.receive_at_least(len)? {
                return Err(Disconnected);
            }
            let slot = self.lock_and_take_slot(plan.op)?;
            let device = &self.conn.export.device;
            let filled = match (has_payload, plan.is_zero_write) {
                (true, _) => device.write(&slot, 0, self.inbox.take(len)),
                (_, true) => fill_with_zeroes(|at, bytes| device.write(&slot, at, bytes), len),
                _ => Ok(()),
            };
            match filled {
                Ok(()) => device.submit(slot, request, &self.client, io.pack()),
                Err(errno) => {
                    device.free_slot(slot);
                    self.conn.request_failed(io, errno);
                }
            }
        }
        Ok(())
    }

    /// A slot, with the RMW lock held shared if the operation changes the device.
    fn lock_and_take_slot(&self, op: IoOp) -> Result<IoSlot, Disconnected> {
        let rmw = &self.conn.export.rmw;
        if op.is_change() && !rmw.try_lock_shared() {
            self.conn.uncorked(|| rmw.lock_shared());
        }
        let slot = self.conn.slot(&self.client);
        if slot.is_err() && op.is_change() {
            rmw.unlock_shared();
        }
        slot
    }

    fn read_reply(&self, header: &RequestHeader, count: u32) -> PendingRead {
        // A buffer only for data that is assembled from several requests.
        let whole = vec![0; if count > 1 { header.len as usize } else { 0 }];
        match (self.conn.is_structured, header.flags & command_flag::DONT_FRAGMENT != 0) {
            (true, false) => PendingRead::Chunks,
            (true, true) => PendingRead::Chunk(whole),
            (false, _) => PendingRead::Simple(whole),
        }
    }

    /// One extent of data: the ublk protocol has no query for holes.
    fn block_status(&self, header: &RequestHeader) -> Vec<u8> {
        wire::allocated_chunk(header.cookie, header.len)
    }

    fn error_reply(&self, header: &RequestHeader, errno: Errno) -> Vec<u8> {
        let error = wire::error_number(errno);
        if self.conn.is_structured && is_always_structured(header.command) {
            wire::error_chunk(header.cookie, error)
        } else {
            wire::simple_reply(header.cookie, error)
        }
    }

    /// Waits until one more command with `bytes` to read may be in flight.
    fn wait_for_room(&mut self, bytes: usize) -> Result<(), Disconnected> {
        loop {
            let state = self.conn.state();
            let is_few = state.commands.len() + state.out.len() < COMMANDS_MAX;
            if is_few && (state.reserved_bytes == 0 || state.reserved_bytes + bytes <= READ_BYTES_MAX) {
                return Ok(());
            }
            let seen = state.event_seq;
            drop(state);
            self.conn.wait(WaitFor::Event(seen), None)?;
        }
    }

    /// Receives until `len` bytes are buffered. False: the connection is to end, and no command has
    /// begun.
    fn receive_at_least(&mut self, len: usize) -> Result<bool, Disconnected> {
        while self.inbox.len() < len {
            // Requests in flight must not wait for what the client sends next.
            self.conn.export.device.unplug();
            match self.inbox.read_from(&self.conn.socket, len) {
                ReadOutcome::Data => {}
                ReadOutcome::Eof => return Err(Disconnected),
                ReadOutcome::WouldBlock => {
                    if !self.wait_input(len)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Sends replies and waits for bytes. Spins for a while if no command is in flight, since then
    /// only the client is waited for. False: the connection is to end.
    fn wait_input(&mut self, wanted: usize) -> Result<bool, Disconnected> {
        let (conn, inbox, mut spin_budget) = (&self.conn, &mut self.inbox, self.spin.budget());
        let outcome = conn.uncorked(|| {
            while conn.state().commands.is_empty() {
                match inbox.read_from(&conn.socket, wanted) {
                    ReadOutcome::WouldBlock if !spin_budget.is_spent() => {}
                    other => return other,
                }
            }
            ReadOutcome::WouldBlock
        });
        match outcome {
            ReadOutcome::Data => {}
            ReadOutcome::Eof => return Err(Disconnected),
            ReadOutcome::WouldBlock => {
                self.conn.wait(WaitFor::Input, None)?;
                self.spin.record_wait(spin_budget.elapsed_ns());
            }
        }
        Ok(!self.conn.state().is_stopping)
    }

    /// Receives and drops a payload.
    fn discard_payload(&mut self, len: u32) -> Result<(), Disconnected> {
        let mut left = u64::from(len);
        loop {
            left -= self.inbox.skip(left);
            if left == 0 {
                return Ok(());
            }
            if !self.receive_at_least(1)? {
                return Err(Disconnected);
            }
        }
    }
}

/// The device's write-zeroes operation, or plain writes unless the client asked for speed.
fn plan_zeroes(header: &RequestHeader, limits: &BlockLimits, plan: NbdIo) -> Result<NbdIo, Errno> {
    let nounmap = if header.flags & command_flag::NO_HOLE != 0 { iod::F_NOUNMAP } else { 0 };
    match (limits.max_write_zeroes, header.flags & command_flag::FAST_ZERO) {
        (0, 0) => Ok(NbdIo { op: IoOp::Write, is_zero_write: true, ..plan }),
        (0, _) => Err(Errno::EOPNOTSUPP),
        _ => Ok(NbdIo { flags: plan.flags | nounmap, ..plan }),
    }
}

fn check_range(header: &RequestHeader, limits: &BlockLimits) -> Result<(), Errno> {
    if header.len == 0 {
        return Err(Errno::EINVAL);
    }
    let is_inside = header.offset.checked_add(u64::from(header.len)).is_some_and(|end| end <= limits.sectors * SECTOR);
    match header.command {
        _ if is_inside => Ok(()),
        command::WRITE | command::WRITE_ZEROES => Err(Errno::ENOSPC),
        _ => Err(Errno::EINVAL),
    }
}

/// A discard is a hint: only granules wholly inside the range are discarded.
fn shrink_to_granules(header: &RequestHeader, plan: NbdIo, limits: &BlockLimits) -> NbdIo {
    let granule = u64::from(limits.discard_granularity).max(block_size(limits));
    let end = (header.offset + u64::from(header.len)) / granule * granule;
    let begin = header.offset.next_multiple_of(granule);
    NbdIo { sector: begin / SECTOR, sectors: end.saturating_sub(begin) / SECTOR, is_aligned: true, ..plan }
}

fn fill_with_zeroes(write: impl Fn(u32, &[u8]) -> Result<(), Errno>, len: usize) -> Result<(), Errno> {
    (0..len).step_by(ZEROES.len()).try_for_each(|at| write(at as u32, &ZEROES[..ZEROES.len().min(len - at)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discard_shrinks_to_whole_granules() {
        let limits = BlockLimits { discard_granularity: 4096, ..BlockLimits::default() };
        let plan = NbdIo { op: IoOp::Discard, flags: 0, sector: 0, sectors: 0, is_zero_write: false, is_aligned: false };
        let cut = |offset, len| {
            let header = RequestHeader { flags: 0, command: command::TRIM, cookie: 0, offset, len };
            let plan = shrink_to_granules(&header, plan, &limits);
            (plan.sector, plan.sectors)
        };
        assert_eq!(cut(0, 8192), (0, 16));
        assert_eq!(cut(512, 8192), (8, 8));
        assert_eq!(cut(1, 8191), (8, 8));
        assert_eq!(cut(1, 8190), (8, 0));
        assert_eq!(cut(4608, 1024), (16, 0));
    }
}
