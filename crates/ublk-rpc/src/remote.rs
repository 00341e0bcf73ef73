//! The store behind a device.

use crate::backend::Backend;
use crate::frames::Frames;
use crate::link::Link;
use crate::messages::{Done, FlushRequest, RangeRequest, ReadReply, ReadRequest, WriteRequest, path};
use crate::place::Place;
use crate::volume::Facts;
use bytes::Bytes;
use std::time::Duration;
use uringlet_sys::Errno;

/// A store that is used. Requests wait no longer than its patience for one that is away.
#[derive(Debug)]
pub struct Remote {
    link: Link,
}

impl Remote {
    /// Begins to use the store; `takeover`: also if somebody else does.
    ///
    /// # Errors
    /// There is none, or it is in use; what to do about that.
    pub async fn open(place: Place, takeover: bool, patience: Duration) -> anyhow::Result<Self> {
        Ok(Self { link: Link::new(place, takeover, patience).await? })
    }

    /// What is there.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.link.facts()
    }

    async fn range(&self, path: &'static str, offset: u64, length: u64, may_unmap: bool) -> Result<(), Errno> {
        let request = |session| Frames::request(&RangeRequest { session, offset, length, may_unmap }, Bytes::new());
        self.link.ask::<Done>(path, request).await.map(drop)
    }
}

impl Backend for Remote {
    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Errno> {
        let request = |session| Frames::request(&ReadRequest { session, offset, length }, Bytes::new());
        let reply: ReadReply = self.link.ask(path::READ, request).await?;
        // No store is believed.
        if reply.data.len() == length as usize { Ok(reply.data) } else { Err(Errno::EIO) }
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Errno> {
        // Sent again, it is still the same memory.
        let request = |session| Frames::request(&WriteRequest { session, offset, fua, data: Bytes::new() }, data.clone());
        self.link.ask::<Done>(path::WRITE, request).await.map(drop)
    }

    async fn flush(&self) -> Result<(), Errno> {
        let request = |session| Frames::request(&FlushRequest { session }, Bytes::new());
        self.link.ask::<Done>(path::FLUSH, request).await.map(drop)
    }

    async fn discard(&self, at: u64, len: u64) -> Result<(), Errno> {
        self.range(path::DISCARD, at, len, true).await
    }

    async fn write_zeroes(&self, at: u64, len: u64, may_unmap: bool) -> Result<(), Errno> {
        self.range(path::WRITE_ZEROES, at, len, may_unmap).await
    }
}
