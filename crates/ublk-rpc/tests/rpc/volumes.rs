//! Volumes for tests: a file, and memory with injected faults.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use uringlet_sys::Errno;
use uringlet_ublk_server::backing::{BackingStore, Unmap};
use uringlet_ublk_server::volume::{BackingVolume, Durability, Volume, VolumeInfo};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// A new file.
pub(crate) fn file(name: &str, size: u64) -> (PathBuf, BackingVolume) {
    let count = COUNT.fetch_add(1, SeqCst);
    let path = std::env::temp_dir().join(format!("ublk-rpc-{name}-{}-{count}.img", std::process::id()));
    std::fs::File::create_new(&path).unwrap().set_len(size).unwrap();
    let volume = again(&path, size);
    (path, volume)
}

/// The same file once more.
pub(crate) fn again(path: &PathBuf, size: u64) -> BackingVolume {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    BackingVolume::new(BackingStore::File(file), size, false).unwrap()
}

/// The faults of a [`Failing`].
#[derive(Debug, Default)]
pub(crate) struct Faults {
    errno: AtomicI32,
    fuas: AtomicU32,
    flushes: AtomicU32,
    /// Operations that begin now wait until it is false.
    is_stuck: Mutex<bool>,
    moved: Condvar,
    /// Operations start.
    started: AtomicU32,
}

impl Faults {
    pub(crate) fn set(&self, errno: Option<Errno>) {
        self.errno.store(errno.map_or(0, Errno::into_raw), SeqCst);
    }

    pub(crate) fn fuas(&self) -> u32 {
        self.fuas.load(SeqCst)
    }

    pub(crate) fn flushes(&self) -> u32 {
        self.flushes.load(SeqCst)
    }

    pub(crate) fn started(&self) -> u32 {
        self.started.load(SeqCst)
    }

    pub(crate) fn stick(&self, is_stuck: bool) {
        *self.is_stuck.lock().unwrap() = is_stuck;
        self.moved.notify_all();
    }

    fn now(&self) -> Result<(), Errno> {
        self.started.fetch_add(1, SeqCst);
        drop(self.moved.wait_while(self.is_stuck.lock().unwrap(), |is_stuck| *is_stuck).unwrap());
        match self.errno.load(SeqCst) {
            0 => Ok(()),
            number => Err(Errno::new(number)),
        }
    }
}

/// Memory with injected faults.
#[derive(Debug)]
pub(crate) struct Failing {
    volume: BackingVolume,
    faults: Arc<Faults>,
}

impl Failing {
    pub(crate) fn new(size: u64) -> Self {
        let volume = BackingVolume::new(BackingStore::Ram(Box::default()), size, false).unwrap();
        Self { volume, faults: Arc::default() }
    }

    pub(crate) fn faults(&self) -> Arc<Faults> {
        Arc::clone(&self.faults)
    }
}

impl Volume for Failing {
    fn info(&self) -> VolumeInfo {
        VolumeInfo { has_cache: true, ..self.volume.info() }
    }

    fn is_nonblocking(&self) -> bool {
        false
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.faults.now()?;
        self.volume.read(at, bytes)
    }

    fn write(&self, at: u64, bytes: &[u8], durability: Durability) -> Result<(), Errno> {
        self.faults.now()?;
        self.faults.fuas.fetch_add(u32::from(durability == Durability::Durable), SeqCst);
        self.volume.write(at, bytes, Durability::Cached)
    }

    fn flush(&self) -> Result<(), Errno> {
        self.faults.now()?;
        self.faults.flushes.fetch_add(1, SeqCst);
        Ok(())
    }

    fn discard(&self, at: u64, len: u64) -> Result<(), Errno> {
        self.faults.now()?;
        self.volume.discard(at, len)
    }

    fn write_zeroes(&self, at: u64, len: u64, unmap: Unmap) -> Result<(), Errno> {
        self.faults.now()?;
        self.volume.write_zeroes(at, len, unmap)
    }
}
