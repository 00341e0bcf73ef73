//! The threads of a ring's own workers. A runner takes the baton, runs what is queued and looks for
//! more for a while. A monitor watches the holder of the baton and takes over when it is blocked.
//! Generic, so that the model runs them too.

use super::run_queue::{Baton, RunEnd};
use super::step::{Host, IssueStep, wake};
use super::workers::WorkerRole;

/// Looks of a monitor with nothing queued before it ends.
const QUIET_LOOKS: u32 = if cfg!(loom) { 1 } else { 16 };

/// A worker's view of the host.
pub(super) trait RunQueueWorker {
    type Host: Host;
    /// What is to be done when the lock is released.
    type Exit;

    /// Locks the host; `None` if it has ended.
    fn lock(&self) -> Option<GuardOf<Self>>;

    /// The number of this thread, by which a cancel interrupts it.
    fn tid(&self) -> u32;

    /// Runs an op. The lock is not held.
    fn run(&self, op: &mut OpOf<Self>) -> OutcomeOf<Self>;

    fn note_run(&self, end: RunEnd);

    /// Prepares the release of the lock.
    fn exit_action(guard: &mut GuardOf<Self>) -> Self::Exit;

    /// Releases the lock.
    fn exit(guard: GuardOf<Self>, exit: Self::Exit);

    /// Releases the lock when the worker is done with the host.
    fn release(guard: GuardOf<Self>);

    /// Whether to look for more without the lock.
    fn may_spin(&self, exit: &Self::Exit) -> bool;

    /// A word that changes when something is queued while a worker spins.
    fn event_seq(&self) -> u32;

    /// Waits a while for [`event_seq`](Self::event_seq) to differ from `seen`.
    fn spin(&self, seen: u32);

    /// A monitor's pause between two looks.
    fn pause(&self);
}

pub(super) type GuardOf<W> = <<W as RunQueueWorker>::Host as Host>::Guard;
type IdOf<W> = <<W as RunQueueWorker>::Host as Host>::Id;
type OpOf<W> = <<W as RunQueueWorker>::Host as Host>::Op;
type OutcomeOf<W> = <<W as RunQueueWorker>::Host as Host>::Outcome;

/// What a worker takes over: the baton, and the item that its old holder is blocked in.
struct Takeover<W: RunQueueWorker + ?Sized> {
    guard: GuardOf<W>,
    baton: Baton,
    blocked: Option<IdOf<W>>,
}

/// A worker's task.
pub(super) fn work<W: RunQueueWorker>(worker: &W, role: WorkerRole) {
    let takeover = match role {
        WorkerRole::Runner => start(worker),
        WorkerRole::Monitor => monitor(worker),
    };
    if let Some(takeover) = takeover {
        run(worker, takeover);
    }
}

fn start<W: RunQueueWorker>(worker: &W) -> Option<Takeover<W>> {
    let mut guard = worker.lock()?;
    W::Host::queue(&mut guard).worker_started();
    let now = W::Host::now_ticks(&guard);
    match W::Host::queue(&mut guard).steal(now) {
        Some((baton, blocked)) => Some(Takeover { guard, baton, blocked }),
        None => {
            W::release(guard);
            None
        }
    }
}

/// Runs one item after the other, until the baton is stolen or no more come.
fn run<W: RunQueueWorker>(worker: &W, takeover: Takeover<W>) {
    let Takeover { mut guard, mut baton, blocked } = takeover;
    if let Some(file) = blocked.and_then(|id| W::Host::file_of(&mut guard, id)).flatten() {
        // Writes to this file wait for the blocked one, and later ones go to io-wq for a while.
        W::Host::note_blocked(&mut guard, file);
        W::Host::queue(&mut guard).block(file);
    }
    let tid = worker.tid();
    loop {
        let mut step = match IssueStep::<W::Host>::begin(&mut guard, baton, tid) {
            Ok(step) => step,
            Err(left) => match look_for_more(worker, guard, left) {
                Some(more) => {
                    (guard, baton) = more;
                    continue;
                }
                None => return,
            },
        };
        drop(guard);
        let outcome = worker.run(&mut step.op);
        let Some(locked) = worker.lock() else { return };
        guard = locked;
        match step.end(&mut guard, outcome) {
            Some(back) => baton = back,
            None => {
                worker.note_run(RunEnd::Scheduled);
                return W::release(guard);
            }
        }
    }
}

/// Releases the baton, and spins for more.
fn look_for_more<W: RunQueueWorker>(worker: &W, mut guard: GuardOf<W>, baton: Baton) -> Option<(GuardOf<W>, Baton)> {
    worker.note_run(W::Host::queue(&mut guard).release(baton));
    let exit = W::exit_action(&mut guard);
    if !worker.may_spin(&exit) {
        W::exit(guard, exit);
        return None;
    }
    W::Host::queue(&mut guard).begin_spin();
    let seen = worker.event_seq();
    W::exit(guard, exit);
    worker.spin(seen);
    let mut guard = worker.lock()?;
    W::Host::queue(&mut guard).end_spin();
    if W::Host::queue(&mut guard).is_empty() {
        return None;
    }
    match W::Host::queue(&mut guard).take_baton() {
        Some(baton) => Some((guard, baton)),
        None => {
            W::release(guard);
            None
        }
    }
}

/// Watches the holder while more is queued than it is running, and a little longer. Takes over from
/// a blocked one.
fn monitor<W: RunQueueWorker>(worker: &W) -> Option<Takeover<W>> {
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        worker.pause();
        let mut guard = worker.lock()?;
        if W::Host::queue(&mut guard).is_empty() {
            quiet += 1;
            continue;
        }
        quiet = 0;
        let now = W::Host::now_ticks(&guard);
        if let Some((baton, blocked)) = W::Host::queue(&mut guard).steal(now) {
            W::Host::queue(&mut guard).end_monitor();
            return Some(Takeover { guard, baton, blocked });
        }
    }
    let mut guard = worker.lock()?;
    W::Host::queue(&mut guard).end_monitor();
    wake::<W::Host>(&mut guard);
    W::release(guard);
    None
}
