//! The block of memory that readers find, and the note that leads to it.

use super::counters::{BLOCKS, COUNTERS, Counter, NAMES, SHARED};
use super::events::{self, EVENTS_KEPT, EventRing};
use crate::arch::stats_note;
use crate::process;
use crate::trace::TraceControl;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Version of the [`StatsHeader`]'s layout.
pub const LAYOUT_VERSION: u32 = 2;
/// Name of the note's owner.
pub const NOTE_NAME: &str = "uringlet";

/// Counters of one ring index, on cache lines of their own.
#[derive(Debug)]
#[repr(C, align(64))]
struct Block([AtomicU64; COUNTERS]);

/// Where everything is in the block of memory. Offsets are bytes from its beginning.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StatsHeader {
    /// `uringlet`
    pub magic: [u8; 8],
    /// [`LAYOUT_VERSION`]
    pub layout: u32,
    /// Size of the block, bytes.
    pub size: u32,
    /// Offset of the names: of each counter its kind (`+`, `=`, `^`) and name, with a NUL.
    pub names_at: u32,
    /// Their length, bytes.
    pub names_len: u32,
    /// Offset of the names of the kinds of events, in order, each with a NUL.
    pub kinds_at: u32,
    /// Their length, bytes.
    pub kinds_len: u32,
    /// Offset of the blocks of counters. A counter is a 64-bit word.
    pub blocks_at: u32,
    /// Bytes from one block to the next.
    pub block_stride: u32,
    /// Number of blocks; the last is shared.
    pub blocks: u32,
    /// Counters in each block.
    pub counters: u32,
    /// Offset of the events (see `events`): seven 64-bit words each.
    pub events_at: u32,
    /// Bytes from one event to the next.
    pub event_stride: u32,
    /// Number of events kept.
    pub events: u32,
    /// Offset of the 64-bit number of all events ever.
    pub events_total_at: u32,
    /// Offset of the [`TraceControl`].
    pub trace_at: u32,
    /// Keeps the version at a multiple of 8.
    pub reserved: u32,
    /// The engine's version, padded with NULs.
    pub engine: [u8; 16],
}

#[derive(Debug)]
#[repr(C)]
struct Stats {
    header: StatsHeader,
    names: [u8; NAMES.len()],
    kinds: [u8; events::KINDS.len()],
    blocks: [Block; BLOCKS],
    events: EventRing<EVENTS_KEPT>,
    trace: TraceControl,
}

static STATS: Stats = Stats {
    header: StatsHeader {
        magic: *b"uringlet",
        layout: LAYOUT_VERSION,
        size: size_of::<Stats>() as u32,
        names_at: offset_of!(Stats, names) as u32,
        names_len: NAMES.len() as u32,
        kinds_at: offset_of!(Stats, kinds) as u32,
        kinds_len: events::KINDS.len() as u32,
        blocks_at: offset_of!(Stats, blocks) as u32,
        block_stride: size_of::<Block>() as u32,
        blocks: BLOCKS as u32,
        counters: COUNTERS as u32,
        events_at: (offset_of!(Stats, events) + EventRing::<EVENTS_KEPT>::ENTRIES_AT) as u32,
        event_stride: events::STRIDE as u32,
        events: EVENTS_KEPT as u32,
        events_total_at: (offset_of!(Stats, events) + EventRing::<EVENTS_KEPT>::TOTAL_AT) as u32,
        trace_at: offset_of!(Stats, trace) as u32,
        reserved: 0,
        engine: padded(env!("CARGO_PKG_VERSION")),
    },
    names: bytes(NAMES),
    kinds: bytes(events::KINDS),
    blocks: [const { Block([const { AtomicU64::new(0) }; COUNTERS]) }; BLOCKS],
    events: EventRing::new(),
    trace: TraceControl::new(),
};

/// Whether and where this process records (`trace`): beside the counters, where a tracer finds it.
#[inline(always)]
pub(crate) fn trace_control() -> &'static TraceControl {
    &STATS.trace
}

stats_note!(LAYOUT_VERSION, STATS);

const fn padded<const N: usize>(text: &str) -> [u8; N] {
    let (text, mut padded, mut at) = (text.as_bytes(), [0; N], 0);
    while at < text.len() && at < N {
        padded[at] = text[at];
        at += 1;
    }
    padded
}

const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    assert!(text.len() == N);
    padded(text)
}

/// Passes a counter's word to `change`, with its value if only this ring uses it.
#[inline(always)]
pub(super) fn change(ring: u32, counter: Counter, change: impl FnOnce(&AtomicU64, Option<u64>)) {
    let word = &STATS.blocks[ring.min(SHARED) as usize].0[counter as usize];
    change(word, (ring < SHARED).then(|| word.load(Relaxed)));
}

/// Records a short write at this moment.
pub(super) fn short_write([ring, offset, wanted, got]: [u64; 4]) {
    STATS.events.post([process::monotonic_ns(), events::SHORT_WRITE, ring, offset, wanted, got]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_offsets_lie_inside_the_block() {
        let header = &STATS.header;
        assert!(header.events_at as usize + header.events as usize * header.event_stride as usize <= header.size as usize);
        assert!(header.blocks_at.is_multiple_of(64) && header.block_stride as usize >= COUNTERS * 8);
        assert_eq!((header.events_at % 8, header.events_total_at % 8), (0, 0));
    }
}
