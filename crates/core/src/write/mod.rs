//! Buffered writes: who executes them, and when.
//!
//! The page cache takes most of them in about a microsecond, and then nothing is faster than the caller's own pwrite. The
//! rest must not hold the caller up: a file whose writes were seen to block goes down a gear ([`path`]) until they no
//! longer do ([`history`]), and when the whole machine has too many dirty pages, writes are put off by deadlines instead
//! of sleeping ([`throttle`]).

pub(crate) mod history;
pub(crate) mod path;
pub(crate) mod throttle;

use alloc::collections::{BTreeMap, btree_map::Entry};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use history::{History, Latency};
use throttle::{BudgetReply, THROTTLE};
use uringlet_abi::setup;
use uringlet_sys::stats::{self, Counter};
use uringlet_sys::{clock, fd_table, process};

/// How a ring's buffered writes are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum WriteMode {
    /// By the caller, while that is expected not to block.
    #[default]
    Adaptive = 0,
    /// By whoever holds the ring's baton: see `driver::uringlet`.
    Uringlet = 1,
    /// By io-wq's workers.
    Workers = 2,
}

impl WriteMode {
    /// By its name, as `uringlet run --mode` and the variable `URINGLET_MODE` give it.
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

/// Of rings made from now on.
static MODE: AtomicU32 = AtomicU32::new(WriteMode::Adaptive as u32);

/// How rings made from now on execute buffered writes, unless they ask for a way themselves.
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

/// What a ring may write before it has to look at the machine's dirty pages again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DirtyBudget {
    bytes: u64,
    until_ticks: u64,
}

/// A write has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Throttled {
    /// Until then (`CLOCK_MONOTONIC`).
    pub(crate) deadline_ns: u64,
    /// For so long those wait for it that are asked for later.
    pub(crate) cost_ns: u64,
}

/// Writes of a ring that were put off, by file: until when.
#[derive(Debug, Default)]
pub(crate) struct ThrottledWrites {
    /// By number and deadline: how many.
    writes: BTreeMap<(i32, u64), u32>,
}

impl ThrottledWrites {
    /// A write to this number's file is put off.
    #[cold]
    pub(crate) fn add(&mut self, fd: i32, throttled: Throttled) {
        *self.writes.entry((fd, throttled.deadline_ns)).or_default() += 1;
    }

    /// It is not any more.
    #[cold]
    pub(crate) fn remove(&mut self, fd: i32, throttled: Throttled) {
        if let Entry::Occupied(mut entry) = self.writes.entry((fd, throttled.deadline_ns)) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    /// When the last write to this number's file has its turn.
    pub(crate) fn last_deadline_ns(&self, fd: i32) -> Option<u64> {
        self.writes.range((fd, 0)..=(fd, u64::MAX)).next_back().map(|(&(_, deadline_ns), _)| deadline_ns)
    }
}

impl DirtyBudget {
    /// Whether `bytes` may be written at `now_ticks`.
    #[inline(always)]
    pub(crate) fn covers(self, now_ticks: u64, bytes: u64) -> bool {
        bytes <= self.bytes && now_ticks < self.until_ticks
    }

    /// `bytes` were written.
    #[inline(always)]
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// As [`covers`](Self::covers), asking for more if it is used up.
    ///
    /// # Errors
    /// Too many pages are dirty: when to come back.
    #[cold]
    pub(crate) fn request(&mut self, bytes: u64) -> Result<(), Throttled> {
        let now_ticks = clock::ticks();
        if self.covers(now_ticks, bytes) {
            return Ok(());
        }
        let now_ns = process::monotonic_ns();
        match THROTTLE.request(now_ns, bytes) {
            BudgetReply::Free { bytes, until_ns } => {
                // A tick is no longer than a nanosecond: the ring asks again sooner than it must.
                *self = Self { bytes, until_ticks: now_ticks.saturating_add(until_ns.saturating_sub(now_ns)) };
                Ok(())
            }
            BudgetReply::Throttled(throttled) => Err(throttled),
        }
    }
}

/// A write is put off, of the ring in this place.
pub(crate) fn note_throttled(ring_index: u32) {
    stats::bump(ring_index, Counter::Throttled);
    stats::bump(ring_index, Counter::ThrottledNow);
    stats::raise(ring_index, Counter::ThrottledMax, stats::value(ring_index, Counter::ThrottledNow));
}

/// It is not any more, since its time has come, or since nobody wants it: then nobody has to wait for it.
pub(crate) fn note_unthrottled(ring_index: u32, throttled: Throttled, since_ns: u64) {
    let now_ns = process::monotonic_ns();
    stats::sub(ring_index, Counter::ThrottledNow, 1);
    stats::add(ring_index, Counter::ThrottledNs, now_ns.saturating_sub(since_ns));
    if now_ns < throttled.deadline_ns {
        THROTTLE.refund(throttled.cost_ns);
    }
}

/// How writes to the number's file went so far.
#[inline]
pub(crate) fn history_of(fd: i32) -> History {
    History::of(fd_table::history(fd))
}

/// An inline write took longer than it may: the file goes down a gear.
#[cold]
pub(crate) fn note_inline_miss(ring_index: u32, fd: i32) {
    after_inline(ring_index, fd, Latency::Slow);
}

/// The caller, or who holds the baton, wrote to a file; of the ring in this place.
pub(crate) fn after_inline(ring_index: u32, fd: i32, took: Latency) {
    if took == Latency::Slow {
        stats::bump(ring_index, Counter::SlowInlineWrites);
    }
    if took == Latency::Slow || history_of(fd).is_down() {
        change_gear(ring_index, fd, |history| history.after_inline(took));
    }
}

/// A worker wrote, or the caller without waiting.
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

/// Remembers something of a number's file.
pub(crate) fn note(fd: i32, change: impl Fn(History) -> History) -> History {
    History::of(fd_table::change_history(fd, |word| change(History::of(word)).word()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_files_put_off_writes_is_known_until_it_goes() {
        let throttled = |deadline_ns| Throttled { deadline_ns, cost_ns: 0 };
        let mut throttled_writes = ThrottledWrites::default();
        for (fd, deadline_ns) in [(3, 20), (3, 30), (3, 30), (4, 50)] {
            throttled_writes.add(fd, throttled(deadline_ns));
        }
        assert_eq!(throttled_writes.last_deadline_ns(3), Some(30));
        throttled_writes.remove(3, throttled(30));
        assert_eq!(throttled_writes.last_deadline_ns(3), Some(30), "there were two");
        throttled_writes.remove(3, throttled(30));
        assert_eq!(throttled_writes.last_deadline_ns(3), Some(20));
        throttled_writes.remove(3, throttled(20));
        assert_eq!(throttled_writes.last_deadline_ns(3), None);
        assert_eq!(throttled_writes.last_deadline_ns(4), Some(50));
    }
}
