//! What tests need of the machine, beyond what they look for themselves.

use super::source::Test;
use crate::paths;
use anyhow::Context;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::IoSliceMut;
use std::path::Path;

/// They read with `RWF_NOWAIT` and expect an answer other than EOPNOTSUPP.
const NOWAIT: &[&str] = &["eeed8b54e0df"];
/// They open and register hundreds of files, each of which the engine holds under a second number.
const DESCRIPTORS: &[&str] = &["file-register", "open-direct-pick"];
const DESCRIPTORS_WANTED: u64 = 4096;

/// Takes out what cannot be judged here, and says so: how many.
pub(super) fn leave_out(tests: &mut Vec<Test>) -> anyhow::Result<u32> {
    let before = tests.len();
    let work = paths::cache().join("work");
    std::fs::create_dir_all(&work)?;
    if !has_nowait(&work)? {
        drop_named(
            tests,
            NOWAIT,
            "the folder's filesystem does not know RWF_NOWAIT (overlayfs, tmpfs; on the kernel's ring it fails there, too)",
        );
    }
    let limit = raise_descriptors();
    if limit < DESCRIPTORS_WANTED {
        drop_named(tests, DESCRIPTORS, &format!("RLIMIT_NOFILE is {limit} and cannot be raised to {DESCRIPTORS_WANTED}"));
    }
    Ok((before - tests.len()) as u32)
}

fn drop_named(tests: &mut Vec<Test>, names: &[&str], why: &str) {
    tests.retain(|test| {
        let is_wanted = !names.contains(&test.name.as_str());
        if !is_wanted {
            println!("left out: {}: {why}", test.name);
        }
        is_wanted
    });
}

/// Whether files in this folder can be read without waiting.
fn has_nowait(dir: &Path) -> anyhow::Result<bool> {
    let path = dir.join("nowait");
    std::fs::write(&path, "x").with_context(|| format!("writing {}", path.display()))?;
    let file = File::open(&path)?;
    let mut byte = [0];
    let read = preadv2(&file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT);
    std::fs::remove_file(&path)?;
    Ok(read != Err(Errno::OPNOTSUPP))
}

/// The soft limit, raised to the hard one: of this process and all tests.
fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    let wanted = Rlimit { current: Some(most.min(DESCRIPTORS_WANTED).max(limit.current.unwrap_or(u64::MAX))), maximum: limit.maximum };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => wanted.current.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_in_memory_cannot_promise_not_to_wait() {
        let shm = Path::new("/dev/shm");
        if shm.is_dir() && std::fs::read_to_string("/proc/mounts").is_ok_and(|mounts| mounts.contains(" /dev/shm tmpfs ")) {
            assert!(!has_nowait(shm).unwrap());
        }
    }

    #[test]
    fn the_limit_is_never_lowered() {
        let before = getrlimit(Resource::Nofile).current;
        assert!(raise_descriptors() >= before.unwrap_or(u64::MAX).min(DESCRIPTORS_WANTED));
        assert!(getrlimit(Resource::Nofile).current >= before);
    }
}
