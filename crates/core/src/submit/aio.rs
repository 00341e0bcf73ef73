//! Transfers by the kernel's AIO: O_DIRECT files, whose transfers it runs without a thread.

use super::complete::complete;
use super::link_timeout;
use super::punt::punt;
use crate::file::{FileKind, IoDirection};
use crate::ops::{Op, OpFile};
use crate::request::{Outcome, ReqId, Request, Stage};
use crate::state::UringGuard;
use uringlet_sys::Errno;
use uringlet_sys::aio::{Aio, AioEvent, report_read, report_write};
use uringlet_sys::required_calls::is_denial;

/// The most requests that one ring has with the kernel's AIO.
const DEPTH: u32 = 1024;
/// Completions that one reap takes.
const EVENTS: usize = 128;

/// Hands a request to the kernel's AIO, or to a worker if the AIO refuses it.
#[inline(never)]
pub(super) fn submit_aio(guard: &mut UringGuard, req: Request, file: OpFile) {
    if guard.aio.is_none() && make_context(guard).is_err() || guard.aio_in_flight >= DEPTH {
        return punt(guard, req, file);
    }
    let id = guard.park(req, Stage::Aio);
    match hand_over(guard, id, file) {
        Ok(()) => {
            guard.aio_in_flight += 1;
            link_timeout::start(guard, id);
        }
        Err(errno) => {
            let Some(parked) = guard.unpark(id) else { return };
            match errno {
                Errno::EAGAIN | Errno::EOPNOTSUPP => punt(guard, parked.req, file),
                errno if is_denial(errno) => punt(guard, parked.req, file),
                errno => complete(guard, parked.req, Outcome::err(errno)),
            }
        }
    }
}

fn hand_over(guard: &mut UringGuard, id: ReqId, file: OpFile) -> Result<(), Errno> {
    let request = match guard.parked(id).map(|parked| &parked.req.op) {
        Some(Op::Rw(op)) => op.aio_request(file.fd, id.to_u64()),
        _ => return Err(Errno::EINVAL),
    };
    let eventfd = guard.res.poller()?.wake_eventfd.number();
    guard.aio.as_ref().ok_or(Errno::ENOSYS)?.submit(&request, eventfd)
}

fn make_context(guard: &mut UringGuard) -> Result<(), Errno> {
    let depth = guard.res.memory.geometry().cq_entries.clamp(16, DEPTH);
    guard.aio = Some(Aio::new(depth)?);
    Ok(())
}

/// The files of which transfers were reported to their watchers in one reap. Like events are merged
/// until the watcher reads them, so one of each kind tells as much as many.
#[derive(Default)]
struct Reported {
    last_read: Option<i32>,
    last_written: Option<i32>,
}

impl Reported {
    /// Reports a transfer, unless it is known to be like the last one. To be called before its CQE
    /// can be seen.
    fn report(&mut self, number: Option<i32>, direction: IoDirection) {
        // The number may have been closed unseen, and be another file's.
        let Some(fd) = number.filter(|&fd| FileKind::of(fd).is_direct()) else { return };
        match direction {
            IoDirection::Read if self.last_read.replace(fd) != Some(fd) => report_read(fd),
            IoDirection::Write if self.last_written.replace(fd) != Some(fd) => report_write(fd),
            _ => {}
        }
    }
}

/// Completes the transfers that the kernel's AIO has finished.
pub(crate) fn reap(guard: &mut UringGuard) {
    let mut events = [AioEvent::default(); EVENTS];
    while let Some(aio) = &guard.aio {
        let n = aio.reap(&mut events);
        let mut reported = Reported::default();
        for event in &events[..n] {
            guard.aio_in_flight -= 1;
            let Some(mut parked) = ReqId::from_u64(event.data).and_then(|id| guard.unpark(id)) else { continue };
            let number = parked.req.open_number();
            let Op::Rw(op) = &mut parked.req.op else { continue };
            if event.res >= 0 {
                reported.report(number, op.io_direction());
            }
            let outcome = op.aio_outcome(event.res);
            complete(guard, parked.req, outcome);
        }
        if n < EVENTS {
            return;
        }
    }
}
