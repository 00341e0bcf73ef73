//! Dirty pages and their limits: from /proc/vmstat, and from the memory cgroup where it has limits.
//!
//! Source:  proc_vmstat(5); the cgroup v2 documentation ("Memory Interface Files", "Writeback").
//! Cost:    9 µs for /proc/vmstat (measured, 2 CPUs: its first 2 KiB hold all that is needed); per
//!          cgroup level with a limit one more small file, and memory.stat.
//! Differs: the kernel does not publish its memory reserves, so the cgroup's limits come out a
//!          little low.

mod cgroup;
mod text;

use crate::arch::PAGE_SIZE;
use crate::fd::EngineFd;
use cgroup::{Cgroup, Usage};
use text::{open, pick, read_at_start};

const PAGE: u64 = PAGE_SIZE as u64;
/// Bytes of /proc/vmstat that hold the limits; the rest costs as much again.
const FIRST_READ: usize = 2048;

/// Dirty pages of one domain (the machine, a cgroup), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Dirty or being written out.
    pub dirty_bytes: u64,
    /// Above this the kernel writes out in the background.
    pub background_bytes: u64,
    /// Above this writers wait.
    pub limit_bytes: u64,
}

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readings {
    /// The whole machine.
    pub machine: Domain,
    /// The process' memory cgroup, if it or one above it has a limit.
    pub cgroup: Option<Domain>,
    /// Bytes made dirty since boot.
    pub dirtied_bytes: u64,
    /// Bytes written out since boot.
    pub written_bytes: u64,
}

/// The source of readings: a descriptor that stays open, and a cached view of the cgroup. Both
/// survive fork(2).
#[derive(Debug)]
pub struct DirtyPages {
    vmstat: Option<EngineFd>,
    cgroup: Cgroup,
}

impl DirtyPages {
    /// Nothing opened yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { vmstat: None, cgroup: Cgroup::new() }
    }

    /// Reads. `None` where /proc does not have the numbers. `now_ns`: `CLOCK_MONOTONIC`, ns.
    pub fn read(&mut self, now_ns: u64) -> Option<Readings> {
        // A model makes no system calls: each of its runs must see the same.
        if cfg!(loom) {
            return None;
        }
        let mut text = [0_u8; 4096];
        let machine = self.read_vmstat(&mut text)?;
        let domain = machine.domain();
        let cgroup = self.cgroup.usage(now_ns).map(|usage| machine.share_of_cgroup(domain, usage));
        let (dirtied_bytes, written_bytes) = (machine.dirtied * PAGE, machine.written * PAGE);
        Some(Readings { machine: domain, cgroup, dirtied_bytes, written_bytes })
    }

    fn read_vmstat(&mut self, text: &mut [u8; 4096]) -> Option<Vmstat> {
        if self.vmstat.is_none() {
            self.vmstat = open(b"/proc/vmstat\0").ok().map(EngineFd::adopt);
        }
        let fd = self.vmstat.as_ref()?.number();
        for len in [FIRST_READ, text.len()] {
            match read_at_start(fd, &mut text[..len]) {
                Ok(n) => {
                    if let Some(vmstat) = Vmstat::parse(&text[..n]) {
                        return Some(vmstat);
                    }
                }
                // The program closed the descriptor by a call that is not intercepted: reopen it
                // the next time.
                Err(_) => {
                    self.vmstat = None;
                    return None;
                }
            }
        }
        None
    }
}

impl Default for DirtyPages {
    fn default() -> Self {
        Self::new()
    }
}

/// /proc/vmstat, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Vmstat {
    free: u64,
    inactive_file: u64,
    active_file: u64,
    dirty: u64,
    writeback: u64,
    dirtied: u64,
    written: u64,
    limit: u64,
    background: u64,
}

impl Vmstat {
    /// `None` if the limits are not in `text`: it is truncated, or of another kernel.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        let mut wanted: [(&[u8], &mut u64); 9] = [
            (b"nr_free_pages", &mut found.free),
            (b"nr_inactive_file", &mut found.inactive_file),
            (b"nr_active_file", &mut found.active_file),
            (b"nr_dirty", &mut found.dirty),
            (b"nr_writeback", &mut found.writeback),
            (b"nr_dirtied", &mut found.dirtied),
            (b"nr_written", &mut found.written),
            (b"nr_dirty_threshold", &mut found.limit),
            (b"nr_dirty_background_threshold", &mut found.background),
        ];
        pick(text, &mut wanted);
        (found.limit > 0).then_some(found)
    }

    fn domain(&self) -> Domain {
        Domain {
            dirty_bytes: (self.dirty + self.writeback) * PAGE,
            background_bytes: self.background * PAGE,
            limit_bytes: self.limit * PAGE,
        }
    }

    /// A cgroup has the machine's ratios, applied to the memory that it can get.
    fn share_of_cgroup(&self, machine: Domain, usage: Usage) -> Domain {
        let available = ((self.free + self.inactive_file + self.active_file) * PAGE).max(1);
        let clean = usage.file_bytes.saturating_sub(usage.dirty_bytes);
        let others_clean = available.saturating_sub(machine.dirty_bytes).saturating_sub(clean);
        let reachable = usage.file_bytes + usage.headroom_bytes.min(others_clean);
        let share_of = |bytes: u64| (u128::from(bytes) * u128::from(reachable.min(available)) / u128::from(available)) as u64;
        Domain {
            dirty_bytes: usage.dirty_bytes,
            background_bytes: share_of(machine.background_bytes),
            limit_bytes: share_of(machine.limit_bytes),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const VMSTAT: &[u8] = b"nr_free_pages 1000\nnr_inactive_file 300\nnr_active_file 700\nnr_dirty 50\nnr_writeback 10\n\
        nr_dirtied 9000\nnr_written 8000\nnr_dirty_threshold 400\nnr_dirty_background_threshold 200\npgpgin 7\n";

    #[test]
    fn numbers_are_found_by_whole_names() {
        let seen = Vmstat::parse(VMSTAT).unwrap();
        assert_eq!(seen.domain(), Domain { dirty_bytes: 60 * PAGE, background_bytes: 200 * PAGE, limit_bytes: 400 * PAGE });
        assert_eq!((seen.dirtied, seen.written, seen.free), (9000, 8000, 1000));
    }

    #[test]
    fn a_truncated_number_is_ignored() {
        let cut = VMSTAT.windows(19).position(|w| w == b"nr_dirty_threshold ").unwrap() + 20;
        assert_eq!(Vmstat::parse(&VMSTAT[..cut]), None);
        assert_eq!(Vmstat::parse(b"nonsense"), None);
    }

    #[test]
    fn a_cgroup_gets_its_share_of_the_limits() {
        let seen = Vmstat::parse(VMSTAT).unwrap();
        let usage = Usage { file_bytes: 100 * PAGE, dirty_bytes: 40 * PAGE, headroom_bytes: 400 * PAGE };
        // It can get 100 + 400 of 2000 pages: a quarter.
        let part = seen.share_of_cgroup(seen.domain(), usage);
        assert_eq!(part, Domain { dirty_bytes: 40 * PAGE, background_bytes: 50 * PAGE, limit_bytes: 100 * PAGE });
        // More headroom than the machine has memory does not help.
        let rich = seen.share_of_cgroup(seen.domain(), Usage { headroom_bytes: u64::MAX / 2, ..usage });
        assert!(rich.limit_bytes <= seen.domain().limit_bytes, "{rich:?}");
    }

    #[test]
    fn readings_of_this_machine_are_plausible() {
        let mut source = DirtyPages::new();
        let Some(first) = source.read(1) else { return };
        assert!(first.machine.limit_bytes >= first.machine.background_bytes, "{first:?}");
        let again = source.read(2).unwrap();
        assert!(again.written_bytes >= first.written_bytes && again.dirtied_bytes >= first.dirtied_bytes);
    }
}
