//! The engine's statistics block (`uringlet_sys::stats`), decoded by means of its header.

use uringlet_sys::stats::LAYOUT_VERSION;

use super::bytes::{u32_at, u64_at};
use super::elf::{self, EngineNote};
use super::error::StatError;
use super::process::RemoteProcess;

const MAGIC: &[u8] = b"uringlet";
const HEADER: usize = 88;
/// Larger than the block of any version.
const BLOCK_MAX: u32 = 16 << 20;
const EVENT_WORDS: usize = 7;

/// The statistics block of an engine in a process.
#[derive(Debug)]
pub(crate) struct StatsBlock {
    object: String,
    address: u64,
}

/// How the values of several rings are combined, and how differences are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CounterKind {
    /// Only grows; summed.
    Count,
    /// A current number; summed.
    Gauge,
    /// The highest value ever; the maximum is taken.
    Max,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CounterDesc {
    pub(super) kind: CounterKind,
    pub(super) name: String,
}

/// The counters of one ring index, in the order of the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RingCounters {
    pub(super) index: u32,
    pub(super) values: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatEvent {
    /// Counted from 0.
    pub(super) number: u64,
    /// `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
    pub(super) kind: String,
    pub(super) ring: u64,
    pub(super) offset: u64,
    pub(super) wanted: u64,
    pub(super) got: u64,
}

/// The whole block at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) object: String,
    /// Version of the engine.
    pub(super) version: String,
    pub(super) counters: Vec<CounterDesc>,
    /// Number of ring indices with counters. All rings beyond share the last one.
    pub(super) block_count: u32,
    /// Only those with a counter that is not 0.
    pub(super) rings: Vec<RingCounters>,
    /// Number of events since the start. Those still kept are in `events`, the oldest first.
    pub(super) events_total: u64,
    pub(super) events: Vec<StatEvent>,
}

impl Snapshot {
    /// The counters of all rings combined.
    pub(super) fn totals(&self) -> Vec<u64> {
        let total = |(at, counter): (usize, &CounterDesc)| {
            let values = self.rings.iter().map(|ring| ring.values[at]);
            if counter.kind == CounterKind::Max { values.max().unwrap_or(0) } else { values.fold(0, u64::wrapping_add) }
        };
        self.counters.iter().enumerate().map(total).collect()
    }
}

/// What `uringlet top` shows of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineCounters {
    /// Ring indices that have been used.
    pub(crate) rings: usize,
    /// SQEs consumed.
    pub(crate) submitted: u64,
    /// Writes that are delayed at this moment.
    pub(crate) throttled_now: u64,
}

impl StatsBlock {
    /// A few counters of all rings together.
    pub(crate) fn counters(&self, process: &RemoteProcess) -> Result<EngineCounters, StatError> {
        let seen = self.snapshot(process)?;
        let totals = seen.totals();
        let value = |name: &str| seen.counters.iter().position(|counter| counter.name == name).map_or(0, |at| totals[at]);
        Ok(EngineCounters { rings: seen.rings.len(), submitted: value("submitted"), throttled_now: value("throttled_now") })
    }

    /// Finds the engine of a process. Of several (the drop-in liburing forwards to an attached
    /// engine) the one with the highest counters.
    pub(crate) fn find(process: &RemoteProcess) -> Result<Self, StatError> {
        let mut best: Option<(u64, Self)> = None;
        let mut none = StatError::NoEngine;
        for mapped in process.mapped()? {
            let Some(found) = find_note(process, mapped.start)? else { continue };
            if found.layout != LAYOUT_VERSION {
                none = StatError::LayoutMismatch { object: mapped.path, layout: found.layout };
                continue;
            }
            let engine = Self { object: mapped.path, address: found.address };
            let counted = match engine.snapshot(process) {
                Ok(snapshot) => snapshot.totals().into_iter().fold(0, u64::saturating_add),
                // The file is mapped in another way than by the loader, for instance for a
                // backtrace.
                Err(error @ StatError::Corrupt(_)) => {
                    none = error;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if best.as_ref().is_none_or(|(most, _)| counted > *most) {
                best = Some((counted, engine));
            }
        }
        best.map(|(_, engine)| engine).ok_or(none)
    }

    /// The address of the engine's `TraceControl`.
    pub(crate) fn trace_control(&self, process: &RemoteProcess) -> Result<u64, StatError> {
        let header = BlockHeader::parse(&process.read_vec(self.address, HEADER)?)?;
        Ok(self.address + u64::from(header.trace_at))
    }

    /// Reads counters and events.
    pub(super) fn snapshot(&self, process: &RemoteProcess) -> Result<Snapshot, StatError> {
        let header = BlockHeader::parse(&process.read_vec(self.address, HEADER)?)?;
        let read = || process.read_vec(self.address, header.size as usize);
        // An event of the second copy is consistent if its number is the same in the first and
        // third.
        let [before, bytes, after] = [read()?, read()?, read()?];
        header.decode(self.object.clone(), &before, &bytes, &after).ok_or(StatError::Corrupt("the header contradicts the block"))
    }
}

fn find_note(process: &RemoteProcess, start: u64) -> Result<Option<EngineNote>, StatError> {
    // Unreadable pages (a truncated file, a device) hold no engine.
    let empty_if_unreadable = |read: Result<Vec<u8>, StatError>| match read {
        Err(StatError::Corrupt(_)) => Ok(Vec::new()),
        other => other,
    };
    let head = empty_if_unreadable(process.read_vec(start, elf::HEAD))?;
    for segment in elf::note_segments(&head, start) {
        let bytes = empty_if_unreadable(process.read_vec(segment.address, segment.len))?;
        if let Some(found) = elf::find_engine_note(&bytes, segment) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The header, as in `uringlet_sys::stats`.
#[derive(Debug)]
struct BlockHeader {
    size: u32,
    names: (u32, u32),
    kinds: (u32, u32),
    blocks_at: u32,
    block_stride: u32,
    blocks: u32,
    counters: u32,
    events_at: u32,
    event_stride: u32,
    events: u32,
    events_total_at: u32,
    trace_at: u32,
    version: String,
}

impl BlockHeader {
    fn parse(bytes: &[u8]) -> Result<Self, StatError> {
        if !bytes.starts_with(MAGIC) {
            return Err(StatError::Corrupt("wrong magic number"));
        }
        let word = |n: usize| u32_at(bytes, MAGIC.len() + 4 * n).ok_or(StatError::Corrupt("truncated header"));
        let size = word(1)?;
        if size > BLOCK_MAX {
            return Err(StatError::Corrupt("size out of bounds"));
        }
        Ok(Self {
            size,
            names: (word(2)?, word(3)?),
            kinds: (word(4)?, word(5)?),
            blocks_at: word(6)?,
            block_stride: word(7)?,
            blocks: word(8)?,
            counters: word(9)?,
            events_at: word(10)?,
            event_stride: word(11)?,
            events: word(12)?,
            events_total_at: word(13)?,
            trace_at: word(14)?,
            version: strings(bytes.get(72..HEADER).unwrap_or_default()).next().unwrap_or_default(),
        })
    }

    fn decode(&self, object: String, before: &[u8], bytes: &[u8], after: &[u8]) -> Option<Snapshot> {
        let fits = |count: u32, stride: u32, least: usize| {
            stride as usize >= least && u64::from(count) * u64::from(stride) <= u64::from(self.size)
        };
        if !fits(self.blocks, self.block_stride, 8) || !fits(self.events, self.event_stride, 8 * EVENT_WORDS) {
            return None;
        }
        let counters: Vec<CounterDesc> = strings(section(bytes, self.names)?).map(counter).collect::<Option<_>>()?;
        if counters.len() != self.counters as usize {
            return None;
        }
        let kinds: Vec<String> = strings(section(bytes, self.kinds)?).collect();
        let rings = (0..self.blocks).map(|index| self.ring(bytes, index)).collect::<Option<Vec<_>>>()?;
        let mut events: Vec<StatEvent> = (0..self.events).filter_map(|n| self.event(&kinds, before, bytes, after, n)).collect();
        events.sort_by_key(|event| event.number);
        Some(Snapshot {
            object,
            version: self.version.clone(),
            counters,
            block_count: self.blocks,
            rings: rings.into_iter().filter(|ring| ring.values.iter().any(|&value| value != 0)).collect(),
            events_total: u64_at(bytes, self.events_total_at as usize)?,
            events,
        })
    }

    fn ring(&self, bytes: &[u8], index: u32) -> Option<RingCounters> {
        let at = self.blocks_at as usize + index as usize * self.block_stride as usize;
        let values = (0..self.counters as usize).map(|n| u64_at(bytes, at + 8 * n)).collect::<Option<_>>()?;
        Some(RingCounters { index, values })
    }

    /// An entry, if it holds a consistent event.
    fn event(&self, kinds: &[String], before: &[u8], bytes: &[u8], after: &[u8], n: u32) -> Option<StatEvent> {
        let at = self.events_at as usize + n as usize * self.event_stride as usize;
        let seq = u64_at(before, at)?;
        if seq == 0 || !seq.is_multiple_of(2) || u64_at(after, at)? != seq {
            return None;
        }
        let mut words = [0; EVENT_WORDS];
        for (n, word) in words.iter_mut().enumerate() {
            *word = u64_at(bytes, at + 8 * n)?;
        }
        let [_, time_ns, kind, ring, offset, wanted, got] = words;
        let kind = usize::try_from(kind).ok().and_then(|kind| kinds.get(kind)).map_or_else(|| format!("event {kind}"), Clone::clone);
        Some(StatEvent { number: seq / 2 - 1, time_ns, kind, ring, offset, wanted, got })
    }
}

fn section(bytes: &[u8], (at, len): (u32, u32)) -> Option<&[u8]> {
    bytes.get(at as usize..)?.get(..len as usize)
}

/// NUL-terminated strings, escaped so that another process's bytes are safe to print.
fn strings(bytes: &[u8]) -> impl Iterator<Item = String> {
    let ended = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    ended.split(|&byte| byte == 0).map(|text| text.escape_ascii().to_string())
}

fn counter(text: String) -> Option<CounterDesc> {
    let kind = match text.chars().next()? {
        '+' => CounterKind::Count,
        '=' => CounterKind::Gauge,
        '^' => CounterKind::Max,
        _ => return None,
    };
    Some(CounterDesc { kind, name: text[1..].to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlet_sys::stats::{self, Counter as EngineCounter, SHARED};

    /// This process has an engine built in, which is read like that of any other.
    fn snapshot() -> Snapshot {
        let this = RemoteProcess::find(std::process::id().cast_signed()).unwrap();
        StatsBlock::find(&this).unwrap().snapshot(&this).unwrap()
    }

    fn total(snapshot: &Snapshot, name: &str) -> u64 {
        snapshot.totals()[snapshot.counters.iter().position(|counter| counter.name == name).unwrap()]
    }

    #[test]
    fn counters_are_decoded() {
        stats::add(3, EngineCounter::WritesInline, 40);
        stats::bump(SHARED + 5, EngineCounter::WritesInline);
        stats::add(3, EngineCounter::UringletRunByWaiter, 2);
        stats::raise(3, EngineCounter::ThrottledMax, 7);
        stats::raise(4, EngineCounter::ThrottledMax, 9);
        let seen = snapshot();
        assert_eq!((total(&seen, "writes_inline"), total(&seen, "uringlet_run_by_waiter"), total(&seen, "throttled_max")), (41, 2, 9));
        assert_eq!(seen.rings.iter().map(|ring| ring.index).filter(|index| [3, 4, SHARED].contains(index)).count(), 3);
        assert_eq!((seen.block_count, seen.version.as_str()), (SHARED + 1, env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn events_are_decoded_in_order() {
        for n in 0..300 {
            stats::short_write(9, n * 4096, 4096, n);
        }
        let seen = snapshot();
        assert_eq!((seen.events_total, seen.events.len()), (300, 256));
        let got: Vec<u64> = seen.events.iter().map(|event| event.got).collect();
        assert_eq!(got, (44..300).collect::<Vec<_>>());
        let last = seen.events.last().unwrap();
        assert_eq!((last.kind.as_str(), last.ring, last.offset, last.wanted), ("io_uring_short_write", 9, 299 * 4096, 4096));
    }

    #[test]
    fn corrupt_headers_are_refused() {
        assert!(matches!(BlockHeader::parse(&[0; HEADER]), Err(StatError::Corrupt(_))));
        let mut bytes = [0xff; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        assert!(matches!(BlockHeader::parse(&bytes), Err(StatError::Corrupt(_))));
        bytes[12..16].copy_from_slice(&4096_u32.to_le_bytes());
        let header = BlockHeader::parse(&bytes).unwrap();
        assert_eq!(header.decode(String::new(), &[0; 4096], &[0; 4096], &[0; 4096]), None);
    }
}
