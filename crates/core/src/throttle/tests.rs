//! The dirty rate by tables, and against a simulated disk.

use super::dirty_rate::{BudgetReply, DirtyRate, RATE_MIN, READING_NS, Throttled, ratio};
use alloc::format;
use alloc::vec::Vec;
use uringlet_sys::vmstat::{Domain, Readings};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn domain(dirty: u64, background: u64, limit: u64) -> Domain {
    Domain { dirty_bytes: dirty * MIB, background_bytes: background * MIB, limit_bytes: limit * MIB }
}

fn readings(machine: Domain) -> Readings {
    Readings { machine, cgroup: None, dirtied_bytes: 0, written_bytes: 0 }
}

fn dirty_rate(readings: Readings) -> DirtyRate {
    let mut dirty_rate = DirtyRate::new();
    dirty_rate.learn(0, Some(readings));
    dirty_rate
}

fn deadline(reply: BudgetReply, now: u64) -> u64 {
    match reply {
        BudgetReply::Free { .. } => now,
        BudgetReply::Throttled(Throttled { deadline_ns, .. }) => deadline_ns,
    }
}

#[test]
fn ratio_falls_from_two_to_zero_before_the_limit() {
    // Ceiling 600, edge 950, so the setpoint is 775.
    let table = [(0, 2048), (600, 2048), (775, 1024), (950, 0), (1000, 0), (5000, 0)];
    for (dirty, expected) in table {
        assert_eq!(ratio(domain(dirty, 200, 1000)), expected, "{dirty} MiB dirty");
    }
    let falls = (600..950).map(|dirty| ratio(domain(dirty, 200, 1000))).is_sorted_by(|a, b| a >= b);
    assert!(falls);
    // No limits at all, or all at one point: no panic, no rate.
    assert_eq!(ratio(domain(0, 0, 0)), 2048);
    assert_eq!(ratio(domain(1, 0, 0)), 0);
}

#[test]
fn far_from_the_limits_there_are_budgets() {
    // MiB dirty -> MiB of the budget, for so long (ms).
    let table = [(0, 64, 292), (200, 50, 195), (520, 10, 50), (599, 0, 50)];
    for (dirty, budget, ms) in table {
        let reply = dirty_rate(readings(domain(dirty, 200, 1000))).request(0, 4096);
        let BudgetReply::Free { bytes, until_ns } = reply else { panic!("{dirty}: {reply:?}") };
        assert_eq!((bytes / MIB, until_ns / 1_000_000), (budget, ms), "{dirty} MiB dirty");
    }
}

#[test]
fn budgets_together_are_less_than_the_room() {
    let mut dirty_rate = dirty_rate(readings(domain(500, 200, 1000)));
    let mut given = 0;
    while let BudgetReply::Free { bytes, until_ns } = dirty_rate.request(1, 4096) {
        if until_ns == 1 {
            break;
        }
        given += bytes;
    }
    assert!((99 * MIB..=100 * MIB).contains(&given), "{given}");
}

#[test]
fn large_write_is_granted_whole_or_paid_for() {
    let mut free = dirty_rate(readings(domain(0, 200, 1000)));
    assert!(matches!(free.request(0, 500 * MIB), BudgetReply::Free { bytes, .. } if bytes == 500 * MIB));
    let mut late = dirty_rate(readings(domain(0, 200, 1000)));
    assert_eq!(late.request(0, 700 * MIB), BudgetReply::Free { bytes: 700 * MIB, until_ns: 0 });
    // At twice the first guess of 100 MiB/s.
    assert_eq!(deadline(late.request(0, 4096), 0), 3_500_000_000);
}

#[test]
fn burst_is_spaced_and_a_later_request_owes_nothing() {
    let mut dirty_rate = dirty_rate(readings(domain(775, 200, 1000)));
    let deadlines: Vec<_> = (0..101).map(|_| deadline(dirty_rate.request(0, MIB), 0)).collect();
    assert_eq!(deadlines[0], 0);
    let gaps = deadlines.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.clone().all(|gap| gap == 10_000_000), "{:?}", gaps.collect::<Vec<_>>());
    let later = deadlines[100] + SECOND;
    assert_eq!(dirty_rate.request(later, MIB), BudgetReply::Free { bytes: MIB, until_ns: later });
}

#[test]
fn short_pauses_are_accumulated() {
    let mut dirty_rate = dirty_rate(readings(domain(775, 200, 1000)));
    // 4 KiB at 100 MiB/s: 39 us each, so that 52 fit in 2 ms.
    let free = (0..1000).take_while(|_| matches!(dirty_rate.request(0, 4096), BudgetReply::Free { .. })).count();
    assert_eq!(free, 52);
}

#[test]
fn at_the_limit_the_least_rate_holds() {
    let mut dirty_rate = dirty_rate(readings(domain(2000, 200, 1000)));
    let last = (0..=64).map(|_| deadline(dirty_rate.request(0, RATE_MIN / 64), 0)).last();
    assert_eq!(last, Some(SECOND));
}

#[test]
fn stricter_domain_decides() {
    let machine = domain(0, 2000, 4000);
    let cgroup = Some(domain(80, 20, 100));
    let mut full = dirty_rate(Readings { cgroup, ..readings(machine) });
    full.request(0, MIB);
    assert!(matches!(full.request(0, MIB), BudgetReply::Throttled(_)));
    let mut roomy = dirty_rate(Readings { cgroup: Some(domain(20, 20, 100)), ..readings(machine) });
    assert!(matches!(roomy.request(0, 4096), BudgetReply::Free { bytes, .. } if bytes == 5 * MIB));
}

#[test]
fn without_readings_nothing_is_throttled() {
    let mut dirty_rate = DirtyRate::new();
    assert!(dirty_rate.wants_reading(5));
    // Another thread reads at this moment.
    assert_eq!(dirty_rate.request(5, 4096), BudgetReply::Free { bytes: 4096, until_ns: 5 });
    dirty_rate.learn(5, None);
    assert_eq!(dirty_rate.request(6, 4096), BudgetReply::Free { bytes: u64::MAX, until_ns: 60 * SECOND + 5 });
    assert!(!dirty_rate.wants_reading(59 * SECOND));
    assert!(dirty_rate.wants_reading(61 * SECOND));
}

#[test]
fn reading_is_used_for_a_while() {
    let dirty_rate = dirty_rate(readings(domain(0, 200, 1000)));
    assert!(!dirty_rate.wants_reading(READING_NS - 1));
    assert!(dirty_rate.wants_reading(READING_NS));
}

/// The rate of this process, MiB/s, after the disks wrote and all processes dirtied these rates
/// (MiB/s) for 5 s, half-way between ceiling and edge.
fn allowed_after(mut dirty_rate: DirtyRate, from_ns: u64, written: u64, dirtied: u64) -> (DirtyRate, u64) {
    let mut seen = readings(domain(775, 200, 1000));
    for step in 0..25 {
        seen.written_bytes += written * MIB / 5;
        seen.dirtied_bytes += dirtied * MIB / 5;
        dirty_rate.learn(from_ns + step * SECOND / 5, Some(seen));
    }
    let now = from_ns + 100 * SECOND;
    dirty_rate.request(now, MIB);
    let gap = deadline(dirty_rate.request(now, MIB), now) - now;
    (dirty_rate, SECOND / gap)
}

#[test]
fn bandwidth_is_measured_repeatedly() {
    let (dirty_rate, fast) = allowed_after(DirtyRate::new(), 0, 400, 1);
    assert!((380..=400).contains(&fast), "{fast}");
    let (_, slow) = allowed_after(dirty_rate, 200 * SECOND, 40, 1);
    assert!((38..=50).contains(&slow), "{slow}");
}

#[test]
fn rate_falls_when_more_is_dirtied_than_written() {
    let (_, alone) = allowed_after(DirtyRate::new(), 0, 100, 100);
    let (_, together) = allowed_after(DirtyRate::new(), 0, 100, 200);
    assert!(alone >= 95 && together < 20, "{alone} {together}");
}

/// A machine: a disk, its limits, and another process that dirties pages unthrottled.
struct Machine {
    now: u64,
    seen: Readings,
    disk_rate: u64,
    neighbour_rate: u64,
    most_dirty: u64,
}

impl Machine {
    fn new(disk_rate: u64, neighbour_rate: u64, background: u64, limit: u64) -> Self {
        Self { now: SECOND, seen: readings(domain(0, background, limit)), disk_rate, neighbour_rate, most_dirty: 0 }
    }

    /// In steps of at most 5 ms, each of which the disk begins with or without work.
    fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            let step = (end - self.now).min(5_000_000);
            self.now += step;
            self.dirty((u128::from(self.neighbour_rate) * u128::from(step) / u128::from(SECOND)) as u64);
            let domain = &mut self.seen.machine;
            if domain.dirty_bytes > domain.background_bytes {
                let out = (u128::from(self.disk_rate) * u128::from(step) / u128::from(SECOND)) as u64;
                let out = out.min(domain.dirty_bytes);
                domain.dirty_bytes -= out;
                self.seen.written_bytes += out;
            }
        }
    }

    fn dirty(&mut self, bytes: u64) {
        self.seen.machine.dirty_bytes += bytes;
        self.seen.dirtied_bytes += bytes;
        self.most_dirty = self.most_dirty.max(self.seen.machine.dirty_bytes);
    }

    fn ask(&self, dirty_rate: &mut DirtyRate, bytes: u64) -> BudgetReply {
        if dirty_rate.wants_reading(self.now) {
            dirty_rate.learn(self.now, Some(self.seen));
        }
        dirty_rate.request(self.now, bytes)
    }
}

/// The rate of a writer of depth 1 in the second half, bytes a second, and its longest pause.
fn write_for(machine: &mut Machine, seconds: u64, writer_rate: u64, bytes: u64) -> (u64, u64) {
    let mut dirty_rate = DirtyRate::new();
    let (begin, mut written, mut longest) = (machine.now, 0, 0);
    let (mut left, mut until) = (0_u64, 0);
    while machine.now - begin < seconds * SECOND {
        if left < bytes || machine.now >= until {
            match machine.ask(&mut dirty_rate, bytes) {
                BudgetReply::Free { bytes: budget, until_ns } => (left, until) = (budget, until_ns),
                BudgetReply::Throttled(Throttled { deadline_ns, .. }) => {
                    longest = longest.max(deadline_ns - machine.now);
                    machine.pass(deadline_ns - machine.now);
                    (left, until) = (bytes, machine.now);
                }
            }
        }
        left -= bytes;
        machine.dirty(bytes);
        machine.pass(bytes * SECOND / writer_rate);
        if machine.now - begin > seconds * SECOND / 2 {
            written += bytes;
        }
    }
    (written * 2 / seconds, longest)
}

#[test]
fn writer_gets_the_disks_bandwidth_and_stays_below_the_limit() {
    // Disk, writer (MiB/s), background, limit (MiB), size of a write (KiB).
    let table = [
        (100, 2000, 500, 1000, 64),
        (1000, 3000, 2000, 4000, 128),
        (20, 2000, 100, 200, 64),
        (400, 800, 300, 600, 16),
        (100, 1000, 50, 100, 1024),
    ];
    for (disk, writer, background, limit, kib) in table {
        let mut machine = Machine::new(disk * MIB, 0, background, limit);
        let (rate, pause) = write_for(&mut machine, 30, writer * MIB, kib << 10);
        let what = format!(
            "disk {disk} limit {limit}: {} MiB/s, pause {} ms, {} MiB dirty",
            rate / MIB,
            pause / 1_000_000,
            machine.most_dirty / MIB
        );
        assert!(machine.most_dirty < limit * MIB, "{what}");
        assert!(rate > disk * MIB * 9 / 10 && rate < disk * MIB * 11 / 10, "{what}");
        assert!(pause <= 200_000_000, "{what}");
    }
}

#[test]
fn slow_writer_is_never_throttled() {
    let mut machine = Machine::new(500 * MIB, 0, 500, 1000);
    let (rate, pause) = write_for(&mut machine, 20, 300 * MIB, 65536);
    assert_eq!(pause, 0);
    assert!(rate > 290 * MIB, "{rate}");
}

#[test]
fn writer_gets_the_bandwidth_an_unthrottled_process_leaves() {
    let mut machine = Machine::new(100 * MIB, 60 * MIB, 500, 1000);
    let (rate, pause) = write_for(&mut machine, 60, 2000 * MIB, 65536);
    assert!(machine.most_dirty < 1000 * MIB, "{}", machine.most_dirty);
    assert!((34 * MIB..46 * MIB).contains(&rate), "{rate}");
    assert!(pause <= 200_000_000, "{pause}");
}

#[test]
fn rate_follows_a_disk_that_becomes_slow() {
    let mut machine = Machine::new(400 * MIB, 0, 500, 1000);
    let mut dirty_rate = DirtyRate::new();
    for _ in 0..600_000 {
        let reply = machine.ask(&mut dirty_rate, 65536);
        let wait = deadline(reply, machine.now) - machine.now;
        machine.pass(wait + 30_000);
        machine.dirty(65536);
        machine.disk_rate = if machine.now > 20 * SECOND { 40 * MIB } else { 400 * MIB };
        if machine.now > 60 * SECOND {
            break;
        }
    }
    assert!(machine.now > 60 * SECOND);
    assert!(machine.most_dirty < 1000 * MIB, "{}", machine.most_dirty / MIB);
}

#[test]
fn cancelled_write_is_paid_back() {
    let mut dirty_rate = dirty_rate(readings(domain(1000, 200, 1000)));
    assert!(matches!(dirty_rate.request(0, MIB), BudgetReply::Free { .. }));
    let BudgetReply::Throttled(large) = dirty_rate.request(0, 100 * MIB) else { panic!("it waits for the first") };
    let BudgetReply::Throttled(small) = dirty_rate.request(0, 4096) else { panic!("it waits for the large one") };
    assert_eq!(small.deadline_ns, large.deadline_ns + large.cost_ns);
    dirty_rate.refund(large.cost_ns);
    assert_eq!(deadline(dirty_rate.request(0, 4096), 0), large.deadline_ns + small.cost_ns);
    // A refund of more than the debt leaves no debt.
    dirty_rate.refund(u64::MAX);
    assert!(matches!(dirty_rate.request(0, 4096), BudgetReply::Free { .. }));
}
