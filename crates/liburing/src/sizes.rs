//! How much memory a ring takes.

use uringlet_abi::{Cqe, Sqe, UringParams, layout, setup};

use crate::arch::PAGE;
use crate::c_types::err;

/// Entries of the two queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries {
    pub(crate) sq: u32,
    pub(crate) cq: u32,
}

impl Entries {
    /// The entries that setup grants for a request of `entries`.
    pub(crate) fn granted(entries: u32, params: &UringParams) -> Result<Self, i32> {
        let excess = if params.flags & setup::CLAMP == 0 { Excess::Refuse } else { Excess::Clamp };
        let sq = rounded(entries, layout::MAX_ENTRIES, excess)?;
        if params.flags & setup::CQSIZE == 0 {
            return Ok(Self { sq, cq: 2 * sq });
        }
        let cq = rounded(params.cq_entries, layout::MAX_CQ_ENTRIES, excess)?;
        if cq < sq { Err(err::EINVAL) } else { Ok(Self { sq, cq }) }
    }
}

/// What to do with a number of entries above the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    Refuse,
    Clamp,
}

/// The number of entries as a power of two.
fn rounded(entries: u32, max: u32, excess: Excess) -> Result<u32, i32> {
    match entries {
        0 => Err(err::EINVAL),
        n if n > max && excess == Excess::Refuse => Err(err::EINVAL),
        n => Ok(n.min(max).next_power_of_two()),
    }
}

/// Bytes of `entries` SQEs.
pub(crate) fn sqes(entries: u32, flags: u32) -> usize {
    (entries as usize * size_of::<Sqe>()) << u32::from(flags & setup::SQE128 != 0)
}

/// Bytes of `entries` CQEs.
pub(crate) fn cqes(entries: u32, flags: u32) -> usize {
    (entries as usize * size_of::<Cqe>()) << u32::from(flags & setup::CQE32 != 0)
}

/// The offset of the SQ array: behind the CQEs, at a new cache line. Resizing (Linux 6.18) does not
/// report it.
pub(crate) fn array_offset(params: &UringParams) -> u32 {
    (params.cq_off.cqes as usize + cqes(params.cq_entries, params.flags)).next_multiple_of(64) as u32
}

/// Bytes of the mapping at `IORING_OFF_SQ_RING`: both queues but for the SQEs.
pub(crate) fn rings(params: &UringParams) -> usize {
    let sq = params.sq_off.array as usize + params.sq_entries as usize * size_of::<u32>();
    let cq = params.cq_off.cqes as usize + cqes(params.cq_entries, params.flags);
    sq.max(cq)
}

fn to_page(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

/// The layout of a ring in the program's memory (NO_MMAP): SQEs first, the queues from the next
/// page on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InMemoryLayout {
    pub(crate) rings_at: usize,
    pub(crate) total: usize,
}

impl InMemoryLayout {
    pub(crate) fn of(entries: Entries, flags: u32) -> Self {
        let array = if flags & setup::NO_SQARRAY == 0 { entries.sq as usize * size_of::<u32>() } else { 0 };
        let rings_at = to_page(sqes(entries.sq, flags));
        let rings = layout::CQES as usize + cqes(entries.cq, flags) + array;
        Self { rings_at, total: rings_at + to_page(rings) }
    }
}

/// Bytes of memory that a ring of these parameters takes, or -errno.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_memory_size_params(entries: u32, p: &UringParams) -> isize {
    match Entries::granted(entries, p) {
        Err(errno) => errno as isize,
        Ok(granted) => {
            let rings = to_page(layout::CQES as usize + cqes(granted.cq, p.flags));
            (rings + to_page(sqes(granted.sq, p.flags))).cast_signed()
        }
    }
}

/// [`io_uring_memory_size_params`] of flags alone.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_memory_size(entries: u32, flags: u32) -> isize {
    io_uring_memory_size_params(entries, &UringParams { flags, ..UringParams::default() })
}

/// Bytes of locked memory (RLIMIT_MEMLOCK) that a ring of these parameters takes, or -errno.
///
/// The engine's rings lock none. Only a number of entries that no ring of default flags can have is
/// checked against `p`, as in liburing.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_mlock_size_params(entries: u32, p: &UringParams) -> isize {
    match rounded(entries, layout::MAX_ENTRIES, Excess::Refuse) {
        Ok(_) => 0,
        Err(_) => io_uring_memory_size_params(entries, p),
    }
}

/// [`io_uring_mlock_size_params`] of flags alone.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_mlock_size(entries: u32, flags: u32) -> isize {
    io_uring_mlock_size_params(entries, &UringParams { flags, ..UringParams::default() })
}
