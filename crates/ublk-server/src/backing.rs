//! What a server keeps a device's bytes in.

use crate::errno::errno;
use crate::sparse::SparseMemory;
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::{pread, pwrite};
use std::fs::File;
use uringlet_abi::ublk::{IoDesc, iod};
use uringlet_sys::Errno;

/// Whether a range that becomes zeroes may lose its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// The range may become a hole.
    Allowed,
    /// A later write must find its space allocated (`UBLK_IO_F_NOUNMAP`).
    Refused,
}

impl Unmap {
    /// What the flags of a request say.
    #[must_use]
    pub fn of(op_flags: u32) -> Self {
        if op_flags & iod::F_NOUNMAP == 0 { Self::Allowed } else { Self::Refused }
    }
}

/// A backing store.
#[derive(Debug)]
pub enum BackingStore {
    /// Reads return zeroes; writes are dropped.
    Null,
    /// Memory of the server's process.
    Ram(Box<SparseMemory>),
    /// A file or block device.
    File(File),
}

impl BackingStore {
    /// Whether this request is known to be slow.
    pub(crate) fn is_slow_for(&self, iod: &IoDesc) -> bool {
        matches!(self, Self::File(_)) && matches!(iod.op_flags & 0xff, iod::FLUSH | iod::DISCARD | iod::WRITE_ZEROES)
    }

    /// Fills `bytes` from position `at` on.
    ///
    /// # Errors
    /// Those of pread(2).
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        match self {
            Self::Null => {}
            Self::Ram(memory) => memory.read(at, bytes),
            Self::File(file) => {
                // A file that shrank reads as zeroes beyond its end.
                let mut done = 0;
                while done < bytes.len() {
                    match pread(file, &mut bytes[done..], at + done as u64).map_err(errno)? {
                        0 => break,
                        read => done += read,
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes `bytes` at position `at`.
    ///
    /// # Errors
    /// Those of pwrite(2).
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Null => {}
            Self::Ram(memory) => memory.write(at, bytes),
            Self::File(file) => {
                let mut done = 0;
                while done < bytes.len() {
                    done += pwrite(file, &bytes[done..], at + done as u64).map_err(errno)?;
                }
            }
        }
        Ok(())
    }

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// Those of fdatasync(2).
    pub fn flush(&self) -> Result<(), Errno> {
        match self {
            Self::File(file) => fdatasync(file).map_err(errno),
            _ => Ok(()),
        }
    }

    /// Writes zeroes as data, where the file has no faster way.
    ///
    /// # Errors
    /// Those of pwrite(2).
    pub fn write_zeroes(&self, at: u64, len: u64) -> Result<(), Errno> {
        let zeroes = [0; 64 * 1024];
        let step = zeroes.len() as u64;
        (0..len).step_by(zeroes.len()).try_for_each(|done| self.write(at + done, &zeroes[..step.min(len - done) as usize]))
    }

    /// Zeroes a range without writing it.
    ///
    /// # Errors
    /// Those of fallocate(2); `EOPNOTSUPP`: the file does not support it.
    pub fn zero(&self, at: u64, len: u64, unmap: Unmap) -> Result<(), Errno> {
        match self {
            Self::Null => Ok(()),
            Self::Ram(memory) => {
                memory.zero(at, len);
                Ok(())
            }
            Self::File(file) => {
                let how = if unmap == Unmap::Allowed { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
                fallocate(file, how | FallocateFlags::KEEP_SIZE, at, len).map_err(errno)
            }
        }
    }
}
