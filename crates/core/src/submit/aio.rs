//! Transfers by the kernel's AIO: O_DIRECT files, whose transfers it runs without a thread.

use super::complete::complete;
use super::link_timeout;
use super::punt::punt;
use crate::ops::{Op, OpFile};
use crate::request::{Outcome, ReqId, Request, Stage};
use crate::state::UringGuard;
use uringlet_sys::Errno;
use uringlet_sys::aio::{Aio, AioEvent};
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

/// Completes the transfers that the kernel's AIO has finished.
pub(crate) fn reap(guard: &mut UringGuard) {
    let mut events = [AioEvent::default(); EVENTS];
    while let Some(aio) = &guard.aio {
        let n = aio.reap(&mut events);
        for event in &events[..n] {
            guard.aio_in_flight -= 1;
            let Some(mut parked) = ReqId::from_u64(event.data).and_then(|id| guard.unpark(id)) else { continue };
            let (number, closes_its_number) = (parked.req.open_number(), parked.req.closes_its_number());
            let Op::Rw(op) = &mut parked.req.op else { continue };
            if let Some(fd) = number.filter(|_| event.res >= 0) {
                guard.transfer_reports.note(fd, op.io_direction());
            }
            if closes_its_number {
                guard.transfer_reports.flush();
            }
            let outcome = op.aio_outcome(event.res);
            complete(guard, parked.req, outcome);
        }
        if n < EVENTS {
            break;
        }
    }
    if guard.aio_in_flight == 0 {
        guard.transfer_reports.flush();
    }
}
