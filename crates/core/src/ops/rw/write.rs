//! Buffered writes to files with positions.

use super::Rw;
use crate::file::FileKind;
use crate::ops::{Issue, IssueCx};
use crate::ring::Context;
use crate::write::history::Took;
use crate::write::path::{Facts, Road, road};
use crate::write::{self, Mode, Paced};
use uringlet_sys::Errno;
use uringlet_sys::io::{self, RWF_NOWAIT};
use uringlet_sys::stats::{self, Counter};
use uringlet_sys::stopwatch::ticks;

impl Rw {
    /// A buffered write: how the file's writes went says who does it.
    pub(super) fn try_write(&mut self, cx: &mut IssueCx<'_>, kind: FileKind, may_raise_signal: bool) -> Issue {
        let fd = cx.file.fd;
        // A vector's length is known when it is written.
        let bytes = if self.is_vectored { 0 } else { u64::from(self.len) };
        let facts = Facts {
            bytes,
            mode: cx.state.mode,
            history: write::history_of(fd),
            takes_nowait: kind.takes_nowait(true),
            is_synchronous: self.waits_for_disk(kind),
            may_raise_signal,
            is_caller: cx.state.context() == Context::Submitter,
        };
        if facts.mode != Mode::Workers
            && let Err(Paced { deadline_ns }) = cx.state.allowance.ask(bytes)
        {
            return Issue::Paced(deadline_ns);
        }
        match road(facts) {
            Road::Inline => Issue::Quick,
            Road::Nowait => self.write_nowait(cx, kind).unwrap_or(Issue::Blocks),
            Road::NowaitThenInline => self.write_nowait(cx, kind).unwrap_or(Issue::Quick),
            Road::Worker => Issue::Blocks,
        }
    }

    /// As much as the file takes without waiting; a worker does the rest. `None`: nothing was done.
    fn write_nowait(&mut self, cx: &mut IssueCx<'_>, kind: FileKind) -> Option<Issue> {
        let (fd, place) = (cx.file.fd, cx.state.place);
        let start = ticks();
        let res = self.transfer(fd, self.rw_flags | RWF_NOWAIT);
        let n = *res.as_ref().unwrap_or(&0);
        cx.state.allowance.charge(n as u64);
        if Took::of(ticks().wrapping_sub(start), n as u64) == Took::Long {
            write::after_inline(place, fd, Took::Long);
        }
        match res {
            Ok(n) if n > 0 && self.done + n < self.wanted() => {
                stats::short_write(place, self.off as u64, self.wanted() as u64, (self.done + n) as u64);
                Some(self.advance(n).map_or_else(Issue::from, |()| Issue::Blocks))
            }
            Ok(n) => {
                stats::bump(place, Counter::WritesNowait);
                write::after_elsewhere(place, fd, Took::Quick);
                Some(self.finish(Ok(n)))
            }
            Err(Errno::EAGAIN) => None,
            Err(Errno::EOPNOTSUPP) => {
                kind.refuses_nowait(fd, true);
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
