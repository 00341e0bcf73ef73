//! What `IOSQE_ASYNC` means for a transfer that may wait for others: which thread tries it first.
//!
//! The flag asks to keep the submitter from what would block, or take long. A small transfer on a
//! socket does neither: it is tried without sleeping, and up to [`LIGHT`] bytes it costs little
//! more than any system call on that socket. Handing it over costs more than that: a worker's
//! wake-up, the ring's lock twice more, often a second wake-up for the completion. So the submitter
//! tries what is light, as if the flag were not set, and poll is armed where the try finds nothing.
//!
//! `docs/decisions/0018-light-transfers-are-their-submitters.md` has the figures and the costs.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Bytes that are sent or received at about the price of one: on a TCP connection within the
/// machine (Linux 6.18, AMD EPYC) send(2) takes 3.4 µs of 12 bytes, 4.1 of 32 KiB, 7.4 of 64 KiB.
pub(super) const LIGHT: usize = 32 << 10;

/// What becomes of `IOSQE_ASYNC` on an op that poll can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AsyncHint {
    /// The submitter tries what is light, a worker tries the rest; then poll waits.
    Weighed = 0,
    /// A worker tries, always; then poll waits.
    Worker = 1,
    /// A worker runs the op and is occupied until it ends, as in Linux before 5.16. For comparison.
    Block = 2,
}

impl AsyncHint {
    /// The hint with this name, as `uringlet run --iosqe-async` and the variable
    /// `URINGLET_IOSQE_ASYNC` give it.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"weighed" => Some(Self::Weighed),
            b"worker" => Some(Self::Worker),
            b"block" => Some(Self::Block),
            _ => None,
        }
    }

    /// Sets the hint of the process.
    pub(crate) fn set(self) {
        CURRENT.store(self as u32, Relaxed);
    }

    /// The hint of the process.
    #[inline]
    pub(crate) fn current() -> Self {
        match CURRENT.load(Relaxed) {
            1 => Self::Worker,
            2 => Self::Block,
            _ => Self::Weighed,
        }
    }
}

static CURRENT: AtomicU32 = AtomicU32::new(AsyncHint::Weighed as u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        let named = [&b"weighed"[..], b"worker", b"block", b"", b"of an outer run"].map(AsyncHint::named);
        assert_eq!(named, [Some(AsyncHint::Weighed), Some(AsyncHint::Worker), Some(AsyncHint::Block), None, None]);
    }
}
