//! The backend: a remote store.

use crate::codec::GrpcBody;
use crate::connection::StoreConnection;
use crate::endpoint::{StoreClaim, StoreEndpoint};
use crate::messages::{Done, FlushRequest, RangeRequest, ReadReply, ReadRequest, WriteRequest, path};
use bytes::Bytes;
use std::time::Duration;
use uringlet_sys::Errno;
use uringlet_ublk_server::backend::Backend;
use uringlet_ublk_server::backing::Unmap;
use uringlet_ublk_server::volume::{Durability, VolumeInfo};

/// A store in use. Requests wait for an absent store for at most its time-out.
#[derive(Debug)]
pub struct RemoteBackend {
    connection: StoreConnection,
}

impl RemoteBackend {
    /// Opens a session.
    ///
    /// # Errors
    /// There is no store, or it is in use; with advice.
    pub async fn open(endpoint: StoreEndpoint, claim: StoreClaim, timeout: Duration) -> anyhow::Result<Self> {
        Ok(Self { connection: StoreConnection::new(endpoint, claim, timeout).await? })
    }

    /// The volume's properties.
    #[must_use]
    pub fn info(&self) -> &VolumeInfo {
        self.connection.info()
    }

    async fn range(&self, path: &'static str, offset: u64, length: u64, unmap: Unmap) -> Result<(), Errno> {
        let may_unmap = unmap == Unmap::Allowed;
        let request = |session| GrpcBody::request(&RangeRequest { session, offset, length, may_unmap }, Bytes::new());
        self.connection.call_with_retry::<Done>(path, request).await.map(drop)
    }
}

impl Backend for RemoteBackend {
    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Errno> {
        let request = |session| GrpcBody::request(&ReadRequest { session, offset, length }, Bytes::new());
        let reply: ReadReply = self.connection.call_with_retry(path::READ, request).await?;
        // The store is not trusted.
        if reply.data.len() == length as usize { Ok(reply.data) } else { Err(Errno::EIO) }
    }

    async fn write(&self, offset: u64, data: Bytes, durability: Durability) -> Result<(), Errno> {
        let fua = durability == Durability::Durable;
        // A repeated request uses the same memory.
        let request = |session| GrpcBody::request(&WriteRequest { session, offset, fua, data: Bytes::new() }, data.clone());
        self.connection.call_with_retry::<Done>(path::WRITE, request).await.map(drop)
    }

    async fn flush(&self) -> Result<(), Errno> {
        let request = |session| GrpcBody::request(&FlushRequest { session }, Bytes::new());
        self.connection.call_with_retry::<Done>(path::FLUSH, request).await.map(drop)
    }

    async fn discard(&self, at: u64, len: u64) -> Result<(), Errno> {
        self.range(path::DISCARD, at, len, Unmap::Allowed).await
    }

    async fn write_zeroes(&self, at: u64, len: u64, unmap: Unmap) -> Result<(), Errno> {
        self.range(path::WRITE_ZEROES, at, len, unmap).await
    }
}
