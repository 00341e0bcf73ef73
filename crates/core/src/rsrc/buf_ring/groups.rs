//! The buffer groups of a ring: registration, selection, and the return of buffers.

use super::bundle::{Bundle, BundleLimit, MOST};
use super::ring::BufRing;
use super::selected::{BufStage, Origin, SelectedBuf};
use alloc::collections::{BTreeMap, VecDeque};
use uringlet_abi::register::{self, BufReg};
use uringlet_abi::{cqe, layout};
use uringlet_sys::ring_memory::{BufRingMemory, ProvidedBuf};
use uringlet_sys::{Errno, UserPtr};

/// Most buffers in a list.
const MAX_LISTED: usize = u16::MAX as usize;
/// Most bytes of one transfer (MAX_RW_COUNT).
const MAX_LEN: u32 = 0x7fff_f000;

#[derive(Debug)]
enum BufGroup {
    List(VecDeque<ProvidedBuf>),
    Ring(BufRing),
}

/// The ring's buffer groups.
#[derive(Debug, Default)]
pub(crate) struct BufGroups {
    groups: BTreeMap<u16, BufGroup>,
    registrations: u32,
}

impl BufGroups {
    /// The next buffer of a group, at most `wanted` bytes of it (0: all of it).
    ///
    /// # Errors
    /// `ENOBUFS` if there is none.
    pub(crate) fn select(&mut self, group: u16, wanted: u32) -> Result<SelectedBuf, Errno> {
        let (buf, origin, is_last) = match self.groups.get_mut(&group) {
            Some(BufGroup::List(list)) => {
                let buf = list.pop_front().ok_or(Errno::ENOBUFS)?;
                (buf, Origin::List(buf), list.is_empty())
            }
            Some(BufGroup::Ring(ring)) if ring.memory.tail() != ring.head => {
                let BufRing { registration, head, is_incremental, min_left, .. } = *ring;
                let buf = ring.memory.entry(head);
                let is_last = ring.memory.tail() == head.wrapping_add(1);
                (buf, Origin::Ring { registration, head, is_incremental, min_left, entry_len: buf.len }, is_last)
            }
            _ => return Err(Errno::ENOBUFS),
        };
        let len = if wanted == 0 { buf.len } else { wanted.min(buf.len) };
        Ok(SelectedBuf { addr: buf.addr, len, bid: buf.bid, group, origin, stage: BufStage::Peeked, is_last, bundle: None })
    }

    /// The next buffers of a group. Of a list, which has no order in memory, only one.
    ///
    /// # Errors
    /// `ENOBUFS` if there is none; `ENOENT` no such group.
    pub(crate) fn select_bundle(&mut self, group: u16, limit: BundleLimit) -> Result<SelectedBuf, Errno> {
        let (wanted, most) = match limit {
            BundleLimit::First => (0, 1),
            BundleLimit::All(wanted) => (wanted, MOST),
        };
        let ring = match self.groups.get(&group).ok_or(Errno::ENOENT)? {
            BufGroup::Ring(ring) => ring,
            BufGroup::List(_) => return self.select(group, wanted),
        };
        let bundle = Bundle::of(ring, wanted, most);
        let first = bundle.first().ok_or(Errno::ENOBUFS)?;
        let BufRing { registration, head, is_incremental, min_left, .. } = *ring;
        let origin = Origin::Ring { registration, head, is_incremental, min_left, entry_len: first.len };
        let (addr, bid, len) = (first.addr, first.bid, bundle.len());
        let is_last = !bundle.is_filled && ring.memory.tail() == head.wrapping_add(bundle.count());
        Ok(SelectedBuf { addr, len, bid, group, origin, stage: BufStage::Peeked, is_last, bundle: Some(bundle) })
    }

    /// Whether the group was filled by PROVIDE_BUFFERS.
    pub(crate) fn is_list(&self, group: u16) -> bool {
        matches!(self.groups.get(&group), Some(BufGroup::List(_)))
    }

    /// Whether there is such a group, even an empty one.
    pub(crate) fn exists(&self, group: u16) -> bool {
        self.groups.contains_key(&group)
    }

    /// The buffer stays with its request while the ring's lock is released, or since it is partly
    /// filled.
    pub(crate) fn commit(&mut self, selected: &mut SelectedBuf) {
        selected.stage = match selected.stage {
            BufStage::Peeked => BufStage::Committed,
            BufStage::Used(n) => BufStage::CommittedAndUsed(n),
            BufStage::Committed | BufStage::CommittedAndUsed(_) => return,
        };
        if let Some(ring) = self.ring_of(selected) {
            selected.consume(ring, selected.len);
        }
    }

    /// The request is done with the buffer. A used one is the program's; an unused one returns to
    /// its group. Returns the CQE's flags of a buffer that does not return.
    pub(crate) fn put(&mut self, selected: SelectedBuf) -> u32 {
        match selected.stage {
            BufStage::Used(n) => {
                if let Some(ring) = self.ring_of(&selected) {
                    selected.consume(ring, n);
                }
                selected.flags()
            }
            BufStage::CommittedAndUsed(n) => self.recycle_unused(&selected, n) | selected.flags(),
            BufStage::Peeked | BufStage::Committed => self.recycle(&selected),
        }
    }

    fn recycle(&mut self, selected: &SelectedBuf) -> u32 {
        if let Origin::List(buf) = selected.origin {
            if let Some(BufGroup::List(list)) = self.groups.get_mut(&selected.group) {
                list.push_front(buf);
                return 0;
            }
            return selected.flags();
        }
        if selected.stage == BufStage::Peeked {
            return 0;
        }
        match (self.ring_of(selected), selected.origin) {
            (Some(ring), Origin::Ring { head, is_incremental: false, .. }) if ring.head == head.wrapping_add(selected.count()) => {
                ring.head = head;
                0
            }
            _ => selected.flags(),
        }
    }

    /// The request of a committed bundle has ended with `n` bytes in it. Returns the CQE's flags of
    /// a buffer that is back in the ring and not full.
    fn recycle_unused(&mut self, selected: &SelectedBuf, n: u32) -> u32 {
        let (Some(bundle), Origin::Ring { head, .. }) = (&selected.bundle, selected.origin) else { return 0 };
        let Some(ring) = self.ring_of(selected).filter(|ring| !bundle.keeps_unused && bundle.is_last_taken_from(ring, head)) else {
            return 0;
        };
        bundle.consume_again(ring, head, n);
        if ring.is_incremental && bundle.ends_inside(n) { cqe::BUF_MORE } else { 0 }
    }

    /// The ring that a buffer came from, if it is still registered.
    fn ring_of(&mut self, selected: &SelectedBuf) -> Option<&mut BufRing> {
        let Origin::Ring { registration, .. } = selected.origin else { return None };
        match self.groups.get_mut(&selected.group)? {
            BufGroup::Ring(ring) if ring.registration == registration => Some(ring),
            _ => None,
        }
    }

    /// PROVIDE_BUFFERS: `n` buffers of `len` bytes from `addr` on, with ids from `bid` on.
    ///
    /// # Errors
    /// `EINVAL` the group is a ring, `EOVERFLOW` the list is full.
    pub(crate) fn provide(&mut self, group: u16, addr: u64, len: u32, n: u32, bid: u16) -> Result<(), Errno> {
        let BufGroup::List(list) = self.groups.entry(group).or_insert_with(|| BufGroup::List(VecDeque::new())) else {
            return Err(Errno::EINVAL);
        };
        let room = MAX_LISTED - list.len();
        if room == 0 {
            return Err(Errno::EOVERFLOW);
        }
        list.extend((0..n).take(room).map(|i| ProvidedBuf {
            addr: addr.wrapping_add(u64::from(i) * u64::from(len)),
            len: len.min(MAX_LEN),
            bid: bid.wrapping_add(i as u16),
        }));
        Ok(())
    }

    /// REMOVE_BUFFERS: removes at most `n` buffers; returns how many.
    ///
    /// # Errors
    /// `ENOENT` no such group, `EINVAL` it is a ring.
    pub(crate) fn remove(&mut self, group: u16, n: u32) -> Result<u32, Errno> {
        match self.groups.get_mut(&group).ok_or(Errno::ENOENT)? {
            BufGroup::Ring(_) => Err(Errno::EINVAL),
            BufGroup::List(list) => {
                let n = list.len().min(n as usize);
                list.drain(..n);
                Ok(n as u32)
            }
        }
    }

    /// `IORING_REGISTER_PBUF_RING`.
    ///
    /// # Errors
    /// `EINVAL` reserved bits or an odd size, `EEXIST` the group is in use, `EFAULT` no memory at
    /// the address.
    pub(crate) fn register_ring(&mut self, reg: &BufReg) -> Result<(), Errno> {
        let is_incremental = reg.flags & register::PBUF_RING_INC != 0;
        if reg.resv != [0; 5] || reg.flags & !(register::PBUF_RING_MMAP | register::PBUF_RING_INC) != 0 {
            return Err(Errno::EINVAL);
        }
        if reg.min_left != 0 && !is_incremental {
            return Err(Errno::EINVAL);
        }
        if !reg.ring_entries.is_power_of_two() || reg.ring_entries > 1 << 15 {
            return Err(Errno::EINVAL);
        }
        match self.groups.get(&reg.bgid) {
            Some(BufGroup::Ring(_)) => return Err(Errno::EEXIST),
            Some(BufGroup::List(list)) if !list.is_empty() => return Err(Errno::EEXIST),
            _ => {}
        }
        let is_mmap = reg.flags & register::PBUF_RING_MMAP != 0;
        let memory = if is_mmap {
            BufRingMemory::new(reg.ring_entries)?
        } else if reg.ring_addr == 0 {
            return Err(Errno::EFAULT);
        } else {
            BufRingMemory::from_user(UserPtr::at(reg.ring_addr), reg.ring_entries)?
        };
        self.registrations = self.registrations.wrapping_add(1);
        let ring = BufRing { memory, head: 0, is_incremental, min_left: reg.min_left.max(1), is_mmap, registration: self.registrations };
        self.groups.insert(reg.bgid, BufGroup::Ring(ring));
        Ok(())
    }

    /// `IORING_UNREGISTER_PBUF_RING`.
    ///
    /// # Errors
    /// `EINVAL` reserved bits, or the group is a list; `ENOENT` no such group.
    pub(crate) fn unregister_ring(&mut self, reg: &BufReg) -> Result<(), Errno> {
        if reg.resv != [0; 5] || reg.flags != 0 {
            return Err(Errno::EINVAL);
        }
        self.ring(u32::from(reg.bgid))?;
        self.groups.remove(&reg.bgid);
        Ok(())
    }

    /// `IORING_REGISTER_PBUF_STATUS`: the ring's head.
    ///
    /// # Errors
    /// `ENOENT` no such group, `EINVAL` it is a list.
    pub(crate) fn status(&self, group: u32) -> Result<u32, Errno> {
        self.ring(group).map(|ring| u32::from(ring.head))
    }

    fn ring(&self, group: u32) -> Result<&BufRing, Errno> {
        let group = u16::try_from(group).map_err(|_| Errno::ENOENT)?;
        match self.groups.get(&group).ok_or(Errno::ENOENT)? {
            BufGroup::Ring(ring) => Ok(ring),
            BufGroup::List(_) => Err(Errno::EINVAL),
        }
    }

    /// mmap(2) of the ring's descriptor at [`layout::OFF_PBUF_RING`]: maps the buffer ring whose
    /// group the offset names.
    ///
    /// # Errors
    /// `ENOMEM` (as the kernel) if there is no such group, or its ring lies in the program's
    /// memory.
    pub(crate) fn map_for_program(&self, offset: u64, len: usize) -> Result<usize, Errno> {
        let group = ((offset & !layout::OFF_MMAP_MASK) >> layout::OFF_PBUF_SHIFT) as u32;
        match self.ring(group) {
            Ok(ring) if ring.is_mmap => ring.memory.map_for_program(len),
            _ => Err(Errno::ENOMEM),
        }
    }
}
