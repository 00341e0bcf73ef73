//! Buffered writes to files with positions.

use super::{MAX_LEN, Rw, refuses_nowait};
use crate::file::{FileKind, IoDirection};
use crate::ops::issue::{Issue, IssueCx, OpFamily};
use crate::ring_resources::LockOwner;
use crate::route::{Route, Step, TransferFacts, Tried, WriteFacts, WriteSpeed, is_large, route};
use crate::write::history::Latency;
use crate::write::{self, WriteMode};
use uringlet_sys::Errno;
use uringlet_sys::clock::ticks;
use uringlet_sys::io::RWF_NOWAIT;
use uringlet_sys::stats::{self, Counter};

impl Rw {
    /// Issues a buffered write, or an `O_DIRECT` one that cannot go to AIO.
    pub(super) fn try_write(&mut self, cx: &mut IssueCx<'_>, kind: FileKind, facts: TransferFacts) -> Issue {
        let (fd, mode) = (cx.file.fd, cx.ring.mode);
        let bytes = match self.bytes_to_ask_for(cx) {
            Ok(bytes) => bytes,
            Err(errno) => return errno.into(),
        };
        let history = write::history_of(fd);
        let mut budget = Ok(());
        // Rings in this mode have no dirty budget.
        if mode != WriteMode::Workers {
            budget = cx.ring.throttle.request(bytes);
            // Throttled writes of the file are among the queued ones.
            budget = if history.has_queued() { cx.ring.throttle.in_order(fd, budget) } else { budget };
        }
        let write = WriteFacts {
            has_budget: budget.is_ok(),
            speed: WriteSpeed::of(history),
            has_queued: history.has_queued(),
            waits_for_disk: self.waits_for_disk(kind),
            is_submitter: cx.ring.lock_owner == LockOwner::Submitter,
            is_large: is_large(bytes),
        };
        // Also after the try, for which the facts are those of before it.
        let ask = |tried| route(kind, mode, Step::Transfer(TransferFacts { tried, write, ..facts }));
        match (ask(Tried::No), budget) {
            (Route::Throttle, Err(throttled)) => Issue::Throttled(throttled),
            (Route::Try, _) => self.write_nowait(cx, kind).unwrap_or_else(|tried| issue_of(ask(tried))),
            (route, _) => issue_of(route),
        }
    }

    /// Bytes to request from the dirty budget. While the budget lasts the length of a vector is
    /// charged after the write, and 0 here.
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

    /// Writes as much as the file takes without waiting. `Err`: bytes are left to write.
    fn write_nowait(&mut self, cx: &mut IssueCx<'_>, kind: FileKind) -> Result<Issue, Tried> {
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
                self.advance(n).map_or_else(|errno| Ok(errno.into()), |()| Err(Tried::Short))
            }
            Ok(n) => {
                stats::bump(ring_index, Counter::WritesNowait);
                write::after_worker(ring_index, fd, Latency::Fast);
                Ok(self.finish_transfer(Ok(n)))
            }
            Err(Errno::EAGAIN) => Err(Tried::WouldBlock),
            Err(errno) if refuses_nowait(errno) => {
                kind.note_nowait_unsupported(fd, IoDirection::Write);
                Err(Tried::WouldBlock)
            }
            Err(errno) => Ok(self.finish_transfer(Err(errno))),
        }
    }
}

fn issue_of(route: Route) -> Issue {
    if route == Route::Inline { Issue::RunInline } else { Issue::Blocks }
}
