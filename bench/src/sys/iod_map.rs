//! The I/O descriptors of a ublk queue, as the server maps them from `/dev/ublkcN`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;

use anyhow::ensure;
use uringlet_abi::ublk::IoDesc;

/// The descriptor array of queue 0, read-only. Stays mapped until the process ends.
pub(crate) struct IodMap {
    descriptors: *const IoDesc,
    depth: u32,
}

// SAFETY: the mapping is read-only and never goes away.
unsafe impl Send for IodMap {}

/// The two fields of a descriptor that the null server looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IodFields {
    pub(crate) op_flags: u32,
    pub(crate) nr_sectors: u32,
}

impl IodMap {
    pub(crate) fn new(file: &File, depth: u32) -> anyhow::Result<Self> {
        let len = (depth as usize * IoDesc::SIZE).next_multiple_of(4096);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        ensure!(at != libc::MAP_FAILED, "mapping the descriptors: {}", std::io::Error::last_os_error());
        Ok(Self { descriptors: at.cast(), depth })
    }

    /// The descriptor of a tag for which a command has completed.
    pub(crate) fn get(&self, tag: u32) -> IodFields {
        assert!(tag < self.depth);
        // SAFETY: a descriptor of this queue. The driver wrote it before it completed the command
        // and does not change it before the commit.
        let (op_flags, nr_sectors) = unsafe {
            let descriptor = self.descriptors.cast::<[u32; 6]>().add(tag as usize).cast::<u32>();
            (descriptor.read_volatile(), descriptor.add(1).read_volatile())
        };
        IodFields { op_flags, nr_sectors }
    }
}
