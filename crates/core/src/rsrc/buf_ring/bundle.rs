//! Bundles (`IORING_RECVSEND_BUNDLE`): one transfer over several buffers of a ring.

use super::{BufGroups, BufRing, Group, Origin, Selected, Stage};
use alloc::boxed::Box;
use alloc::vec::Vec;
use uringlet_abi::register::Iovec;
use uringlet_sys::Errno;
use uringlet_sys::ring_memory::ProvidedBuf;

/// Most buffers that one transfer takes (as Linux 6.18).
const MOST: u16 = 256;
/// What no limit means.
const UNLIMITED: u32 = i32::MAX as u32;

/// One buffer of a bundle.
#[derive(Clone, Copy, Debug)]
struct Part {
    buf: ProvidedBuf,
    /// Bytes of it that may be used.
    len: u32,
}

/// How many buffers of a ring a transfer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One.
    First,
    /// As many as there are, for at most so many bytes (0: no limit).
    All(u32),
}

/// The buffers of a bundle, in the order of the ring.
#[derive(Debug)]
pub(super) struct Bundle {
    parts: Vec<Part>,
    /// A limit has cut it short: of its first buffer, or of one more that would not be whole.
    is_cut: bool,
}

impl Bundle {
    /// The buffers at a ring's head for at most `wanted` bytes. A buffer that is not incremental is taken whole, unless it is
    /// the first.
    fn of(ring: &BufRing, wanted: u32, most: u16) -> Self {
        let available = ring.memory.tail().wrapping_sub(ring.head);
        let mut bundle = Self { parts: Vec::new(), is_cut: false };
        let mut left = if wanted == 0 { UNLIMITED } else { wanted };
        for i in 0..available.min(most) {
            let buf = ring.memory.entry(ring.head.wrapping_add(i));
            let len = buf.len.min(left);
            let is_cut = len < buf.len && !ring.is_incremental;
            bundle.is_cut |= is_cut;
            if is_cut && i > 0 {
                break;
            }
            bundle.parts.push(Part { buf, len });
            left -= len;
            if left == 0 {
                break;
            }
        }
        bundle
    }

    fn len(&self) -> u32 {
        self.parts.iter().map(|part| part.len).fold(0, u32::saturating_add)
    }

    /// Whether `n` bytes end inside a buffer, of which something is left.
    pub(super) fn ends_inside(&self, n: u32) -> bool {
        let mut left = n;
        for part in &self.parts {
            if left <= part.len {
                return left < part.buf.len;
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
}

impl Selected {
    /// How many buffers it is.
    pub(super) fn count(&self) -> u16 {
        self.bundle.as_ref().map_or(1, |bundle| bundle.parts.len() as u16)
    }

    /// Where its bytes are, if it is more than one buffer.
    pub(crate) fn iovecs(&self) -> Option<Box<[Iovec]>> {
        let bundle = self.bundle.as_ref().filter(|bundle| bundle.parts.len() > 1)?;
        Some(bundle.parts.iter().map(|part| Iovec { base: part.buf.addr, len: part.len.into() }).collect())
    }

    /// Whether a limit, and not what there is, has made it as short as it is.
    pub(crate) fn is_cut(&self) -> bool {
        self.bundle.as_ref().is_some_and(|bundle| bundle.is_cut)
    }

    /// Whether its group holds no buffer behind it.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }
}

impl BufRing {
    /// `n` bytes of what was selected are gone.
    pub(super) fn consume_of(&mut self, selected: &Selected, n: u32) {
        let Some(bundle) = &selected.bundle else { return self.consume(n) };
        if !self.is_incremental {
            self.head = self.head.wrapping_add(bundle.touched(n));
            return;
        }
        let mut left = n;
        for part in &bundle.parts {
            if left == 0 {
                return;
            }
            self.consume(left.min(part.len));
            left = left.saturating_sub(part.len);
        }
    }
}

impl BufGroups {
    /// The next buffers of a group. Of a list, which has no order in memory, only one.
    ///
    /// # Errors
    /// `ENOBUFS` if there is none.
    pub(crate) fn select_bundle(&mut self, group: u16, extent: Extent) -> Result<Selected, Errno> {
        let (wanted, most) = match extent {
            Extent::First => (0, 1),
            Extent::All(wanted) => (wanted, MOST),
        };
        let Some(Group::Ring(ring)) = self.groups.get(&group) else { return self.select(group, wanted) };
        let bundle = Bundle::of(ring, wanted, most);
        let first = bundle.parts.first().copied().ok_or(Errno::ENOBUFS)?;
        let BufRing { registration, head, is_incremental, .. } = *ring;
        let origin = Origin::Ring { registration, head, is_incremental, entry_len: first.buf.len };
        let (addr, bid, len) = (first.buf.addr, first.buf.bid, bundle.len());
        let is_last = ring.memory.tail() == head.wrapping_add(bundle.parts.len() as u16);
        Ok(Selected { addr, len, bid, group, origin, stage: Stage::Peeked, is_last, bundle: Some(bundle) })
    }
}
