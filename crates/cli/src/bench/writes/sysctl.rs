//! Lowers the machine's dirty limits during a measurement.
//!
//! The original values are first written to a locked file. They are restored when the guard is
//! dropped. If the process is killed, the next run finds the file unlocked and restores them.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Each limit has two sysctls, and setting one zeroes the other.
const KNOBS: [[&str; 2]; 2] = [["dirty_bytes", "dirty_ratio"], ["dirty_background_bytes", "dirty_background_ratio"]];
const DIRECTORY: &str = "/proc/sys/vm";
const RECORD: &str = "/run/uringlet-bench-sysctl";

/// The limits are low until this is dropped.
#[derive(Debug)]
pub(super) struct LowLimits {
    paths: SysctlPaths,
    _record: File,
}

#[derive(Clone, Debug)]
struct SysctlPaths {
    knobs: PathBuf,
    record: PathBuf,
}

impl SysctlPaths {
    fn system() -> Self {
        Self { knobs: DIRECTORY.into(), record: RECORD.into() }
    }
}

/// Lowers both limits, in bytes.
pub(super) fn lower(dirty: u64, background: u64) -> Result<LowLimits, String> {
    lower_at(SysctlPaths::system(), dirty, background)
}

/// Restores the limits that a killed run left low. True if there was such a run.
pub(super) fn recover() -> Result<bool, String> {
    recover_at(&SysctlPaths::system())
}

fn lower_at(paths: SysctlPaths, dirty: u64, background: u64) -> Result<LowLimits, String> {
    recover_at(&paths)?;
    let original = original(&paths.knobs)?;
    let wrong = |error: std::io::Error| format!("cannot record the old limits in {}: {error}", paths.record.display());
    let mut record = OpenOptions::new().write(true).create_new(true).open(&paths.record).map_err(wrong)?;
    flock(&record, FlockOperation::NonBlockingLockExclusive).map_err(|error| wrong(error.into()))?;
    record.write_all(original.as_bytes()).and_then(|()| record.sync_all()).map_err(wrong)?;
    let low = LowLimits { paths, _record: record };
    // The background limit first: it must stay below the other.
    set(&low.paths.knobs, KNOBS[1][0], background)?;
    set(&low.paths.knobs, KNOBS[0][0], dirty)?;
    Ok(low)
}

/// One line per limit: the sysctl in use and its value.
fn original(knobs: &Path) -> Result<String, String> {
    let mut lines = String::new();
    for [bytes, ratio] in KNOBS {
        let in_bytes = get(knobs, bytes)?;
        let (knob, value) = if in_bytes > 0 { (bytes, in_bytes) } else { (ratio, get(knobs, ratio)?) };
        lines.push_str(&format!("{knob} {value}\n"));
    }
    Ok(lines)
}

fn get(knobs: &Path, knob: &str) -> Result<u64, String> {
    let path = knobs.join(knob);
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    text.trim().parse().map_err(|error| format!("{}: {error}", path.display()))
}

fn set(knobs: &Path, knob: &str, value: u64) -> Result<(), String> {
    let path = knobs.join(knob);
    fs::write(&path, value.to_string()).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

impl Drop for LowLimits {
    fn drop(&mut self) {
        if let Err(why) = restore(&self.paths) {
            eprintln!("uringlet bench: {why}; the old limits are in {}", self.paths.record.display());
        }
    }
}

fn restore(paths: &SysctlPaths) -> Result<(), String> {
    let lines = fs::read_to_string(&paths.record).map_err(|error| format!("cannot read {}: {error}", paths.record.display()))?;
    for line in lines.lines() {
        let knob = KNOBS.iter().flatten().find(|knob| line.split(' ').next() == Some(**knob));
        let value = line.split(' ').nth(1).and_then(|value| value.parse().ok());
        let (Some(knob), Some(value)) = (knob, value) else { continue };
        set(&paths.knobs, knob, value)?;
    }
    fs::remove_file(&paths.record).map_err(|error| format!("cannot remove {}: {error}", paths.record.display()))
}

fn recover_at(paths: &SysctlPaths) -> Result<bool, String> {
    let Ok(mut record) = File::open(&paths.record) else { return Ok(false) };
    if flock(&record, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(format!("another run has the dirty limits lowered ({} is locked); wait for its end", paths.record.display()));
    }
    let mut text = String::new();
    // The record is empty if the run was killed before it changed anything.
    record.read_to_string(&mut text).map_err(|error| format!("cannot read {}: {error}", paths.record.display()))?;
    restore(paths)?;
    Ok(!text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> SysctlPaths {
        let knobs = std::env::temp_dir().join(format!("uringlet-bench-sysctl-{name}-{}", std::process::id()));
        fs::create_dir_all(&knobs).unwrap();
        for (knob, value) in [("dirty_bytes", 0), ("dirty_ratio", 20), ("dirty_background_bytes", 7), ("dirty_background_ratio", 0)] {
            set(&knobs, knob, value).unwrap();
        }
        SysctlPaths { record: knobs.join("record"), knobs }
    }

    #[test]
    fn limits_are_restored_on_drop() {
        let paths = machine("back");
        let low = lower_at(paths.clone(), 1000, 500).unwrap();
        assert_eq!((get(&paths.knobs, "dirty_bytes"), get(&paths.knobs, "dirty_background_bytes")), (Ok(1000), Ok(500)));
        assert!(lower_at(paths.clone(), 1, 1).unwrap_err().contains("another run"));
        // As the kernel does: setting one sysctl of a pair zeroes the other.
        set(&paths.knobs, "dirty_ratio", 0).unwrap();
        drop(low);
        assert_eq!((get(&paths.knobs, "dirty_ratio"), get(&paths.knobs, "dirty_background_bytes")), (Ok(20), Ok(7)));
        assert!(!paths.record.exists());
        fs::remove_dir_all(&paths.knobs).unwrap();
    }

    #[test]
    fn limits_of_a_killed_run_are_restored() {
        let paths = machine("killed");
        assert_eq!(recover_at(&paths), Ok(false));
        fs::write(&paths.record, "dirty_ratio 30\nsomething 4\n").unwrap();
        assert_eq!(recover_at(&paths), Ok(true));
        assert_eq!(get(&paths.knobs, "dirty_ratio"), Ok(30));
        assert!(!paths.record.exists());
        fs::remove_dir_all(&paths.knobs).unwrap();
    }
}
