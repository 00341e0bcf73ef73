//! Builds rings, and SQEs from operations.

use crate::files::{FileHandles, HANDLES, HandleKind};
use crate::op::{AppendBy, BufferKind, FileOp};
use crate::slots::BufferSlots;
use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, Probe, opcode, types};
use std::io;

const ENTRIES: u32 = 64;
const RWF_APPEND: i32 = 0x10;

/// The setup flags of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingKind {
    Plain,
    CoopTaskrun,
    DeferTaskrun,
    Sqpoll,
}

pub(crate) const KINDS: [RingKind; 4] = [RingKind::Plain, RingKind::CoopTaskrun, RingKind::DeferTaskrun, RingKind::Sqpoll];

pub(crate) fn new(kind: RingKind) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    match kind {
        RingKind::Plain => &mut builder,
        RingKind::CoopTaskrun => builder.setup_coop_taskrun(),
        RingKind::DeferTaskrun => builder.setup_single_issuer().setup_defer_taskrun(),
        RingKind::Sqpoll => builder.setup_sqpoll(50),
    };
    builder.build(ENTRIES)
}

/// Registers all buffers and descriptors.
pub(crate) fn register(ring: &IoUring, slots: &BufferSlots, files: &[FileHandles]) -> io::Result<()> {
    // SAFETY: the memory of the slots outlives the ring.
    unsafe { ring.submitter().register_buffers(&slots.registration())? };
    let fds: Vec<_> = files.iter().flat_map(FileHandles::fds).collect();
    ring.submitter().register_files(&fds)
}

/// Whether IORING_OP_FTRUNCATE is there.
pub(crate) fn truncates(ring: &IoUring) -> bool {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Ftruncate::CODE)
}

/// The file of an operation.
pub(crate) struct OpTarget<'a> {
    pub(crate) index: usize,
    pub(crate) handles: &'a FileHandles,
    /// By its slot in the ring's file table.
    pub(crate) is_registered: bool,
}

impl OpTarget<'_> {
    /// The SQE's descriptor: a number, or with FIXED_FILE a slot of the table.
    fn fd(&self, kind: HandleKind) -> types::Fd {
        let slot = self.index * HANDLES + kind as usize;
        types::Fd(if self.is_registered { slot as i32 } else { self.handles.fd(kind) })
    }

    fn flags(&self) -> Flags {
        if self.is_registered { Flags::FIXED_FILE } else { Flags::empty() }
    }
}

/// A transfer, as in its SQE.
struct Transfer {
    fd: types::Fd,
    is_write: bool,
    buffer: BufferKind,
    off: u64,
    len: usize,
    rw_flags: i32,
}

/// The SQE of an operation that uses this slot's buffer. `cuts` are the borders of its iovecs.
pub(crate) fn entry(op: &FileOp, target: &OpTarget<'_>, slots: &mut BufferSlots, slot: usize, cuts: [u64; 3]) -> Entry {
    let at =
        |kind, is_write, buffer, off, len: u64| Transfer { fd: target.fd(kind), is_write, buffer, off, len: len as usize, rw_flags: 0 };
    let here = u64::MAX;
    let transfer = match *op {
        FileOp::Read { off, len, buffer } => at(HandleKind::Plain, false, buffer, off, len),
        FileOp::Write { off, len, buffer } => at(HandleKind::Plain, true, buffer, off, len),
        FileOp::ReadAtPosition { len } => at(HandleKind::Plain, false, BufferKind::Plain, here, len),
        FileOp::WriteAtPosition { len } => at(HandleKind::Plain, true, BufferKind::Plain, here, len),
        FileOp::Append { len, by: AppendBy::Descriptor, buffer } => at(HandleKind::Append, true, buffer, 0, len),
        FileOp::Append { len, by: AppendBy::Flag, buffer } => {
            Transfer { rw_flags: RWF_APPEND, ..at(HandleKind::Plain, true, buffer, 0, len) }
        }
        FileOp::DirectRead { off, len } => at(HandleKind::Direct, false, BufferKind::Plain, off, len),
        FileOp::DirectWrite { off, len } => at(HandleKind::Direct, true, BufferKind::Plain, off, len),
        _ => return other(op, target.fd(HandleKind::Plain)).flags(target.flags()),
    };
    transfer.entry(slots, slot, cuts).flags(target.flags())
}

impl Transfer {
    fn entry(&self, slots: &mut BufferSlots, slot: usize, cuts: [u64; 3]) -> Entry {
        let (fd, off, len, flags) = (self.fd, self.off, self.len as u32, self.rw_flags);
        let (buffer, index) = (slots.address(slot), slot as u16);
        match (self.buffer, self.is_write) {
            (BufferKind::Plain, false) => opcode::Read::new(fd, buffer, len).offset(off).build(),
            (BufferKind::Plain, true) => opcode::Write::new(fd, buffer, len).offset(off).rw_flags(flags).build(),
            (BufferKind::Fixed, false) => opcode::ReadFixed::new(fd, buffer, len, index).offset(off).build(),
            (BufferKind::Fixed, true) => opcode::WriteFixed::new(fd, buffer, len, index).offset(off).rw_flags(flags).build(),
            (BufferKind::Vectored, is_write) => {
                let (iovecs, n) = slots.split(slot, self.len, cuts);
                if is_write {
                    opcode::Writev::new(fd, iovecs, n).offset(off).rw_flags(flags).build()
                } else {
                    opcode::Readv::new(fd, iovecs, n).offset(off).build()
                }
            }
        }
    }
}

fn other(op: &FileOp, fd: types::Fd) -> Entry {
    match *op {
        FileOp::Truncate { size } => opcode::Ftruncate::new(fd, size).build(),
        FileOp::Allocate { off, len, mode } => opcode::Fallocate::new(fd, len).offset(off).mode(mode).build(),
        FileOp::Sync => opcode::Fsync::new(fd).build(),
        FileOp::DataSync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        FileOp::SyncRange { off, len } => {
            let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
            opcode::SyncFileRange::new(fd, len as u32).offset(off).flags(flags).build()
        }
        FileOp::DropCache { off, len } => opcode::Fadvise::new(fd, len as i64, libc::POSIX_FADV_DONTNEED).offset(off).build(),
        _ => unreachable!("{op} does not go through the ring"),
    }
}
