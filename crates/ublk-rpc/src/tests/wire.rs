//! Requests that this client never makes, and replies that this store never gives.

use crate::call::{call, open_session};
use crate::codec::GrpcBody;
use crate::endpoint::{StoreClaim, StoreEndpoint};
use crate::messages::{Done, FlushRequest, IO_MAX, OpenRequest, RangeRequest, ReadReply, ReadRequest, WriteRequest, path};
use crate::remote::RemoteBackend;
use crate::status::{ErrorClass, classify};
use crate::store::BlockStore;
use bytes::Bytes;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Status};
use uringlet_sys::Errno;
use uringlet_ublk_server::backend::Backend;
use uringlet_ublk_server::backing::{BackingStore, Unmap};
use uringlet_ublk_server::volume::{BackingVolume, Durability, Volume, VolumeInfo};

const SIZE: u64 = 4 << 20;

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test);
}

fn store(is_read_only: bool) -> BlockStore {
    BlockStore::new(BackingVolume::new(BackingStore::Ram(Box::default()), SIZE, is_read_only).unwrap())
}

struct RawClient {
    channel: Channel,
    session: u64,
    _lease: tonic::Streaming<crate::messages::OpenReply>,
}

impl RawClient {
    async fn new(endpoint: &StoreEndpoint) -> Self {
        let channel = endpoint.connect().await.unwrap();
        let request = OpenRequest { owner: Bytes::from_static(b"raw"), takeover: true, resume: false, volume_hash: 0 };
        let (info, lease) = open_session(channel.clone(), GrpcBody::request(&request, Bytes::new())).await.unwrap();
        Self { channel, session: info.session, _lease: lease }
    }

    async fn ask(&self, path: &'static str, message: &impl prost::Message, data: Bytes) -> Result<Done, Status> {
        call(self.channel.clone(), path, GrpcBody::request(message, data)).await
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Code> {
        let request = GrpcBody::request(&ReadRequest { session: self.session, offset, length }, Bytes::new());
        let reply = call::<ReadReply>(self.channel.clone(), path::READ, request).await;
        reply.map(|reply| reply.data).map_err(|status| status.code())
    }

    async fn write(&self, offset: u64, len: usize) -> Result<(), Code> {
        let message = WriteRequest { session: self.session, offset, ..WriteRequest::default() };
        self.ask(path::WRITE, &message, Bytes::from(vec![1; len])).await.map(drop).map_err(|status| status.code())
    }

    async fn zero(&self, offset: u64, length: u64) -> Result<(), Code> {
        let message = RangeRequest { session: self.session, offset, length, may_unmap: true };
        self.ask(path::WRITE_ZEROES, &message, Bytes::new()).await.map(drop).map_err(|status| status.code())
    }
}

#[test]
fn ranges_beyond_the_volume_are_refused() {
    run(async {
        let raw = RawClient::new(&StoreEndpoint::embedded(store(false))).await;
        assert_eq!(raw.write(SIZE - 4096, 4096).await, Ok(()));
        assert_eq!(raw.read(SIZE - 4096, 4096).await, Ok(Bytes::from(vec![1; 4096])));
        assert_eq!(raw.zero(0, SIZE).await, Ok(()));
        assert_eq!(raw.read(SIZE - 4096, 4096).await, Ok(Bytes::from(vec![0; 4096])));
        for (offset, len) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1), (u64::MAX - 4095, 4096), (0, IO_MAX as usize + 1)] {
            assert_eq!(raw.read(offset, len as u32).await, Err(Code::OutOfRange), "{offset} {len}");
            assert_eq!(raw.write(offset, len).await, Err(Code::OutOfRange), "{offset} {len}");
        }
        assert_eq!(raw.zero(1, SIZE).await, Err(Code::OutOfRange));
        assert_eq!(raw.zero(u64::MAX, u64::MAX).await, Err(Code::OutOfRange));
        assert!(raw.write(0, 16 << 20).await.is_err(), "much too long");
        assert_eq!(raw.read(0, 512).await, Ok(Bytes::from(vec![0; 512])), "the connection goes on");
        let other = StoreEndpoint::embedded(store(true));
        let raw = RawClient::new(&other).await;
        let message = WriteRequest { session: raw.session, ..WriteRequest::default() };
        let refusal = raw.ask(path::WRITE, &message, Bytes::from_static(b"x")).await.unwrap_err();
        assert_eq!(classify(&refusal), ErrorClass::Permanent(Errno::EROFS));
    });
}

#[test]
fn malformed_requests_are_refused() {
    run(async {
        let raw = RawClient::new(&StoreEndpoint::embedded(store(false))).await;
        let session = raw.session;
        let refused = async |path, message: &FlushRequest, data| raw.ask(path, message, data).await.unwrap_err().code();
        let flush = FlushRequest { session };
        assert_eq!(refused("/uringlet.blockstore.v1.BlockStore/Format", &flush, Bytes::new()).await, Code::Unimplemented);
        assert_eq!(refused("/", &flush, Bytes::new()).await, Code::Unimplemented);
        let unknown = FlushRequest { session: session ^ 1 << 63 };
        assert_eq!(refused(path::FLUSH, &unknown, Bytes::new()).await, Code::Aborted);
        let earlier = FlushRequest { session: session - 1 };
        assert_eq!(refused(path::FLUSH, &earlier, Bytes::new()).await, Code::FailedPrecondition);
        // A wire type that the field does not have.
        let odd = OpenRequest { owner: Bytes::from_static(b"what"), ..OpenRequest::default() };
        let error = raw.ask(path::FLUSH, &odd, Bytes::new()).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        raw.ask(path::FLUSH, &flush, Bytes::new()).await.unwrap();
    });
}

/// Announces a larger size than it has, and returns invalid errnos.
struct MisreportingVolume(BackingVolume);

impl Volume for MisreportingVolume {
    fn info(&self) -> VolumeInfo {
        VolumeInfo { size: 1 << 40, ..self.0.info() }
    }

    fn is_nonblocking(&self) -> bool {
        true
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::new(4095))
    }

    fn write(&self, _: u64, _: &[u8], _: Durability) -> Result<(), Errno> {
        Err(Errno::new(0))
    }

    fn flush(&self) -> Result<(), Errno> {
        Err(Errno::new(-5))
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::new(100_000))
    }

    fn write_zeroes(&self, at: u64, len: u64, unmap: Unmap) -> Result<(), Errno> {
        self.0.write_zeroes(at, len, unmap)
    }
}

#[test]
fn invalid_errnos_become_eio() {
    run(async {
        let volume = BackingVolume::new(BackingStore::Null, SIZE, false).unwrap();
        let endpoint = StoreEndpoint::embedded(BlockStore::new(MisreportingVolume(volume)));
        let remote = RemoteBackend::open(endpoint, StoreClaim::IfUnused, Duration::from_secs(120)).await.unwrap();
        assert_eq!(remote.read(0, 512).await, Err(Errno::new(4095)));
        for result in
            [remote.write(0, Bytes::from_static(b"x"), Durability::Cached).await, remote.flush().await, remote.discard(0, 1).await]
        {
            assert_eq!(result, Err(Errno::EIO));
        }
        assert_eq!(remote.write_zeroes(0, 512, Unmap::Allowed).await, Ok(()));
    });
}
