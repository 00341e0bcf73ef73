//! A cancel that a forked child asks of the process that made a ring: each process has its own
//! requests, and only it can cancel them.
//!
//! It lies beside the ring's [`BiasedLock`](crate::biased_lock::BiasedLock), and is read and
//! written under that lock. The words are atomics because processes share them.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// What to cancel: the fields of `IORING_OP_ASYNC_CANCEL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelQuestion {
    /// `IORING_ASYNC_CANCEL_*`.
    pub flags: u32,
    /// Descriptor, or index of a registered file.
    pub fd: i32,
    /// Opcode, with `IORING_ASYNC_CANCEL_OP`.
    pub opcode: u32,
    /// User data of the request to cancel.
    pub user_data: u64,
}

/// Whether a thread of the maker looks after the ring, and would answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The maker has not used the ring since it is shared.
    Unknown,
    /// One does.
    Yes,
    /// None does: the maker has nothing armed, and no thread waits.
    No,
}

const NOBODY: u32 = 0;
/// Values of `served`; 0 is neither.
const YES: u32 = 1;
const NO: u32 = 2;

/// See the module. All zero: nothing is asked.
#[derive(Debug, Default)]
#[repr(C)]
pub struct RemoteCancel {
    served: AtomicU32,
    /// The process that asks.
    asker: AtomicU32,
    is_answered: AtomicU32,
    answer: AtomicI32,
    flags: AtomicU32,
    fd: AtomicI32,
    opcode: AtomicU32,
    user_data: AtomicU64,
}

impl RemoteCancel {
    /// Whether the maker would answer.
    #[must_use]
    pub fn served(&self) -> Served {
        match self.served.load(Relaxed) {
            YES => Served::Yes,
            NO => Served::No,
            _ => Served::Unknown,
        }
    }

    /// The maker, or a process that has waited for it in vain, says whether it looks after the
    /// ring.
    pub fn set_served(&self, is_served: bool) {
        self.served.store(if is_served { YES } else { NO }, Relaxed);
    }

    /// The process that asks, if one does.
    #[must_use]
    pub fn asker(&self) -> Option<u32> {
        Some(self.asker.load(Relaxed)).filter(|&pid| pid != NOBODY)
    }

    /// Asks, in the name of the process `pid`. A question that another process asked is forgotten.
    pub fn ask(&self, pid: u32, question: CancelQuestion) {
        self.flags.store(question.flags, Relaxed);
        self.fd.store(question.fd, Relaxed);
        self.opcode.store(question.opcode, Relaxed);
        self.user_data.store(question.user_data, Relaxed);
        self.is_answered.store(0, Relaxed);
        self.asker.store(pid, Relaxed);
    }

    /// The question that has no answer yet.
    #[must_use]
    pub fn question(&self) -> Option<CancelQuestion> {
        let is_open = self.asker().is_some() && self.is_answered.load(Relaxed) == 0;
        is_open.then(|| CancelQuestion {
            flags: self.flags.load(Relaxed),
            fd: self.fd.load(Relaxed),
            opcode: self.opcode.load(Relaxed),
            user_data: self.user_data.load(Relaxed),
        })
    }

    /// Answers: the number of requests, or an error number below 0.
    pub fn answer(&self, result: i32) {
        self.answer.store(result, Relaxed);
        self.is_answered.store(1, Relaxed);
    }

    /// The answer, if it is there, to the process `pid`. The next question may be asked.
    #[must_use]
    pub fn take_answer(&self, pid: u32) -> Option<i32> {
        let is_there = self.asker() == Some(pid) && self.is_answered.load(Relaxed) != 0;
        is_there.then(|| {
            self.withdraw(pid);
            self.answer.load(Relaxed)
        })
    }

    /// The process `pid` asks no longer.
    pub fn withdraw(&self, pid: u32) {
        if self.asker() == Some(pid) {
            self.asker.store(NOBODY, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_once_and_to_its_asker() {
        let remote = RemoteCancel::default();
        assert_eq!((remote.served(), remote.question()), (Served::Unknown, None));
        let question = CancelQuestion { flags: 2, fd: -1, opcode: u32::MAX, user_data: 7 };
        remote.ask(5, question);
        assert_eq!((remote.question(), remote.take_answer(5)), (Some(question), None));
        remote.answer(-2);
        assert_eq!((remote.question(), remote.take_answer(6)), (None, None));
        assert_eq!((remote.take_answer(5), remote.take_answer(5)), (Some(-2), None));
    }

    #[test]
    fn a_withdrawn_question_is_not_found() {
        let remote = RemoteCancel::default();
        remote.ask(5, CancelQuestion { flags: 0, fd: 3, opcode: 0, user_data: 1 });
        remote.withdraw(6);
        assert!(remote.question().is_some());
        remote.withdraw(5);
        assert_eq!((remote.question(), remote.asker()), (None, None));
    }
}
