//! io-wq's side of a request: a worker takes the op, runs it without the ring's lock and completes
//! the request.

use super::leave::release_ring_of_worker;
use super::{hybrid, sleeper};
use crate::io_wq::{InterruptGuard, Work};
use crate::ops::Op;
use crate::request::Outcome;
use crate::state::Punted;
use crate::submit::{TakenOp, complete_op, take_op};
use crate::write::history::Latency;
use uringlet_sys::Errno;
use uringlet_sys::clock::{ticks, voluntary_switches};

impl Work for Punted {
    fn run(self, interrupts: &InterruptGuard) {
        let taken = if self.is_hybrid {
            hybrid::try_first(&self, interrupts)
        } else {
            self.lock().and_then(|mut guard| take_op(&mut guard, self.id, interrupts.calling_thread()))
        };
        match taken {
            Some(taken) if matches!(taken.op, Op::Waitid(_) | Op::Futex(_)) => sleeper::run(&self, taken, interrupts),
            Some(taken) => run_to_the_end(&self, taken, interrupts),
            None => {}
        }
    }
}

/// Runs the op, which may sleep, and completes the request.
fn run_to_the_end(punted: &Punted, mut taken: TakenOp, interrupts: &InterruptGuard) {
    let timer = taken.op.is_write().then(WriteTimer::start);
    // `None`: cancelled before it began.
    let outcome = interrupts.run(|| taken.op.run(taken.fd)).unwrap_or_else(|| Outcome::err(Errno::ECANCELED));
    let latency = timer.map(|timer| timer.read(outcome));
    let Some(mut guard) = punted.lock() else { return };
    if complete_op(&mut guard, punted.id, taken, outcome, latency) {
        release_ring_of_worker(guard);
    }
}

/// Times a write on a worker. Losing the CPU does not count against the file.
struct WriteTimer {
    start: u64,
    sleeps: u64,
}

impl WriteTimer {
    fn start() -> Self {
        Self { sleeps: voluntary_switches(), start: ticks() }
    }

    fn read(self, outcome: Outcome) -> Latency {
        match Latency::of(ticks().wrapping_sub(self.start), outcome.res.max(0) as u64) {
            Latency::Slow if voluntary_switches() == self.sleeps => Latency::Fast,
            latency => latency,
        }
    }
}
