//! `IORING_OP_READ, READV, READ_FIXED, READV_FIXED, WRITE, WRITEV, WRITE_FIXED, WRITEV_FIXED`.
//! Source:  io_uring_enter(2), preadv2(2); behaviour of Linux 6.18 io_uring/rw.c (not its code).
//! Issue:   sockets, pipes: tried non-blocking, then poll. Seekable files: O_DIRECT by AIO;
//!          buffered reads with RWF_NOWAIT, the rest on a worker; buffered writes by their route
//!          (docs/routing.md). Units: off, len in bytes; off -1 = the file position.
//! Errors:  EINVAL bad fields; EFAULT buffer index or range not registered; else those of
//!          preadv2/pwritev2.
//! Differs: registered buffers are not pinned: the addresses are used as they are mapped at the
//!          time of the transfer. After a short write at position -1 the kernel leaves the file
//!          position where it was; here it advances, as write(2) does. IOPOLL rings poll nothing,
//!          and take any O_DIRECT file.
//! Tests:   liburing read-write.t, short-read.t, iopoll.t, fixed-link.t, pipe-*.t; differential
//!          `rw`.

mod checks;
mod resources;
mod stream;
mod write;

pub(super) use checks::refuses_nowait;

use super::buffers::commit_or_recycle;
use super::iovecs::{self, is_beyond_memory};
use super::issue::{FastProgress, Issue, IssueCx, OpFamily, PrepCx};
use super::outcome::Outcome;
use crate::file::{FileKind, IoDirection};
use crate::ops::FilledBytes;
use crate::ring_resources::RingResources;
use crate::route::{Route, Step, TransferFacts, Tried, WriteFacts, route};
use crate::rsrc::buf_ring::SelectedBuf;
use alloc::boxed::Box;
use uringlet_abi::register::Iovec;
use uringlet_abi::{Sqe, setup, sqe};
use uringlet_sys::aio::{AioOp, AioRequest};
use uringlet_sys::io::{self, RWF_NOWAIT};
use uringlet_sys::process::is_file_size_limited;
use uringlet_sys::{Errno, UserPtr, user};

const POLLIN: u32 = 1;
const POLLOUT: u32 = 4;
const POLLERR: u32 = 8;
const MAX_IOVECS: u32 = 1024;
/// What one read or write moves at most (MAX_RW_COUNT).
const MAX_LEN: usize = 0x7fff_f000;

/// A read or a write.
#[derive(Debug)]
pub(crate) struct Rw {
    is_write: bool,
    is_vectored: bool,
    is_fixed: bool,
    /// A short transfer is a failure: it breaks a link, or has a CQE in spite of
    /// `CQE_SKIP_SUCCESS`.
    short_is_failure: bool,
    /// A try without waiting found nothing a moment ago.
    nowait_failed: bool,
    /// Takes a provided buffer.
    selects: bool,
    buf_index: u16,
    /// The buffer, or the program's iovecs.
    addr: u64,
    /// Bytes, or the number of iovecs.
    len: u32,
    /// `RWF_*`.
    rw_flags: u32,
    off: i64,
    /// Bytes already moved by an earlier try.
    done: usize,
    /// A copy of the iovecs, once the request outlives its submission or was partly done.
    iovecs: Option<Box<[Iovec]>>,
    /// With `IOSQE_BUFFER_SELECT`.
    selection: Option<Box<Selection>>,
}

/// The provided buffer of a read.
#[derive(Debug)]
struct Selection {
    /// Bytes that the selection requests.
    wanted: u32,
    selected: Option<SelectedBuf>,
}

/// How the SQE names its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BufferArg {
    Single,
    Vector,
    Registered,
    RegisteredVector,
}

#[inline]
fn prep(sqe: &Sqe, cx: &PrepCx, direction: IoDirection, buffers: BufferArg) -> Result<Rw, Errno> {
    let is_write = direction == IoDirection::Write;
    let is_vectored = matches!(buffers, BufferArg::Vector | BufferArg::RegisteredVector);
    let is_fixed = matches!(buffers, BufferArg::Registered | BufferArg::RegisteredVector);
    if cx.setup & setup::IOPOLL != 0 && sqe.op_flags & !io::RWF_HIPRI != 0 && cx.sqe_flags & sqe::BUFFER_SELECT != 0 {
        return Err(Errno::EINVAL);
    }
    // Attributes (`IORING_FEAT_RW_ATTR`) are not supported.
    if sqe.pad2 != 0 {
        return Err(Errno::EINVAL);
    }
    let selects = cx.sqe_flags & sqe::BUFFER_SELECT != 0;
    if is_vectored && (sqe.len > MAX_IOVECS || (selects && sqe.len != 1)) {
        return Err(Errno::EINVAL);
    }
    checks::priority(sqe.ioprio)?;
    let names_buffer = !is_vectored && !is_fixed && !selects;
    if names_buffer && is_beyond_memory(sqe.addr, sqe.len.into()) {
        return Err(Errno::EFAULT);
    }
    Ok(Rw {
        is_write,
        is_vectored,
        is_fixed,
        short_is_failure: cx.sqe_flags & (sqe::IO_LINK | sqe::IO_HARDLINK | sqe::CQE_SKIP_SUCCESS) != 0,
        nowait_failed: false,
        selects,
        buf_index: sqe.buf_index,
        addr: sqe.addr,
        len: sqe.len,
        rw_flags: sqe.op_flags,
        off: sqe.off as i64,
        done: 0,
        iovecs: None,
        selection: None,
    })
}

macro_rules! preps {
    ($($name:ident: $direction:ident, $buffers:ident;)*) => {
        $(#[inline] pub(crate) fn $name(sqe: &Sqe, cx: &PrepCx) -> Result<Rw, Errno> {
            prep(sqe, cx, IoDirection::$direction, BufferArg::$buffers)
        })*
    };
}

preps! {
    prep_read: Read, Single;
    prep_readv: Read, Vector;
    prep_read_fixed: Read, Registered;
    prep_readv_fixed: Read, RegisteredVector;
    prep_write: Write, Single;
    prep_writev: Write, Vector;
    prep_write_fixed: Write, Registered;
    prep_writev_fixed: Write, RegisteredVector;
}

impl OpFamily for Rw {
    #[inline]
    fn try_issue(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        let mut issue = self.try_once(cx);
        if matches!(&issue, Issue::Complete(outcome) if outcome.res < 0) {
            self.give_buffer_of_failure(cx);
        }
        if let Some(selection) = &mut self.selection {
            // As in the kernel, a waiting read keeps the buffer of a list, and gives it to the
            // program even if it is cancelled.
            let is_kept = selection.selected.as_ref().is_some_and(SelectedBuf::is_listed);
            commit_or_recycle(&mut cx.ring.buf_groups, &mut selection.selected, &mut issue, self.done > 0 || is_kept);
            if let Some(selected) = selection.selected.as_mut().filter(|_| is_kept && self.done == 0) {
                selected.mark_used(0);
            }
        }
        issue
    }

    /// Without the ring's lock other requests select too: this one owns its buffer from now on.
    fn prepare_for_worker(&mut self, cx: &mut IssueCx<'_>) -> Result<(), Errno> {
        self.take_resources(cx)?;
        if !cx.file.kind().is_seekable() {
            let kind = FileKind::refresh(cx.file.fd);
            if !kind.is_bad() && !kind.is_seekable() {
                self.drop_position(kind)?;
            }
        }
        let selected = self.selection.as_mut().and_then(|selection| selection.selected.as_mut());
        selected.into_iter().for_each(|selected| cx.ring.buf_groups.commit(selected));
        Ok(())
    }

    fn bytes_done(&self) -> usize {
        self.done
    }

    fn import_args(&mut self) -> Result<(), Errno> {
        if self.is_vectored && self.iovecs.is_none() {
            self.iovecs = Some(iovecs::read(self.addr, self.len as usize)?);
        }
        Ok(())
    }

    /// Transfers everything that is left, sleeping as needed.
    #[inline]
    fn run(&mut self, fd: i32) -> Outcome {
        let res = self.transfer(fd, self.rw_flags);
        self.run_on(fd, res)
    }

    /// As in the kernel, a read that fails on a worker gives its buffer to the program.
    fn finish(&mut self, _: &mut RingResources, outcome: Outcome) -> Outcome {
        let selected = self.selection.as_mut().and_then(|selection| selection.selected.as_mut());
        if let Some(selected) = selected.filter(|_| outcome.res < 0) {
            selected.mark_used(0);
        }
        outcome
    }

    /// The provided buffer, for the caller to commit or to return.
    fn take_selected(&mut self) -> Option<SelectedBuf> {
        self.selection.as_mut().and_then(|selection| selection.selected.take())
    }

    fn filled(&self) -> Option<FilledBytes> {
        if self.is_write {
            return None;
        }
        if !self.is_vectored {
            return Some(FilledBytes::Buffer(UserPtr::at(self.addr)));
        }
        // Of a transfer in several parts the iovecs of the first ones are gone.
        let is_whole = self.done == 0;
        is_whole.then(|| self.iovecs.as_deref().map_or(FilledBytes::Vector(UserPtr::at(self.addr), self.len as usize), FilledBytes::of))
    }

    fn registered_buffer(&self) -> Option<u16> {
        self.is_fixed.then_some(self.buf_index)
    }

    /// The poll events that a plain read waits for.
    fn receive_events(&self) -> Option<u32> {
        (!self.is_write && self.is_plain() && self.len > 0).then_some(POLLIN)
    }

    /// Whether a write ends only when the disk has its data.
    fn waits_for_disk(&self, kind: FileKind) -> bool {
        kind.is_synchronous() || self.rw_flags & (io::RWF_DSYNC | io::RWF_SYNC) != 0
    }

    fn direction(&self) -> Option<IoDirection> {
        Some(self.io_direction())
    }

    #[inline]
    fn resume(&mut self, progress: FastProgress) {
        match progress {
            FastProgress::None => {}
            // No error: the kernel read the iovecs a moment ago.
            FastProgress::Bytes(n) => drop(self.advance(n)),
            FastProgress::WouldBlock => self.nowait_failed = true,
        }
    }
}

impl Rw {
    pub(crate) fn io_direction(&self) -> IoDirection {
        if self.is_write { IoDirection::Write } else { IoDirection::Read }
    }

    #[inline]
    fn try_once(&mut self, cx: &mut IssueCx<'_>) -> Issue {
        if let Some(issue) = self.try_known_socket(cx) {
            return issue;
        }
        // Position -1 is valid on streams and on files: the cached kind could be another file's.
        let kind = if self.off < 0 { FileKind::refresh(cx.file.fd) } else { cx.file.kind() };
        if kind.is_bad() {
            return self.refused(Errno::EBADF).into();
        }
        if let Err(errno) = self.take_resources(cx) {
            return errno.into();
        }
        if kind.is_seekable() { self.try_seekable(cx, kind) } else { self.try_stream(cx, kind) }
    }

    /// As in the kernel, the buffer of a read that fails at once is the program's, unless it is of
    /// a ring and the file can be polled.
    #[cold]
    fn give_buffer_of_failure(&mut self, cx: &mut IssueCx<'_>) {
        let Some(selected) = self.selection.as_mut().and_then(|selection| selection.selected.as_mut()) else { return };
        if !selected.is_listed() {
            if !cx.file.kind().is_seekable() {
                return;
            }
            cx.ring.buf_groups.commit(selected);
        }
        selected.mark_used(0);
    }

    /// With `IOSQE_ASYNC` a worker of the kernel writes, and discards the SIGPIPE of a pipe without
    /// a reader.
    fn must_not_raise_sigpipe(&self, cx: &IssueCx<'_>, kind: FileKind) -> bool {
        self.is_write && cx.sqe_flags & sqe::ASYNC != 0 && !kind.is_socket()
    }

    fn try_seekable(&mut self, cx: &mut IssueCx<'_>, kind: FileKind) -> Issue {
        let fd = cx.file.fd;
        if self.rw_flags & RWF_NOWAIT != 0 {
            return self.finish_transfer(self.transfer(fd, self.rw_flags));
        }
        let facts = TransferFacts {
            is_write: self.is_write,
            tried: if self.nowait_failed { Tried::WouldBlock } else { Tried::No },
            is_whole: self.off >= 0 && self.done == 0,
            may_raise_signal: is_file_size_limited(),
            write: WriteFacts::NONE,
        };
        // A write asks again with the facts that only writes have: a transfer that goes to AIO must
        // not be charged to the dirty budget.
        match route(kind, cx.ring.mode, Step::Transfer(facts)) {
            Route::Aio => Issue::Aio,
            _ if self.is_write => self.try_write(cx, kind, facts),
            Route::Try => self.read_nowait(fd, kind),
            _ => Issue::Blocks,
        }
    }

    /// Reads what the page cache has. A short read means either the end of the file (the next try
    /// returns 0) or a page that is not cached (EAGAIN): then a worker reads the rest.
    fn read_nowait(&mut self, fd: i32, kind: FileKind) -> Issue {
        loop {
            match self.transfer(fd, self.rw_flags | RWF_NOWAIT) {
                Ok(0) => return self.finish_transfer(Ok(0)),
                Ok(n) if self.done + n >= self.wanted() => return self.finish_transfer(Ok(n)),
                Ok(n) => {
                    if let Err(errno) = self.advance(n) {
                        return errno.into();
                    }
                }
                Err(Errno::EAGAIN) => return Issue::Blocks,
                Err(errno) if refuses_nowait(errno) => {
                    kind.note_nowait_unsupported(fd, IoDirection::Read);
                    return Issue::Blocks;
                }
                Err(errno) => return self.finish_transfer(Err(errno)),
            }
        }
    }

    /// One system call for what is left.
    #[inline]
    fn transfer(&self, fd: i32, flags: u32) -> Result<usize, Errno> {
        let off = if self.off >= 0 { self.off.saturating_add(self.done as i64) } else { self.off };
        if let Some(iovecs) = &self.iovecs {
            return self.vectored(fd, io::ptr_of_slice(iovecs), iovecs.len(), off, flags);
        }
        if self.is_vectored {
            return self.vectored(fd, UserPtr::at(self.addr), self.len as usize, off, flags);
        }
        let buf = UserPtr::at(self.addr).add(self.done);
        let len = (self.len as usize).saturating_sub(self.done);
        match (flags, off, self.is_write) {
            (0, 0.., true) => io::pwrite(fd, buf, len, off),
            (0, 0.., false) => io::pread(fd, buf, len, off),
            (0, -1, true) => io::write(fd, buf, len),
            (0, -1, false) => io::read(fd, buf, len),
            _ => {
                let iovec = [Iovec { base: buf.addr() as u64, len: len as u64 }];
                self.vectored(fd, io::ptr_of_slice(&iovec), 1, off, flags)
            }
        }
    }

    fn vectored(&self, fd: i32, iov: UserPtr, n: usize, off: i64, flags: u32) -> Result<usize, Errno> {
        match (flags, off, self.is_write) {
            (0, -1, true) => io::writev(fd, iov, n),
            (0, -1, false) => io::readv(fd, iov, n),
            (0, _, true) => io::pwritev(fd, iov, n, off, 0),
            (0, _, false) => io::preadv(fd, iov, n, off, 0),
            (_, _, true) => io::pwritev2(fd, iov, n, off, 0, flags),
            (_, _, false) => io::preadv2(fd, iov, n, off, 0, flags),
        }
    }

    /// Bytes requested. Call it only after a successful transfer: it reads the program's iovecs, as
    /// the kernel just did.
    fn wanted(&self) -> usize {
        let sum = match &self.iovecs {
            Some(iovecs) => self.done + iovecs.iter().map(|v| v.len as usize).sum::<usize>(),
            None if self.is_vectored => (0..self.len as usize)
                .map(|i| user::read_mapped::<Iovec>(UserPtr::at(self.addr).add(i * size_of::<Iovec>())).len as usize)
                .sum(),
            None => self.len as usize,
        };
        sum.min(MAX_LEN)
    }

    fn finish_transfer(&mut self, res: Result<usize, Errno>) -> Issue {
        Issue::Complete(self.outcome(res))
    }

    /// The result, with the bytes of earlier tries: an error after progress is reported as the
    /// progress.
    #[inline]
    fn outcome(&mut self, res: Result<usize, Errno>) -> Outcome {
        let done = match res {
            Ok(n) => self.done + n,
            Err(_) if self.done > 0 => self.done,
            Err(errno) => return Outcome::err(errno),
        };
        let outcome = if self.short_is_failure { Outcome::transfer(done, self.wanted()) } else { Outcome::ok(done as i32) };
        match self.selection.as_mut().and_then(|selection| selection.selected.as_mut()) {
            Some(selected) => outcome.with_flags(selected.mark_used(done as u32)),
            None => outcome,
        }
    }

    /// `n` more bytes are done; the iovecs shrink by them.
    fn advance(&mut self, n: usize) -> Result<(), Errno> {
        if self.is_vectored {
            self.import_args()?;
            if let Some(iovecs) = &mut self.iovecs {
                iovecs::skip(iovecs, n);
            }
        }
        self.done += n;
        Ok(())
    }

    /// As [`run`](Self::run), but makes a plain write in the caller's frame: the first return after
    /// a system call is slow (`docs/decisions/0003`).
    #[inline(always)]
    pub(crate) fn run_in_place(&mut self, fd: i32) -> Outcome {
        if !self.is_write || self.is_vectored || self.short_is_failure || self.off < 0 || self.rw_flags != 0 || self.done > 0 {
            return self.run(fd);
        }
        let len = self.len as usize;
        match io::pwrite(fd, UserPtr::at(self.addr), len, self.off) {
            Ok(n) if n == len => Outcome::ok(n as i32),
            res => self.run_on(fd, res),
        }
    }

    /// Continues after the first call.
    fn run_on(&mut self, fd: i32, res: Result<usize, Errno>) -> Outcome {
        match res {
            Ok(n) if n > 0 && self.off >= 0 && self.done + n < self.wanted() => self.run_rest(fd, n),
            Err(Errno::EAGAIN) if self.off < 0 && self.rw_flags & RWF_NOWAIT == 0 => self.run_polled(fd),
            // EINTR of a cancelled worker is reported as it is.
            other => self.outcome(other),
        }
    }

    #[cold]
    fn run_rest(&mut self, fd: i32, first: usize) -> Outcome {
        let mut n = first;
        loop {
            if self.advance(n).is_err() {
                return self.outcome(Ok(0));
            }
            match self.transfer(fd, self.rw_flags) {
                Ok(more) if more > 0 && self.done + more < self.wanted() => n = more,
                other => return self.outcome(other),
            }
        }
    }

    /// The transfer as Linux AIO takes it; `data` identifies its completion.
    pub(crate) fn aio_request(&self, fd: i32, data: u64) -> AioRequest {
        let op = match (self.is_write, self.is_vectored) {
            (false, false) => AioOp::Pread,
            (false, true) => AioOp::Preadv,
            (true, false) => AioOp::Pwrite,
            (true, true) => AioOp::Pwritev,
        };
        AioRequest { op, fd, buf: UserPtr::at(self.addr), len: u64::from(self.len), off: self.off, rw_flags: self.rw_flags, data }
    }

    /// The outcome for a result of Linux AIO.
    pub(crate) fn aio_outcome(&mut self, res: i64) -> Outcome {
        self.outcome(if res < 0 { Err(Errno::new(-res as i32)) } else { Ok(res as usize) })
    }
}
