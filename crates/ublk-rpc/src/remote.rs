//! The store behind a device.

use crate::codec::GrpcBody;
use crate::connection::StoreConnection;
use crate::endpoint::StoreEndpoint;
use crate::messages::{Done, FlushRequest, RangeRequest, ReadReply, ReadRequest, WriteRequest, path};
use bytes::Bytes;
use std::time::Duration;
use uringlet_sys::Errno;
use uringlet_ublk_server::backend::Backend;
use uringlet_ublk_server::volume::VolumeInfo;

/// A store that is used. Requests wait no longer than its timeout for one that is away.
#[derive(Debug)]
pub struct RemoteBackend {
    connection: StoreConnection,
}

impl RemoteBackend {
    /// Begins to use the store; `takeover`: also if somebody else does.
    ///
    /// # Errors
    /// There is none, or it is in use; what to do about that.
    pub async fn open(endpoint: StoreEndpoint, takeover: bool, timeout: Duration) -> anyhow::Result<Self> {
        Ok(Self { connection: StoreConnection::new(endpoint, takeover, timeout).await? })
    }

    /// What is there.
    #[must_use]
    pub fn info(&self) -> &VolumeInfo {
        self.connection.info()
    }

    async fn range(&self, path: &'static str, offset: u64, length: u64, may_unmap: bool) -> Result<(), Errno> {
        let request = |session| GrpcBody::request(&RangeRequest { session, offset, length, may_unmap }, Bytes::new());
        self.connection.call_with_retry::<Done>(path, request).await.map(drop)
    }
}

impl Backend for RemoteBackend {
    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Errno> {
        let request = |session| GrpcBody::request(&ReadRequest { session, offset, length }, Bytes::new());
        let reply: ReadReply = self.connection.call_with_retry(path::READ, request).await?;
        // No store is believed.
        if reply.data.len() == length as usize { Ok(reply.data) } else { Err(Errno::EIO) }
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Errno> {
        // Sent again, it is still the same memory.
        let request = |session| GrpcBody::request(&WriteRequest { session, offset, fua, data: Bytes::new() }, data.clone());
        self.connection.call_with_retry::<Done>(path::WRITE, request).await.map(drop)
    }

    async fn flush(&self) -> Result<(), Errno> {
        let request = |session| GrpcBody::request(&FlushRequest { session }, Bytes::new());
        self.connection.call_with_retry::<Done>(path::FLUSH, request).await.map(drop)
    }

    async fn discard(&self, at: u64, len: u64) -> Result<(), Errno> {
        self.range(path::DISCARD, at, len, true).await
    }

    async fn write_zeroes(&self, at: u64, len: u64, may_unmap: bool) -> Result<(), Errno> {
        self.range(path::WRITE_ZEROES, at, len, may_unmap).await
    }
}
