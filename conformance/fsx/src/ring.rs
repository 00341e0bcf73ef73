//! The ring: SQEs from operations.

use crate::files::{DOORS, Door, Opened};
use crate::op::{AppendBy, Op, Way};
use crate::slots::Slots;
use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, Probe, opcode, types};
use std::io;

const ENTRIES: u32 = 64;
const RWF_APPEND: i32 = 0x10;

/// How a ring is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    CoopTaskrun,
    DeferTaskrun,
    Sqpoll,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::Plain, Kind::CoopTaskrun, Kind::DeferTaskrun, Kind::Sqpoll];

pub(crate) fn new(kind: Kind) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    match kind {
        Kind::Plain => &mut builder,
        Kind::CoopTaskrun => builder.setup_coop_taskrun(),
        Kind::DeferTaskrun => builder.setup_single_issuer().setup_defer_taskrun(),
        Kind::Sqpoll => builder.setup_sqpoll(50),
    };
    builder.build(ENTRIES)
}

/// Registers every buffer and every descriptor.
pub(crate) fn register(ring: &IoUring, slots: &Slots, files: &[Opened]) -> io::Result<()> {
    // SAFETY: the memory of the slots outlives the ring.
    unsafe { ring.submitter().register_buffers(&slots.registration())? };
    let fds: Vec<_> = files.iter().flat_map(Opened::fds).collect();
    ring.submitter().register_files(&fds)
}

/// Whether IORING_OP_FTRUNCATE is there.
pub(crate) fn truncates(ring: &IoUring) -> bool {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Ftruncate::CODE)
}

/// What an operation works on.
pub(crate) struct Target<'a> {
    pub(crate) index: usize,
    pub(crate) opened: &'a Opened,
    /// Through the ring's table.
    pub(crate) is_registered: bool,
}

impl Target<'_> {
    /// The number of the SQE: a descriptor, or a slot of the table that the flag FIXED_FILE then speaks of.
    fn fd(&self, door: Door) -> types::Fd {
        let slot = self.index * DOORS + door as usize;
        types::Fd(if self.is_registered { slot as i32 } else { self.opened.fd(door) })
    }

    fn flags(&self) -> Flags {
        if self.is_registered { Flags::FIXED_FILE } else { Flags::empty() }
    }
}

/// A transfer as its SQE says it.
struct Transfer {
    fd: types::Fd,
    is_write: bool,
    way: Way,
    off: u64,
    len: usize,
    rw_flags: i32,
}

/// The SQE of an operation whose buffer is this slot's. `shares` say how iovecs are cut.
pub(crate) fn entry(op: &Op, target: &Target<'_>, slots: &mut Slots, slot: usize, shares: [u64; 3]) -> Entry {
    let at = |door, is_write, way, off, len: u64| Transfer { fd: target.fd(door), is_write, way, off, len: len as usize, rw_flags: 0 };
    let here = u64::MAX;
    let transfer = match *op {
        Op::Read { off, len, way } => at(Door::Plain, false, way, off, len),
        Op::Write { off, len, way } => at(Door::Plain, true, way, off, len),
        Op::ReadHere { len } => at(Door::Plain, false, Way::Plain, here, len),
        Op::WriteHere { len } => at(Door::Plain, true, Way::Plain, here, len),
        Op::Append { len, by: AppendBy::Descriptor, way } => at(Door::Append, true, way, 0, len),
        Op::Append { len, by: AppendBy::Flag, way } => Transfer { rw_flags: RWF_APPEND, ..at(Door::Plain, true, way, 0, len) },
        Op::DirectRead { off, len } => at(Door::Direct, false, Way::Plain, off, len),
        Op::DirectWrite { off, len } => at(Door::Direct, true, Way::Plain, off, len),
        _ => return other(op, target.fd(Door::Plain)).flags(target.flags()),
    };
    transfer.entry(slots, slot, shares).flags(target.flags())
}

impl Transfer {
    fn entry(&self, slots: &mut Slots, slot: usize, shares: [u64; 3]) -> Entry {
        let (fd, off, len, flags) = (self.fd, self.off, self.len as u32, self.rw_flags);
        let (buffer, index) = (slots.address(slot), slot as u16);
        match (self.way, self.is_write) {
            (Way::Plain, false) => opcode::Read::new(fd, buffer, len).offset(off).build(),
            (Way::Plain, true) => opcode::Write::new(fd, buffer, len).offset(off).rw_flags(flags).build(),
            (Way::Fixed, false) => opcode::ReadFixed::new(fd, buffer, len, index).offset(off).build(),
            (Way::Fixed, true) => opcode::WriteFixed::new(fd, buffer, len, index).offset(off).rw_flags(flags).build(),
            (Way::Vectored, is_write) => {
                let (iovecs, n) = slots.split(slot, self.len, shares);
                if is_write {
                    opcode::Writev::new(fd, iovecs, n).offset(off).rw_flags(flags).build()
                } else {
                    opcode::Readv::new(fd, iovecs, n).offset(off).build()
                }
            }
        }
    }
}

fn other(op: &Op, fd: types::Fd) -> Entry {
    match *op {
        Op::Truncate { size } => opcode::Ftruncate::new(fd, size).build(),
        Op::Allocate { off, len, mode } => opcode::Fallocate::new(fd, len).offset(off).mode(mode).build(),
        Op::Sync => opcode::Fsync::new(fd).build(),
        Op::DataSync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        Op::SyncRange { off, len } => {
            let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
            opcode::SyncFileRange::new(fd, len as u32).offset(off).flags(flags).build()
        }
        Op::Forget { off, len } => opcode::Fadvise::new(fd, len as i64, libc::POSIX_FADV_DONTNEED).offset(off).build(),
        _ => unreachable!("{op} does not go through the ring"),
    }
}
