//! What executes an async server's requests.

use crate::backing::Unmap;
use crate::volume::{BackingVolume, Durability, Volume};
use bytes::Bytes;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use uringlet_sys::Errno;

/// Executes requests concurrently.
pub trait Backend: Send + Sync + 'static {
    /// Bytes from position `at` on: exactly `len`.
    fn read(&self, at: u64, len: u32) -> impl Future<Output = Result<Bytes, Errno>> + Send;
    /// Writes at position `at`.
    fn write(&self, at: u64, data: Bytes, durability: Durability) -> impl Future<Output = Result<(), Errno>> + Send;
    /// Makes completed writes durable.
    fn flush(&self) -> impl Future<Output = Result<(), Errno>> + Send;
    /// A hint that a range is not needed any more.
    fn discard(&self, at: u64, len: u64) -> impl Future<Output = Result<(), Errno>> + Send;
    /// Makes a range zeroes.
    fn write_zeroes(&self, at: u64, len: u64, unmap: Unmap) -> impl Future<Output = Result<(), Errno>> + Send;
}

/// A volume in this process: what a device costs without RPC.
#[derive(Clone, Debug)]
pub struct VolumeBackend(Arc<BackingVolume>);

impl VolumeBackend {
    /// A backend of `volume`.
    #[must_use]
    pub fn new(volume: BackingVolume) -> Self {
        Self(Arc::new(volume))
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&BackingVolume) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        if self.0.is_nonblocking() {
            return operation(&self.0);
        }
        let volume = Arc::clone(&self.0);
        spawn_blocking(move || operation(&volume)).await.unwrap_or(Err(Errno::EIO))
    }
}

impl Backend for VolumeBackend {
    async fn read(&self, at: u64, len: u32) -> Result<Bytes, Errno> {
        let read = move |volume: &BackingVolume| {
            let mut bytes = vec![0; len as usize];
            volume.read(at, &mut bytes).map(|()| Bytes::from(bytes))
        };
        self.run(read).await
    }

    async fn write(&self, at: u64, data: Bytes, durability: Durability) -> Result<(), Errno> {
        self.run(move |volume| volume.write(at, &data, durability)).await
    }

    async fn flush(&self) -> Result<(), Errno> {
        self.run(BackingVolume::flush).await
    }

    async fn discard(&self, at: u64, len: u64) -> Result<(), Errno> {
        self.run(move |volume| volume.discard(at, len)).await
    }

    async fn write_zeroes(&self, at: u64, len: u64, unmap: Unmap) -> Result<(), Errno> {
        self.run(move |volume| volume.write_zeroes(at, len, unmap)).await
    }
}
