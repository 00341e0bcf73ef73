//! A buffer, or a bundle of buffers, chosen for a request.

use super::bundle::Bundle;
use super::ring::BufRing;
use alloc::boxed::Box;
use uringlet_abi::cqe;
use uringlet_abi::register::Iovec;
use uringlet_sys::ring_memory::ProvidedBuf;

/// Where a selected buffer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    List(ProvidedBuf),
    Ring { registration: u32, head: u16, is_incremental: bool, min_left: u32, entry_len: u32 },
}

/// Ownership of a selected buffer: see [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufStage {
    Peeked,
    Committed,
    Used(u32),
    CommittedAndUsed(u32),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SelectedBuf {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) bid: u16,
    pub(crate) group: u16,
    pub(super) origin: Origin,
    pub(super) stage: BufStage,
    /// The group holds no buffer behind it.
    pub(super) is_last: bool,
    /// All buffers, if it was selected as a bundle.
    pub(super) bundle: Option<Bundle>,
}

impl SelectedBuf {
    /// `n` bytes were moved: the CQE's flags that give the buffer to the program.
    pub(crate) fn mark_used(&mut self, n: u32) -> u32 {
        self.stage = match self.stage {
            BufStage::Peeked | BufStage::Used(_) => BufStage::Used(n),
            BufStage::Committed | BufStage::CommittedAndUsed(_) => BufStage::CommittedAndUsed(n),
        };
        self.flags()
    }

    /// A committed incremental buffer loses all the bytes that were asked for, however many were
    /// moved.
    pub(super) fn flags(&self) -> u32 {
        let taken = if let BufStage::Used(n) = self.stage { n } else { self.len };
        let more = match (self.origin, &self.bundle) {
            (Origin::Ring { is_incremental: true, .. }, Some(bundle)) if bundle.ends_inside(taken) => cqe::BUF_MORE,
            (Origin::Ring { is_incremental: true, min_left, entry_len, .. }, None) if entry_len.saturating_sub(taken) >= min_left => {
                cqe::BUF_MORE
            }
            _ => 0,
        };
        cqe::BUFFER | more | u32::from(self.bid) << cqe::BUFFER_SHIFT
    }

    /// How many buffers it is.
    pub(super) fn count(&self) -> u16 {
        self.bundle.as_ref().map_or(1, Bundle::count)
    }

    /// Where its bytes are, if it is more than one buffer.
    pub(crate) fn iovecs(&self) -> Option<Box<[Iovec]>> {
        self.bundle.as_ref()?.iovecs()
    }

    /// Whether the limit, and not the group's end, has made it as short as it is.
    pub(crate) fn is_cut(&self) -> bool {
        self.bundle.as_ref().is_some_and(|bundle| bundle.is_cut)
    }

    /// Once it is committed, all of it is the program's when its request ends, however much was
    /// moved.
    pub(crate) fn keep_unused(&mut self) {
        if let Some(bundle) = &mut self.bundle {
            bundle.keeps_unused = true;
        }
    }

    /// Whether it is of a list (PROVIDE_BUFFERS).
    pub(crate) fn is_listed(&self) -> bool {
        matches!(self.origin, Origin::List(_))
    }

    /// Whether its group holds no buffer behind it.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    /// `n` bytes of it are used; it is at the ring's head.
    pub(super) fn consume(&self, ring: &mut BufRing, n: u32) {
        match &self.bundle {
            Some(bundle) => bundle.consume(ring, n),
            None => ring.consume(n),
        }
    }
}
