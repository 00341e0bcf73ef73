//! Which metadata operations a deep submission runs itself: those that were quick lately. A cached
//! lookup takes less than the hop to a worker; one that reads the disk would keep the SQEs behind
//! it waiting, which workers do at the same time.
//!
//! Once an operation went to a worker, the rest of its kind in this submission goes there, too:
//! here it would wait for the worker, which may hold the lock of the same directory.

use crate::write::history::{History, Latency};
use uringlet_abi::Opcode;

/// What takes longer has waited for a disk or a lock: 20 to 40 µs.
const SLOW_TICKS: u64 = 80_000;

const OPCODES: usize = Opcode::LAST as usize;

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct OpcodePace {
    history: History,
    /// The submission in which one went to a worker last.
    sent_away_in: u32,
}

/// Of one ring, by opcode.
#[derive(Debug)]
pub(crate) struct MetadataPace {
    opcodes: [OpcodePace; OPCODES],
    /// Deep submissions so far.
    submission: u32,
}

impl Default for MetadataPace {
    fn default() -> Self {
        Self { opcodes: [OpcodePace::default(); OPCODES], submission: 1 }
    }
}

impl MetadataPace {
    /// A deep submission begins.
    pub(crate) fn begin_submission(&mut self) {
        self.submission = self.submission.wrapping_add(1);
    }

    /// Whether the next operation is expected to be quick.
    #[inline]
    pub(crate) fn is_quick(&self, opcode: Opcode) -> bool {
        let pace = &self.opcodes[opcode as usize];
        pace.history.is_fast() && pace.sent_away_in != self.submission
    }

    /// The submitter has run one, in so many ticks.
    #[inline]
    pub(crate) fn note_inline(&mut self, opcode: Opcode, ticks: u64) {
        let took = if ticks > SLOW_TICKS { Latency::Slow } else { Latency::Fast };
        let pace = &mut self.opcodes[opcode as usize];
        pace.history = pace.history.after_inline(took);
    }

    /// One went to a worker. After some of these the submitter tries one again.
    pub(crate) fn note_sent_away(&mut self, opcode: Opcode) {
        let pace = &mut self.opcodes[opcode as usize];
        pace.history = pace.history.after_worker(Latency::Fast);
        pace.sent_away_in = self.submission;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slow_operations_send_ever_more_of_their_kind_away() {
        let mut pace = MetadataPace::default();
        for sent_away in [1, 4, 16, 64] {
            assert!(pace.is_quick(Opcode::Statx));
            pace.note_inline(Opcode::Statx, SLOW_TICKS + 1);
            for _ in 0..sent_away {
                pace.begin_submission();
                assert!(!pace.is_quick(Opcode::Statx) && pace.is_quick(Opcode::Unlinkat));
                pace.note_sent_away(Opcode::Statx);
            }
            assert!(!pace.is_quick(Opcode::Statx));
            pace.begin_submission();
        }
        assert!(pace.is_quick(Opcode::Statx));
    }

    #[test]
    fn quick_operations_are_forgiven() {
        let mut pace = MetadataPace::default();
        for opcode in [Opcode::Close; 3] {
            pace.note_inline(opcode, SLOW_TICKS + 1);
            pace.note_sent_away(opcode);
            pace.begin_submission();
            assert!(pace.is_quick(opcode));
            (0..64).for_each(|_| pace.note_inline(opcode, SLOW_TICKS));
        }
    }
}
