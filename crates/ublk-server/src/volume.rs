//! A volume: a backing store with an identity.

use crate::backing::{BackingStore, Unmap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use uringlet_abi::ublk::iod;
use uringlet_sys::Errno;

/// When a write is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the volume's cache has it.
    Cached,
    /// When it survives a loss of power (`FUA`).
    Durable,
}

impl Durability {
    /// What the flags of a request say.
    #[must_use]
    pub fn of(op_flags: u32) -> Self {
        if op_flags & iod::F_FUA == 0 { Self::Cached } else { Self::Durable }
    }
}

/// Bytes by position. Callers check ranges.
pub trait Volume: Send + Sync + 'static {
    /// Its properties.
    fn info(&self) -> VolumeInfo;
    /// Whether its operations never block.
    fn is_nonblocking(&self) -> bool;
    /// Fills `bytes`.
    ///
    /// # Errors
    /// Its own; the client gets the errno.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno>;
    /// Writes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write(&self, at: u64, bytes: &[u8], durability: Durability) -> Result<(), Errno>;
    /// Makes completed writes durable.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn flush(&self) -> Result<(), Errno>;
    /// A hint that the range's content is not needed any more.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn discard(&self, at: u64, len: u64) -> Result<(), Errno>;
    /// Makes the range read as zeroes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write_zeroes(&self, at: u64, len: u64, unmap: Unmap) -> Result<(), Errno>;
}

/// What a client learns about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its identity: other content has another name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Writes are refused.
    pub is_read_only: bool,
    /// Writes are durable only after a flush.
    pub has_cache: bool,
}

/// A volume in a backing store.
#[derive(Debug)]
pub struct BackingVolume {
    target: BackingStore,
    info: VolumeInfo,
}

/// A random number, unique for all practical purposes.
#[must_use]
pub fn random_id() -> u64 {
    // The system seeds each `RandomState`.
    RandomState::new().build_hasher().finish()
}

impl BackingVolume {
    /// A volume of `size` bytes.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn new(target: BackingStore, size: u64, is_read_only: bool) -> std::io::Result<Self> {
        let name = match &target {
            BackingStore::Null => target.identity()?,
            // The memory of another process has another name.
            BackingStore::Ram(_) => format!("ram:{:016x}", random_id()),
            BackingStore::File(_) => target.identity()?,
        };
        let has_cache = matches!(target, BackingStore::File(_));
        Ok(Self { target, info: VolumeInfo { name, size, is_read_only, has_cache } })
    }

    /// Its backing store.
    #[must_use]
    pub fn target(&self) -> &BackingStore {
        &self.target
    }
}

impl BackingStore {
    /// What tells it from others, for as long as the machine runs.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn identity(&self) -> std::io::Result<String> {
        let file = match self {
            Self::Null => return Ok("null".to_owned()),
            Self::Ram(_) => return Ok("ram".to_owned()),
            Self::File(file) => file.metadata()?,
        };
        let is_disk = file.file_type().is_block_device();
        Ok(if is_disk { format!("disk:{}", file.rdev()) } else { format!("file:{}:{}", file.dev(), file.ino()) })
    }
}

/// A name as a number that fits into a device's info: FNV-1a, 64 bits.
#[must_use]
pub fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl Volume for BackingVolume {
    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    fn is_nonblocking(&self) -> bool {
        !matches!(self.target, BackingStore::File(_))
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.target.read(at, bytes)
    }

    fn write(&self, at: u64, bytes: &[u8], durability: Durability) -> Result<(), Errno> {
        self.target.write(at, bytes)?;
        if durability == Durability::Durable { self.flush() } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), Errno> {
        match self.target.flush() {
            // A file of a kind that cannot be flushed, such as /dev/full.
            Err(Errno::EINVAL) => Ok(()),
            done => done,
        }
    }

    fn discard(&self, at: u64, len: u64) -> Result<(), Errno> {
        match self.target.zero(at, len, Unmap::Allowed) {
            Err(Errno::EOPNOTSUPP) => Ok(()),
            done => done,
        }
    }

    fn write_zeroes(&self, at: u64, len: u64, unmap: Unmap) -> Result<(), Errno> {
        match self.target.zero(at, len, unmap) {
            Err(Errno::EOPNOTSUPP) => self.target.write_zeroes(at, len),
            done => done,
        }
    }
}
