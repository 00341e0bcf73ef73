//! The memory of a ring of the kernel's, for a look at what goes through it. Nothing is written.
//!
//! The mapping is our own, so that the last CQEs can be read after the program has unmapped its
//! own. It keeps the ring alive: who has it drops it before the program closes the ring. Forked
//! children do not inherit it. Memory that the program itself provides (`IORING_SETUP_NO_MMAP`) is
//! read by copies that survive a bad address.

use crate::linux::general::{MADV_DONTFORK, MAP_POPULATE, MAP_SHARED, PROT_READ};
use crate::mm;
use crate::user::{self, UserPtr};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};
use syscalls::Errno;
use uringlet_abi::{Cqe, Sqe, UringParams, layout, setup};

const SQE_WORDS: usize = 8;
const CQE_WORDS: usize = 2;

/// A part of the memory.
#[derive(Debug)]
enum RingPart {
    Mapped { base: usize, len: usize },
    Programs(UserPtr),
}

impl RingPart {
    fn map(fd: i32, len: usize, offset: u64) -> Result<Self, Errno> {
        // SAFETY: a new mapping overlaps nothing.
        let base = unsafe { mm::map(0, len, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, offset) }?;
        let part = Self::Mapped { base, len };
        // SAFETY: nothing is discarded. Where it fails, a child has the mapping until it executes a
        // program.
        let _ = unsafe { mm::advise(base, len, MADV_DONTFORK) };
        Ok(part)
    }

    /// The address of `len` bytes at `at`, aligned to as many as a word of the kernel's has.
    fn mapped(base: usize, all: usize, at: usize, len: usize) -> Option<usize> {
        let is_inside = at.checked_add(len).is_some_and(|end| end <= all);
        (is_inside && at.is_multiple_of(len.min(size_of::<u64>()))).then(|| base + at)
    }

    /// A word of 4 bytes that the kernel or the program publishes.
    fn index(&self, at: usize) -> Option<u32> {
        match *self {
            Self::Mapped { base, len } => {
                let address = Self::mapped(base, len, at, size_of::<u32>())?;
                // SAFETY: inside of our mapping, aligned; all sides use it as an atomic.
                Some(unsafe { &*(address as *const AtomicU32) }.load(Acquire))
            }
            Self::Programs(base) => user::read(base.add(at)).ok(),
        }
    }

    fn words<const N: usize>(&self, at: usize) -> Option<[u64; N]> {
        let mut words = [0; N];
        match *self {
            Self::Mapped { base, len } => {
                Self::mapped(base, len, at, size_of::<[u64; N]>())?;
                for (n, word) in words.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *word = unsafe { &*((base + at + n * size_of::<u64>()) as *const AtomicU64) }.load(Relaxed);
                }
            }
            Self::Programs(base) => user::read_slice(&mut words, base.add(at)).ok()?,
        }
        Some(words)
    }
}

impl Drop for RingPart {
    fn drop(&mut self) {
        if let Self::Mapped { base, len } = *self {
            // SAFETY: our own mapping, of which no reference is kept.
            let _ = unsafe { mm::unmap(base, len) };
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct TracedRing {
    rings: RingPart,
    sqes: RingPart,
    params: UringParams,
}

impl TracedRing {
    /// The memory of the ring behind `fd`, made with these parameters.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn map(fd: i32, params: &UringParams) -> Result<Self, Errno> {
        let params = with_array(*params);
        if params.flags & setup::NO_MMAP != 0 {
            let [rings, sqes] = [params.cq_off.user_addr, params.sq_off.user_addr].map(|at| RingPart::Programs(UserPtr::at(at)));
            return Ok(Self { rings, sqes, params });
        }
        let rings = RingPart::map(fd, rings_len(&params), layout::OFF_SQ_RING)?;
        let sqes = RingPart::map(fd, (params.sq_entries as usize) << sqe_shift(&params), layout::OFF_SQES)?;
        Ok(Self { rings, sqes, params })
    }

    /// What the ring was made with.
    #[must_use]
    pub const fn params(&self) -> &UringParams {
        &self.params
    }

    /// Up to where SQEs have been consumed. `None` here and below: the program has unmapped it.
    #[must_use]
    pub fn sq_head(&self) -> Option<u32> {
        self.rings.index(self.params.sq_off.head as usize)
    }

    /// Up to where there are SQEs.
    #[must_use]
    pub fn sq_tail(&self) -> Option<u32> {
        self.rings.index(self.params.sq_off.tail as usize)
    }

    /// Up to where there are CQEs.
    #[must_use]
    pub fn cq_tail(&self) -> Option<u32> {
        self.rings.index(self.params.cq_off.tail as usize)
    }

    /// The SQE at a position of the SQ. `None`, too: its index is wrong, and the kernel drops it.
    #[must_use]
    pub fn sqe(&self, position: u32) -> Option<Sqe> {
        let params = &self.params;
        let place = position & params.sq_entries.wrapping_sub(1);
        let has_array = params.flags & setup::NO_SQARRAY == 0;
        let index = if has_array { self.rings.index((params.sq_off.array + 4 * place) as usize)? } else { place };
        if index >= params.sq_entries {
            return None;
        }
        self.sqes.words::<SQE_WORDS>((index as usize) << sqe_shift(params)).map(Sqe::from_words)
    }

    /// The CQE at a position of the CQ.
    #[must_use]
    pub fn cqe(&self, position: u32) -> Option<Cqe> {
        let params = &self.params;
        let place = (position & params.cq_entries.wrapping_sub(1)) as usize;
        let [user_data, result] = self.rings.words::<CQE_WORDS>(params.cq_off.cqes as usize + (place << cqe_shift(params)))?;
        let [a, b, c, d, flags @ ..] = result.to_le_bytes();
        Some(Cqe { user_data, res: i32::from_le_bytes([a, b, c, d]), flags: u32::from_le_bytes(flags) })
    }
}

/// IORING_REGISTER_RESIZE_RINGS does not say where the array is: behind the CQEs, on a cache line.
fn with_array(mut params: UringParams) -> UringParams {
    const CACHE_LINE: u32 = 64;
    if params.sq_off.array == 0 && params.flags & setup::NO_SQARRAY == 0 {
        params.sq_off.array = (params.cq_off.cqes + (params.cq_entries << cqe_shift(&params))).next_multiple_of(CACHE_LINE);
    }
    params
}

/// log2 of an SQE's size.
const fn sqe_shift(params: &UringParams) -> u32 {
    if params.flags & setup::SQE128 != 0 { 7 } else { 6 }
}

/// log2 of a CQE's size, or of a half of one where sizes are mixed.
const fn cqe_shift(params: &UringParams) -> u32 {
    if params.flags & setup::CQE32 != 0 { 5 } else { 4 }
}

/// Bytes of both rings' mapping (`IORING_FEAT_SINGLE_MMAP`, Linux 5.4).
fn rings_len(params: &UringParams) -> usize {
    let array = if params.flags & setup::NO_SQARRAY == 0 { params.sq_off.array as usize + 4 * params.sq_entries as usize } else { 0 };
    let cqes = params.cq_off.cqes as usize + ((params.cq_entries as usize) << cqe_shift(params));
    array.max(cqes)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::raw_syscall;
    use syscalls::{Sysno, syscall};
    use uringlet_abi::SqOffsets;

    #[test]
    fn a_ring_of_the_kernels_is_read() {
        let mut params = UringParams::default();
        // SAFETY: the kernel reads and writes live parameters; nobody else has the descriptor.
        let Ok(fd) = (unsafe { syscall!(Sysno::io_uring_setup, 4, &raw mut params) }) else {
            std::eprintln!("skipped: the kernel's ring is blocked here");
            return;
        };
        let ring = TracedRing::map(i32::try_from(fd).unwrap(), &params).unwrap();
        let without = UringParams { sq_off: SqOffsets { array: 0, ..params.sq_off }, ..params };
        assert_eq!(with_array(without).sq_off, params.sq_off);
        assert_eq!([ring.sq_head(), ring.sq_tail(), ring.cq_tail()], [Some(0); 3]);
        assert_eq!(ring.sqe(3), Some(Sqe::default()));
        assert_eq!(ring.cqe(8).map(|cqe| cqe.user_data), Some(0));
        // SAFETY: the ring's own descriptor.
        unsafe { raw_syscall!(Sysno::close, fd) };
    }

    #[test]
    fn memory_of_the_programs_may_go() {
        let part = RingPart::Programs(UserPtr::new(8));
        assert_eq!((part.index(0), part.words::<2>(64)), (None, None));
    }

    #[test]
    fn nothing_outside_of_a_mapping_is_read() {
        let base = mm::map_anonymous(4096, 0).unwrap();
        let part = RingPart::Mapped { base, len: 4096 };
        assert_eq!((part.index(4092), part.index(4096), part.index(2)), (Some(0), None, None));
        assert_eq!((part.words::<8>(4032), part.words::<8>(4096), part.words::<2>(usize::MAX - 7)), (Some([0; 8]), None, None));
    }
}
