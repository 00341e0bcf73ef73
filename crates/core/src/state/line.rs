//! The line of what has to be issued, and where the right to issue it is. See `driver/uringlet/README.md`. Pure state, under the ring's
//! lock; it knows no ring, so that a model can have it all.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A loan is overdue after so many ticks: 50 to 250 µs.
pub(crate) const OVERDUE_TICKS: u64 = 250_000;

/// The right to issue what is in line: one value a ring, moved to whoever issues. It cannot be cloned, so two issuers
/// cannot be written.
#[derive(Debug)]
pub(crate) struct Baton {
    /// Requests of this run so far.
    issued: u64,
}

/// Names one lending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loan(u64);

/// How a run ended that was not cut short by a succession.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// There was nothing to do.
    Empty,
    /// All was done by its worker.
    Inline,
}

#[derive(Debug)]
enum Seat<T> {
    Free(Baton),
    Held,
    /// Its holder is at `item`.
    Lent {
        baton: Baton,
        loan: Loan,
        item: T,
        since_ticks: u64,
    },
}

/// Who has to be told that there is something in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Call {
    Nobody,
    /// The one that spins.
    Spinner,
    /// An attendant: somebody must issue.
    Attendant,
    /// A standby: somebody must look after the holder.
    Standby,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Line<T> {
    waiting: VecDeque<T>,
    /// Files at which holders blocked and were succeeded: their later writes wait for them.
    blocked: Vec<i32>,
    held_back: VecDeque<(i32, T)>,
    seat: Seat<T>,
    loans: u64,
    /// An attendant is on its way.
    is_called: bool,
    /// A standby looks after the holder, or is on its way.
    is_watched: bool,
    /// Attendants that have left the baton, and look for more before they go.
    spinners: u32,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            blocked: Vec::new(),
            held_back: VecDeque::new(),
            seat: Seat::Free(Baton { issued: 0 }),
            loans: 0,
            is_called: false,
            is_watched: false,
            spinners: 0,
        }
    }
}

impl<T: Copy> Line<T> {
    /// Puts in line. Then [`call`](Self::call).
    pub(crate) fn push(&mut self, item: T) {
        self.waiting.push_back(item);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Who has to be told.
    pub(crate) fn call(&mut self, now_ticks: u64) -> Call {
        if self.waiting.is_empty() {
            return Call::Nobody;
        }
        let needs_issuer = match &self.seat {
            Seat::Free(_) if self.spinners > 0 => return Call::Spinner,
            Seat::Free(_) => true,
            Seat::Held => return Call::Nobody,
            Seat::Lent { since_ticks, .. } => is_overdue(*since_ticks, now_ticks),
        };
        if needs_issuer {
            return if core::mem::replace(&mut self.is_called, true) { Call::Nobody } else { Call::Attendant };
        }
        if core::mem::replace(&mut self.is_watched, true) { Call::Nobody } else { Call::Standby }
    }

    /// An attendant has come.
    pub(crate) fn answer_call(&mut self) {
        self.is_called = false;
    }

    /// The standby goes.
    pub(crate) fn end_watch(&mut self) {
        self.is_watched = false;
    }

    /// The baton, if nobody has it.
    pub(crate) fn take(&mut self) -> Option<Baton> {
        if !matches!(self.seat, Seat::Free(_)) {
            return None;
        }
        match core::mem::replace(&mut self.seat, Seat::Held) {
            Seat::Free(baton) => Some(baton),
            Seat::Held | Seat::Lent { .. } => None,
        }
    }

    /// The baton, if nobody has it, or its holder is blocked and there is something in line: then with what it is at.
    pub(crate) fn succeed(&mut self, now_ticks: u64) -> Option<(Baton, Option<T>)> {
        if let Some(baton) = self.take() {
            return Some((baton, None));
        }
        let is_blocked = matches!(self.seat, Seat::Lent { since_ticks, .. } if is_overdue(since_ticks, now_ticks));
        if self.waiting.is_empty() || !is_blocked {
            return None;
        }
        match core::mem::replace(&mut self.seat, Seat::Held) {
            Seat::Lent { mut baton, item, .. } => {
                baton.issued = 0;
                Some((baton, Some(item)))
            }
            Seat::Free(_) | Seat::Held => None,
        }
    }

    /// The holder takes the next in line.
    pub(crate) fn next(&mut self, baton: &mut Baton) -> Option<T> {
        let item = self.waiting.pop_front()?;
        baton.issued += 1;
        Some(item)
    }

    /// The holder is about to do what may block: whoever finds it blocked may take the baton.
    pub(crate) fn lend(&mut self, baton: Baton, item: T, now_ticks: u64) -> Loan {
        self.loans += 1;
        let loan = Loan(self.loans);
        self.seat = Seat::Lent { baton, loan, item, since_ticks: now_ticks };
        loan
    }

    /// The holder is back: the baton, unless somebody was faster.
    pub(crate) fn take_back(&mut self, own: Loan) -> Option<Baton> {
        if !matches!(self.seat, Seat::Lent { loan, .. } if loan == own) {
            return None;
        }
        match core::mem::replace(&mut self.seat, Seat::Held) {
            Seat::Lent { baton, .. } => Some(baton),
            Seat::Free(_) | Seat::Held => None,
        }
    }

    /// The holder has found the line empty: the run is over.
    pub(crate) fn leave(&mut self, mut baton: Baton) -> Run {
        let issued = core::mem::take(&mut baton.issued);
        self.seat = Seat::Free(baton);
        if issued == 0 { Run::Empty } else { Run::Inline }
    }

    /// A holder that writes to this file was succeeded.
    pub(crate) fn block(&mut self, file: i32) {
        self.blocked.push(file);
    }

    /// Whether one of them has not come back.
    pub(crate) fn is_blocked(&self, file: i32) -> bool {
        self.blocked.contains(&file)
    }

    /// A write to such a file must not overtake the one that is blocked.
    pub(crate) fn hold_back(&mut self, file: i32, item: T) {
        self.held_back.push_back((file, item));
    }

    /// One of them is back: what was held back is next in line.
    pub(crate) fn unblock(&mut self, file: i32) {
        let Some(at) = self.blocked.iter().position(|&other| other == file) else { return };
        self.blocked.swap_remove(at);
        let held_back = core::mem::take(&mut self.held_back);
        let (back, rest): (VecDeque<_>, VecDeque<_>) = held_back.into_iter().partition(|&(other, _)| other == file);
        self.held_back = rest;
        back.into_iter().rev().for_each(|(_, item)| self.waiting.push_front(item));
    }

    /// An attendant begins to look for more, without the lock.
    pub(crate) fn begin_spin(&mut self) {
        self.spinners += 1;
    }

    /// It has seen enough.
    pub(crate) fn end_spin(&mut self) {
        self.spinners -= 1;
    }
}

fn is_overdue(since_ticks: u64, now_ticks: u64) -> bool {
    now_ticks.saturating_sub(since_ticks) > OVERDUE_TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: u64 = OVERDUE_TICKS + 2;

    fn line(items: &[u32]) -> Line<u32> {
        let mut line = Line::default();
        items.iter().for_each(|&item| line.push(item));
        line
    }

    #[test]
    fn a_run_without_blocking_keeps_the_baton() {
        let mut line = line(&[1, 2]);
        assert_eq!(line.call(0), Call::Attendant);
        assert_eq!(line.call(0), Call::Nobody, "called twice");
        line.answer_call();
        let mut baton = line.take().expect("nobody has it");
        assert!(line.take().is_none(), "two batons");
        assert_eq!(line.next(&mut baton), Some(1));
        let loan = line.lend(baton, 1, 1);
        assert!(line.succeed(2).is_none(), "not yet overdue");
        let mut baton = line.take_back(loan).expect("nobody was faster");
        assert_eq!(line.next(&mut baton), Some(2));
        assert_eq!(line.next(&mut baton), None);
        assert_eq!(line.leave(baton), Run::Inline);
        assert_eq!(line.call(0), Call::Nobody);
    }

    #[test]
    fn a_blocked_holder_is_succeeded_once_and_finds_its_loan_gone() {
        let mut line = line(&[1, 2]);
        let mut baton = line.take().expect("nobody has it");
        line.next(&mut baton);
        let loan = line.lend(baton, 1, 1);
        let (baton, blocked) = line.succeed(1 + LATE).expect("overdue");
        assert_eq!(blocked, Some(1));
        assert!(line.succeed(1 + LATE).is_none(), "two batons");
        assert!(line.take_back(loan).is_none(), "two batons");
        let second = line.lend(baton, 2, 1 + LATE);
        assert!(line.take_back(loan).is_none(), "another one's loan");
        assert!(line.take_back(second).is_some());
    }

    #[test]
    fn nobody_succeeds_a_blocked_holder_for_nothing() {
        let mut line = line(&[1]);
        let mut baton = line.take().expect("nobody has it");
        line.next(&mut baton);
        let loan = line.lend(baton, 1, 1);
        assert!(line.succeed(1 + LATE).is_none(), "the line is empty");
        let baton = line.take_back(loan).expect("its own");
        assert_eq!(line.leave(baton), Run::Inline);
    }

    #[test]
    fn who_is_called() {
        let mut line = line(&[1, 2]);
        let mut baton = line.take().expect("nobody has it");
        assert_eq!(line.call(0), Call::Nobody, "the holder looks again");
        line.next(&mut baton);
        let loan = line.lend(baton, 1, 1);
        assert_eq!(line.call(2), Call::Standby);
        assert_eq!(line.call(2), Call::Nobody, "it is watched");
        assert_eq!(line.call(1 + LATE), Call::Attendant, "blocked: no need to wait for the standby");
        line.answer_call();
        let mut baton = line.take_back(loan).expect("its own");
        line.next(&mut baton);
        line.leave(baton);
        line.begin_spin();
        line.push(3);
        assert_eq!(line.call(2), Call::Spinner);
        line.end_spin();
        assert_eq!(line.call(2), Call::Attendant);
    }

    #[test]
    fn what_is_behind_a_blocked_write_waits_for_it() {
        let mut line = line(&[4]);
        line.block(7);
        assert!(line.is_blocked(7) && !line.is_blocked(8));
        line.hold_back(7, 1);
        line.hold_back(8, 2);
        line.hold_back(7, 3);
        line.unblock(7);
        assert!(!line.is_blocked(7));
        let mut baton = line.take().expect("nobody has it");
        let next: Vec<_> = core::iter::from_fn(|| line.next(&mut baton)).collect();
        assert_eq!(next, [1, 3, 4]);
    }

    #[test]
    fn a_run_that_finds_nothing_says_so() {
        let mut line = line(&[]);
        let baton = line.take().expect("nobody has it");
        assert_eq!(line.leave(baton), Run::Empty);
    }
}
