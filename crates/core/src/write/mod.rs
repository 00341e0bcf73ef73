//! Buffered writes: which thread executes them, and when.
//!
//! The page cache takes most of them in about a microsecond, and then nothing is faster than the
//! caller's own pwrite. The others must not hold the caller up: a file whose writes were seen to
//! block goes down a gear (`crate::route`) until they no longer do ([`history`]), and when the
//! whole machine has too many dirty pages, writes wait for deadlines instead of sleeping
//! ([`crate::throttle`]).

pub(crate) mod history;

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use history::{History, Latency};
use uringlet_abi::setup;
use uringlet_sys::fd_table;
use uringlet_sys::stats::{self, Counter};

/// How a ring's buffered writes are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum WriteMode {
    /// By the caller, while that is expected not to block.
    #[default]
    Adaptive = 0,
    /// By the holder of the ring's baton: see `driver::uringlet`.
    Uringlet = 1,
    /// By io-wq's workers.
    Workers = 2,
}

impl WriteMode {
    /// The mode of this name, as `uringlet run --mode` and the variable `URINGLET_MODE` give it.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"adaptive" => Some(Self::Adaptive),
            b"uringlet" => Some(Self::Uringlet),
            b"workers" => Some(Self::Workers),
            _ => None,
        }
    }
}

/// The mode of rings made from now on.
static MODE: AtomicU32 = AtomicU32::new(WriteMode::Adaptive as u32);

/// How rings made from now on execute buffered writes, unless their flags say so.
pub(crate) fn set_mode(mode: WriteMode) {
    MODE.store(mode as u32, Relaxed);
}

/// The mode of a ring with these `IORING_SETUP_*` flags.
pub(crate) fn mode_for(flags: u32) -> WriteMode {
    match MODE.load(Relaxed) {
        _ if flags & setup::URINGLET != 0 => WriteMode::Uringlet,
        mode if mode == WriteMode::Uringlet as u32 => WriteMode::Uringlet,
        mode if mode == WriteMode::Workers as u32 => WriteMode::Workers,
        _ => WriteMode::Adaptive,
    }
}

/// The history of writes to the number's file.
#[inline]
pub(crate) fn history_of(fd: i32) -> History {
    History::of(fd_table::history(fd))
}

/// An inline write was slow: the file goes down a gear.
#[cold]
pub(crate) fn note_inline_miss(ring_index: u32, fd: i32) {
    after_inline(ring_index, fd, Latency::Slow);
}

/// The submitter, or the holder of the baton, wrote to a file; for the ring of this index.
pub(crate) fn after_inline(ring_index: u32, fd: i32, took: Latency) {
    if took == Latency::Slow {
        stats::bump(ring_index, Counter::SlowInlineWrites);
    }
    if took == Latency::Slow || history_of(fd).is_down() {
        change_gear(ring_index, fd, |history| history.after_inline(took));
    }
}

/// A worker wrote, or the submitter with `RWF_NOWAIT`.
pub(crate) fn after_worker(ring_index: u32, fd: i32, took: Latency) {
    change_gear(ring_index, fd, |history| history.after_worker(took));
}

fn change_gear(ring_index: u32, fd: i32, change: impl Fn(History) -> History) {
    let was_down = history_of(fd).is_down();
    let is_down = note(fd, change).is_down();
    match (was_down, is_down) {
        (false, true) => stats::bump(ring_index, Counter::FilesDemoted),
        (true, false) => stats::bump(ring_index, Counter::FilesPromoted),
        _ => {}
    }
}

/// Changes the history of writes to the number's file.
pub(crate) fn note(fd: i32, change: impl Fn(History) -> History) -> History {
    History::of(fd_table::change_history(fd, |word| change(History::of(word)).word()))
}
