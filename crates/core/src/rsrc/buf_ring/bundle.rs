//! Bundles (`IORING_RECVSEND_BUNDLE`): one transfer over several buffers of a ring.

use super::ring::BufRing;
use alloc::boxed::Box;
use alloc::vec::Vec;
use uringlet_abi::register::Iovec;
use uringlet_sys::ring_memory::ProvidedBuf;

/// Most buffers of one transfer (as Linux 6.18).
pub(super) const MOST: u16 = 256;
/// Bytes when there is no limit.
const UNLIMITED: u32 = i32::MAX as u32;

/// One buffer of a bundle.
#[derive(Clone, Copy, Debug)]
struct BundleBuf {
    buf: ProvidedBuf,
    /// Bytes of it that may be used.
    len: u32,
}

/// How many buffers of a ring a transfer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BundleLimit {
    /// One.
    First,
    /// As many as there are, for at most this many bytes (0: no limit).
    All(u32),
}

/// The buffers of a bundle, in the order of the ring.
#[derive(Debug)]
pub(super) struct Bundle {
    parts: Vec<BundleBuf>,
    /// The limit has cut it short: its first buffer, or before one more that would not be whole.
    pub(super) is_cut: bool,
    /// It holds exactly the limit. Whether the group has a further buffer was not checked.
    pub(super) is_filled: bool,
    /// When a committed bundle ends, its buffers that hold nothing are not recycled.
    pub(super) keeps_unused: bool,
    /// [`BufRing::min_left`].
    min_left: u32,
}

impl Bundle {
    /// The buffers at a ring's head for at most `wanted` bytes. A buffer that is not incremental is
    /// taken whole, unless it is the first.
    pub(super) fn of(ring: &BufRing, wanted: u32, most: u16) -> Self {
        let available = ring.memory.tail().wrapping_sub(ring.head);
        let mut bundle = Self { parts: Vec::new(), is_cut: false, is_filled: false, keeps_unused: false, min_left: ring.min_left };
        let mut left = if wanted == 0 { UNLIMITED } else { wanted };
        for i in 0..available.min(most) {
            let buf = ring.memory.entry(ring.head.wrapping_add(i));
            let len = buf.len.min(left);
            let is_cut = len < buf.len && !ring.is_incremental;
            bundle.is_cut |= is_cut;
            if is_cut && i > 0 {
                break;
            }
            bundle.parts.push(BundleBuf { buf, len });
            left -= len;
            if left == 0 {
                bundle.is_filled = true;
                break;
            }
        }
        bundle
    }

    pub(super) fn first(&self) -> Option<ProvidedBuf> {
        self.parts.first().map(|part| part.buf)
    }

    /// Bytes.
    pub(super) fn len(&self) -> u32 {
        self.parts.iter().map(|part| part.len).fold(0, u32::saturating_add)
    }

    /// Buffers.
    pub(super) fn count(&self) -> u16 {
        self.parts.len() as u16
    }

    /// Where its bytes are, if it is more than one buffer.
    pub(super) fn iovecs(&self) -> Option<Box<[Iovec]>> {
        (self.parts.len() > 1).then(|| self.parts.iter().map(|part| Iovec { base: part.buf.addr, len: part.len.into() }).collect())
    }

    /// Whether `n` bytes end inside a buffer, with enough bytes of it left.
    pub(super) fn ends_inside(&self, n: u32) -> bool {
        let mut left = n;
        for part in &self.parts {
            if left <= part.len {
                return part.buf.len - left >= self.min_left;
            }
            left -= part.len;
        }
        false
    }

    /// Buffers that `n` bytes touch.
    fn touched(&self, n: u32) -> u16 {
        let mut left = n;
        let touched = self.parts.iter().take_while(|part| {
            let is_touched = left > 0;
            left = left.saturating_sub(part.len);
            is_touched
        });
        touched.count() as u16
    }

    /// Whether a ring, whose head stood at `head`, is where consuming all of the bundle has left
    /// it: nothing was selected after it.
    pub(super) fn is_last_taken_from(&self, ring: &BufRing, head: u16) -> bool {
        let Some(last) = self.parts.last() else { return false };
        let behind = head.wrapping_add(self.count());
        if !ring.is_incremental || last.buf.len - last.len < self.min_left {
            return ring.head == behind;
        }
        ring.head == behind.wrapping_sub(1) && ring.memory.entry(ring.head).addr == last.buf.addr.wrapping_add(last.len.into())
    }

    /// `n` bytes of the bundle at the ring's head are used.
    pub(super) fn consume(&self, ring: &mut BufRing, n: u32) {
        if !ring.is_incremental {
            ring.head = ring.head.wrapping_add(self.touched(n));
            return;
        }
        let mut left = n;
        for part in &self.parts {
            if left == 0 {
                return;
            }
            ring.consume(left.min(part.len));
            left = left.saturating_sub(part.len);
        }
    }

    /// Puts the bundle back at `head` as if it had never been consumed, then consumes `n` bytes of
    /// it.
    pub(super) fn consume_again(&self, ring: &mut BufRing, head: u16, n: u32) {
        if ring.is_incremental {
            for (i, BundleBuf { buf, .. }) in self.parts.iter().enumerate() {
                ring.memory.set_entry(head.wrapping_add(i as u16), buf.addr, buf.len);
            }
        }
        ring.head = head;
        self.consume(ring, n);
    }
}
