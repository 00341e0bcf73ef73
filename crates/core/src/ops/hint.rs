//! What `IOSQE_ASYNC` does with what may wait for others: who makes the first try.
//!
//! The flag asks to spare the submitter what would block, or take long. A small transfer on a socket does neither: it is
//! tried without sleeping, and up to [`LIGHT`] it costs little more than any system call on that socket. Handing it over
//! costs more than that: a worker's wake-up, the ring's lock twice more, often a second wake-up to tell of the end. So the
//! submitter tries what is light, as if there were no flag, and poll is armed where the try finds nothing.
//!
//! `docs/decisions/0018-light-transfers-are-their-submitters.md` has the figures, and what this costs.

use super::Op;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Bytes that are sent or received at about the price of one: on a TCP connection within the machine (Linux 6.18, AMD EPYC)
/// send(2) takes 3.4 µs of 12 bytes, 4.1 of 32 KiB, 7.4 of 64 KiB.
const LIGHT: usize = 32 << 10;

/// What becomes of `IOSQE_ASYNC` on what may be waited for with poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AsyncHint {
    /// The submitter tries what is light, a worker the rest; nobody waits but for poll.
    Weighed = 0,
    /// A worker tries, always.
    Worker = 1,
    /// A worker does it, and is occupied for as long as that takes: the way of Linux before 5.16, for comparing.
    Block = 2,
}

impl AsyncHint {
    /// By its name, as `uringlet run --iosqe-async` and the variable `URINGLET_IOSQE_ASYNC` give it.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"weighed" => Some(Self::Weighed),
            b"worker" => Some(Self::Worker),
            b"block" => Some(Self::Block),
            _ => None,
        }
    }

    pub(crate) fn set(self) {
        CHOSEN.store(self as u32, Relaxed);
    }

    /// Whether it is the one that was chosen.
    pub(crate) fn is_chosen(self) -> bool {
        CHOSEN.load(Relaxed) == self as u32
    }
}

static CHOSEN: AtomicU32 = AtomicU32::new(AsyncHint::Weighed as u32);

/// Whether the submitter makes the first try of a transfer of so many bytes.
pub(crate) fn is_light(bytes: usize) -> bool {
    bytes <= LIGHT && AsyncHint::Weighed.is_chosen()
}

/// Whether the submitter makes the first try of this op.
pub(crate) fn is_for_submitter(op: &Op) -> bool {
    match op {
        Op::Net(op) => op.max_transfer().is_some_and(is_light),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        let named = [&b"weighed"[..], b"worker", b"block", b"", b"of an outer run"].map(AsyncHint::named);
        assert_eq!(named, [Some(AsyncHint::Weighed), Some(AsyncHint::Worker), Some(AsyncHint::Block), None, None]);
    }

    #[test]
    fn what_costs_as_much_as_a_byte_is_light() {
        assert!(is_light(0) && is_light(LIGHT) && !is_light(LIGHT + 1));
    }
}
