//! Which memory of this process the kernel would pin for a ring: no shared mapping of a file whose
//! filesystem must be told before its pages become dirty, since a pinned page is written at any
//! time.
//!
//! Source:  the headers of Linux 6.11 (`PROCMAP_QUERY`), proc_pid_mountinfo(5).
//! Cost:    opened once a registration, then one call a buffer; reads the mounts for a shared
//!          mapping of a file without a device, once a filesystem.
//! Differs: before Linux 6.11, and where /proc is not mounted, all memory is taken to be pinnable.

use crate::fd::EngineFd;
use crate::io::{self, O_CLOEXEC, O_RDONLY};
use crate::linux::general::AT_FDCWD;
use crate::text_file;
use syscalls::{Sysno, syscall};

/// `PROCMAP_QUERY` of linux/fs.h.
const QUERY: u32 = 0xc068_6611;
const WRITABLE: u64 = 1 << 1;
const SHARED: u64 = 1 << 3;
/// The first mapping that ends behind the address, if it does not cover it.
const COVERING_OR_NEXT: u64 = 1 << 4;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Debug, Default)]
struct MappingQuery {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    protection: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const _: () = assert!(size_of::<MappingQuery>() == 104);

impl MappingQuery {
    /// Whether it found a writable shared mapping of a file.
    fn is_shared_file(&self) -> bool {
        self.protection & (WRITABLE | SHARED) == WRITABLE | SHARED && self.inode != 0
    }
}

/// The mappings of this process.
#[derive(Debug)]
pub struct PinnableMemory {
    maps: Option<EngineFd>,
    /// The filesystem without a device that was asked for last, by its minor number.
    last: Option<(u32, bool)>,
}

impl PinnableMemory {
    /// To be asked about a few ranges at once.
    #[must_use]
    pub fn open() -> Self {
        Self { maps: open(b"/proc/self/maps\0"), last: None }
    }

    /// Whether the kernel would pin this range.
    pub fn contains(&mut self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        let mut from = addr;
        while from < end {
            let Some(mapping) = self.mapping_from(from).filter(|mapping| mapping.start < end) else { return true };
            if mapping.is_shared_file() && !self.is_memory(mapping.dev_major, mapping.dev_minor) {
                return false;
            }
            from = mapping.end;
        }
        true
    }

    /// The mapping of an address, or the next one. To ask for the next shared one of a file would
    /// take a look at all mappings before it.
    fn mapping_from(&self, addr: u64) -> Option<MappingQuery> {
        let fd = self.maps.as_ref()?.number();
        let mut query = MappingQuery { size: size_of::<MappingQuery>() as u64, flags: COVERING_OR_NEXT, addr, ..MappingQuery::default() };
        // SAFETY: the kernel reads and writes a live structure, whose size it is told.
        unsafe { syscall!(Sysno::ioctl, fd, QUERY, &raw mut query) }.ok()?;
        (query.end > addr).then_some(query)
    }

    /// Whether the files of this filesystem are memory only.
    fn is_memory(&mut self, major: u32, minor: u32) -> bool {
        if major != 0 {
            return false;
        }
        match self.last {
            Some((last, is_memory)) if last == minor => is_memory,
            _ => {
                let is_memory = text_file::read(c"/proc/self/mountinfo").ok().is_none_or(|mounts| is_memory(&mounts, minor));
                self.last = Some((minor, is_memory));
                is_memory
            }
        }
    }
}

/// Whether the filesystem of device `0:minor` is memory. One that is not mounted is the kernel's
/// own, of shared anonymous memory.
fn is_memory(mounts: &[u8], minor: u32) -> bool {
    let fields = |line: &[u8]| -> Option<bool> {
        let line = core::str::from_utf8(line).ok()?;
        let device = line.split(' ').nth(2)?;
        let is_asked = device.strip_prefix("0:")?.parse() == Ok(minor);
        let kind = line.split_once(" - ")?.1.split(' ').next()?;
        is_asked.then_some(matches!(kind, "tmpfs" | "devtmpfs" | "ramfs" | "hugetlbfs"))
    };
    mounts.split(|&byte| byte == b'\n').find_map(fields).unwrap_or(true)
}

fn open(path: &[u8]) -> Option<EngineFd> {
    let fd = io::openat(AT_FDCWD, io::ptr_of_slice(path), O_RDONLY | O_CLOEXEC, 0).ok()?;
    i32::try_from(fd).ok().map(EngineFd::adopt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystems_of_memory_are_told_from_others() {
        let mounts =
            b"21 1 0:20 / / rw shared:1 - overlay overlay rw\n22 21 0:5 / /dev rw - devtmpfs udev rw\n23 21 0:30 / /t rw - tmpfs t rw\n";
        assert_eq!([20, 5, 30, 1].map(|minor| is_memory(mounts, minor)), [false, true, true, true]);
    }
}
