//! Bundles (`IORING_RECVSEND_BUNDLE`): one transfer over several buffers of a ring.

use super::{BufGroup, BufGroups, BufRing, BufStage, Origin, SelectedBuf};
use alloc::boxed::Box;
use alloc::vec::Vec;
use uringlet_abi::cqe;
use uringlet_abi::register::Iovec;
use uringlet_sys::Errno;
use uringlet_sys::ring_memory::ProvidedBuf;

/// Most buffers that one transfer takes (as Linux 6.18).
const MOST: u16 = 256;
/// What no limit means.
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
    /// As many as there are, for at most so many bytes (0: no limit).
    All(u32),
}

/// The buffers of a bundle, in the order of the ring.
#[derive(Debug)]
pub(super) struct Bundle {
    parts: Vec<BundleBuf>,
    /// A limit has cut it short: of its first buffer, or of one more that would not be whole.
    is_cut: bool,
    /// It holds exactly what was asked for: whether there is a buffer behind it nobody has looked.
    is_filled: bool,
    /// What holds nothing when a request that kept it ends does not go back.
    is_gone_whole: bool,
}

impl Bundle {
    /// The buffers at a ring's head for at most `wanted` bytes. A buffer that is not incremental is taken whole, unless it is
    /// the first.
    fn of(ring: &BufRing, wanted: u32, most: u16) -> Self {
        let available = ring.memory.tail().wrapping_sub(ring.head);
        let mut bundle = Self { parts: Vec::new(), is_cut: false, is_filled: false, is_gone_whole: false };
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

    /// Whether a ring stands where taking all of it has left it: nothing was selected after it.
    fn is_last_taken_from(&self, ring: &BufRing, head: u16) -> bool {
        let Some(last) = self.parts.last() else { return false };
        let behind = head.wrapping_add(self.parts.len() as u16);
        if !ring.is_incremental || last.len == last.buf.len {
            return ring.head == behind;
        }
        ring.head == behind.wrapping_sub(1) && ring.memory.entry(ring.head).addr == last.buf.addr.wrapping_add(last.len.into())
    }
}

impl SelectedBuf {
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

    /// Once it is kept, all of it is the program's again when its request ends, whatever was moved.
    pub(crate) fn give_up_whole(&mut self) {
        if let Some(bundle) = &mut self.bundle {
            bundle.is_gone_whole = true;
        }
    }

    /// Whether its group holds no buffer behind it.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }
}

impl BufRing {
    /// Gives up a bundle as if it had never been taken, then takes `n` bytes of it.
    fn take_less(&mut self, bundle: &Bundle, head: u16, selected: &SelectedBuf, n: u32) {
        if self.is_incremental {
            for (i, BundleBuf { buf, .. }) in bundle.parts.iter().enumerate() {
                self.memory.set_entry(head.wrapping_add(i as u16), buf.addr, buf.len);
            }
        }
        self.head = head;
        self.consume_selected(selected, n);
    }

    /// `n` bytes of what was selected are gone.
    pub(super) fn consume_selected(&mut self, selected: &SelectedBuf, n: u32) {
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
    /// The request that kept a bundle is over, with `n` bytes in it. The CQE's flags of a buffer that is back and not full.
    pub(super) fn recycle_unused(&mut self, selected: &SelectedBuf, n: u32) -> u32 {
        let (Some(bundle), Origin::Ring { head, .. }) = (&selected.bundle, selected.origin) else { return 0 };
        let Some(ring) = self.ring_of(selected).filter(|ring| !bundle.is_gone_whole && bundle.is_last_taken_from(ring, head)) else {
            return 0;
        };
        ring.take_less(bundle, head, selected, n);
        if ring.is_incremental && bundle.ends_inside(n) { cqe::BUF_MORE } else { 0 }
    }

    /// The next buffers of a group. Of a list, which has no order in memory, only one.
    ///
    /// # Errors
    /// `ENOBUFS` if there is none; `ENOENT` no such group.
    pub(crate) fn select_bundle(&mut self, group: u16, extent: BundleLimit) -> Result<SelectedBuf, Errno> {
        let (wanted, most) = match extent {
            BundleLimit::First => (0, 1),
            BundleLimit::All(wanted) => (wanted, MOST),
        };
        let ring = match self.groups.get(&group).ok_or(Errno::ENOENT)? {
            BufGroup::Ring(ring) => ring,
            BufGroup::List(_) => return self.select(group, wanted),
        };
        let bundle = Bundle::of(ring, wanted, most);
        let first = bundle.parts.first().copied().ok_or(Errno::ENOBUFS)?;
        let BufRing { registration, head, is_incremental, .. } = *ring;
        let origin = Origin::Ring { registration, head, is_incremental, entry_len: first.buf.len };
        let (addr, bid, len) = (first.buf.addr, first.buf.bid, bundle.len());
        let is_last = !bundle.is_filled && ring.memory.tail() == head.wrapping_add(bundle.parts.len() as u16);
        Ok(SelectedBuf { addr, len, bid, group, origin, stage: BufStage::Peeked, is_last, bundle: Some(bundle) })
    }
}
