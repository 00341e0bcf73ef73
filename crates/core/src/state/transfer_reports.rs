//! What those who watch a file (inotify, fanotify) are told of transfers by the kernel's AIO, which
//! tells them nothing.

use crate::file::{FileKind, IoDirection};
use uringlet_sys::aio::{report_read, report_write};

/// A report of a write costs as much as half a transfer. Like events are merged until the watcher
/// reads them, so one tells as much as many; but it is not to be late.
const TRANSFERS_PER_REPORT: u32 = 16;

/// Transfers of one file in one direction that were not reported yet.
#[derive(Debug)]
struct Unreported {
    fd: i32,
    kind: FileKind,
    count: u32,
}

impl Unreported {
    fn report(&self, direction: IoDirection) {
        // The number may have been closed, and be another file's.
        if FileKind::of(self.fd) != self.kind {
            return;
        }
        match direction {
            IoDirection::Read => report_read(self.fd),
            IoDirection::Write => report_write(self.fd),
        }
    }
}

/// Of one ring.
#[derive(Debug, Default)]
pub(crate) struct TransferReports {
    read: Option<Unreported>,
    written: Option<Unreported>,
}

impl TransferReports {
    fn of(&mut self, direction: IoDirection) -> &mut Option<Unreported> {
        match direction {
            IoDirection::Read => &mut self.read,
            IoDirection::Write => &mut self.written,
        }
    }

    /// Notes a successful transfer. To be called before its CQE can be seen.
    pub(crate) fn note(&mut self, fd: i32, direction: IoDirection) {
        let kind = FileKind::of(fd);
        if !kind.is_direct() {
            return;
        }
        let unreported = self.of(direction);
        match unreported {
            Some(same) if (same.fd, same.kind) == (fd, kind) => same.count += 1,
            _ => {
                if let Some(other) = unreported.replace(Unreported { fd, kind, count: 1 }) {
                    other.report(direction);
                }
            }
        }
        if let Some(due) = unreported.take_if(|now| now.count >= TRANSFERS_PER_REPORT) {
            due.report(direction);
        }
    }

    /// Reports what is left: nothing more is in flight, or a number is about to be closed.
    pub(crate) fn flush(&mut self) {
        for direction in [IoDirection::Read, IoDirection::Write] {
            if let Some(left) = self.of(direction).take() {
                left.report(direction);
            }
        }
    }
}
