//! What those who watch a file (inotify, fanotify) are told of transfers by the kernel's AIO, which
//! tells them nothing.

use crate::file::{FileKind, IoDirection};
use alloc::vec::Vec;
use uringlet_sys::aio::{report_read, report_write};

/// A report of a write costs as much as half a transfer. Like events are merged until the watcher
/// reads them, so one tells as much as many; but it is not to be late.
const TRANSFERS_PER_REPORT: u32 = 16;
/// Files whose transfers are counted at the same time: a database writes to several in turns.
const FILES: usize = 16;

/// Transfers of one file in one direction that were not reported yet.
#[derive(Debug)]
struct Unreported {
    fd: i32,
    kind: FileKind,
    direction: IoDirection,
    count: u32,
}

impl Unreported {
    fn report(&self) {
        // The number may have been closed, and be another file's.
        if FileKind::of(self.fd) != self.kind {
            return;
        }
        match self.direction {
            IoDirection::Read => report_read(self.fd),
            IoDirection::Write => report_write(self.fd),
        }
    }
}

/// Of one ring.
#[derive(Debug, Default)]
pub(crate) struct TransferReports {
    unreported: Vec<Unreported>,
}

impl TransferReports {
    /// Notes a successful transfer. To be called before its CQE can be seen.
    pub(crate) fn note(&mut self, fd: i32, direction: IoDirection) {
        let kind = FileKind::of(fd);
        if !kind.is_direct() {
            return;
        }
        let known = self.unreported.iter().position(|one| (one.fd, one.kind, one.direction) == (fd, kind, direction));
        let Some(at) = known else {
            if self.unreported.len() == FILES {
                self.flush();
            }
            return self.unreported.push(Unreported { fd, kind, direction, count: 1 });
        };
        self.unreported[at].count += 1;
        if self.unreported[at].count == TRANSFERS_PER_REPORT {
            self.unreported.swap_remove(at).report();
        }
    }

    /// Reports what is left: nothing more is in flight, or a number is about to be closed.
    pub(crate) fn flush(&mut self) {
        self.unreported.drain(..).for_each(|left| left.report());
    }
}
