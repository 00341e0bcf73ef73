//! Buffered writes to files with positions.

use super::{MAX_LEN, Rw};
use crate::file::FileKind;
use crate::ops::{Issue, IssueCx};
use crate::ring_resources::LockOwner;
use crate::write::history::Latency;
use crate::write::path::{WriteCtx, WritePath, choose_path};
use crate::write::{self, WriteMode};
use uringlet_sys::Errno;
use uringlet_sys::clock::ticks;
use uringlet_sys::io::{self, RWF_NOWAIT};
use uringlet_sys::stats::{self, Counter};

impl Rw {
    /// A buffered write: how the file's writes went says who does it.
    pub(super) fn try_write(&mut self, cx: &mut IssueCx<'_>, kind: FileKind, may_raise_signal: bool) -> Issue {
        let fd = cx.file.fd;
        let bytes = match self.bytes_to_ask_for(cx) {
            Ok(bytes) => bytes,
            Err(errno) => return errno.into(),
        };
        let ctx = WriteCtx {
            bytes,
            mode: cx.ring.mode,
            history: write::history_of(fd),
            supports_nowait: kind.supports_nowait(true),
            is_synchronous: self.waits_for_disk(kind),
            may_raise_signal,
            is_caller: cx.ring.lock_owner == LockOwner::Submitter,
        };
        if ctx.mode != WriteMode::Workers {
            let reply = cx.ring.throttle.request(ctx.bytes);
            // Throttled writes of the file are among the queued ones.
            let reply = if ctx.history.has_queued() { cx.ring.throttle.in_order(fd, reply) } else { reply };
            if let Err(throttled) = reply {
                return Issue::Throttled(throttled);
            }
        }
        match choose_path(ctx) {
            WritePath::Inline => Issue::RunInline,
            WritePath::Nowait => self.write_nowait(cx, kind).unwrap_or(Issue::Blocks),
            WritePath::NowaitThenInline => self.write_nowait(cx, kind).unwrap_or(Issue::RunInline),
            WritePath::Worker => Issue::Blocks,
        }
    }

    /// How much is to be written. While the ring has a budget a vector's length is charged when it is written, and 0 here.
    fn bytes_to_ask_for(&mut self, cx: &IssueCx<'_>) -> Result<u64, Errno> {
        if !self.is_vectored {
            return Ok(u64::from(self.len));
        }
        if cx.ring.mode == WriteMode::Workers || cx.ring.throttle.covers(ticks(), 1) {
            return Ok(0);
        }
        self.import_args()?;
        Ok(self.iovecs.iter().flatten().map(|v| v.len).sum::<u64>().min(MAX_LEN as u64))
    }

    /// As much as the file takes without waiting; a worker does the rest. `None`: nothing was done.
    fn write_nowait(&mut self, cx: &mut IssueCx<'_>, kind: FileKind) -> Option<Issue> {
        let (fd, ring_index) = (cx.file.fd, cx.ring.ring_index);
        let start = ticks();
        let res = self.transfer(fd, self.rw_flags | RWF_NOWAIT);
        let n = *res.as_ref().unwrap_or(&0);
        cx.ring.throttle.charge(n as u64);
        if Latency::of(ticks().wrapping_sub(start), n as u64) == Latency::Slow {
            write::after_inline(ring_index, fd, Latency::Slow);
        }
        match res {
            Ok(n) if n > 0 && self.done + n < self.wanted() => {
                stats::short_write(ring_index, self.off as u64, self.wanted() as u64, (self.done + n) as u64);
                Some(self.advance(n).map_or_else(Issue::from, |()| Issue::Blocks))
            }
            Ok(n) => {
                stats::bump(ring_index, Counter::WritesNowait);
                write::after_worker(ring_index, fd, Latency::Fast);
                Some(self.finish(Ok(n)))
            }
            Err(Errno::EAGAIN) => None,
            Err(Errno::EOPNOTSUPP) => {
                kind.note_nowait_unsupported(fd, true);
                None
            }
            Err(errno) => Some(self.finish(Err(errno))),
        }
    }

    /// Whether a write ends only when the disk has it.
    pub(crate) fn waits_for_disk(&self, kind: FileKind) -> bool {
        kind.is_synchronous() || self.rw_flags & (io::RWF_DSYNC | io::RWF_SYNC) != 0
    }
}
