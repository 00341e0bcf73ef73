//! The store: a volume behind gRPC.

use crate::codec::{GrpcBody, MessageDecoder};
use crate::http2::{KEEP_ALIVE, WINDOW};
use crate::messages::{Done, FlushRequest, IO_MAX, OpenReply, OpenRequest, RangeRequest, ReadReply, ReadRequest, WriteRequest, path};
use crate::session::{ClaimMode, SessionLock};
use crate::status;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Status, Streaming};
use uringlet_sys::Errno;
use uringlet_ublk_server::backing::Unmap;
use uringlet_ublk_server::volume::{Durability, Volume, VolumeInfo, name_hash};

/// Longest request: a head and the longest data, bytes.
const MESSAGE_MAX: usize = IO_MAX as usize + 4096;
/// Longest discard or write of zeroes, bytes; it bounds the wait for one.
const RANGE_MAX: u64 = 1 << 31;
const FRAME_MAX: u32 = 256 * 1024;

type StoreResult = Result<Response<Body>, Status>;

/// See the module. Clones are the same store.
#[derive(Clone)]
pub struct BlockStore {
    volume: Arc<dyn Volume>,
    info: VolumeInfo,
    sessions: Arc<SessionLock>,
}

impl fmt::Debug for BlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockStore").field("info", &self.info).finish_non_exhaustive()
    }
}

impl BlockStore {
    /// A store of this volume.
    pub fn new(volume: impl Volume) -> Self {
        let info = volume.info();
        Self { volume: Arc::new(volume), info, sessions: Arc::new(SessionLock::new()) }
    }

    /// Serves all connections until there are no more.
    ///
    /// # Errors
    /// None that a single connection can cause.
    pub async fn serve<C, E>(&self, connections: impl Stream<Item = Result<C, E>>) -> Result<(), tonic::transport::Error>
    where
        C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let server = Server::builder()
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(16 * WINDOW)
            .max_frame_size(FRAME_MAX)
            .http2_keepalive_interval(Some(KEEP_ALIVE));
        server.serve_with_incoming(self.clone(), connections).await
    }

    /// Waits for executing requests, admits no more, and flushes.
    ///
    /// # Errors
    /// The volume's.
    pub async fn close(&self) -> Result<(), Errno> {
        self.sessions.close().await;
        let volume = Arc::clone(&self.volume);
        tokio::task::spawn_blocking(move || volume.flush()).await.unwrap_or(Err(Errno::EIO))
    }

    async fn answer(self, request: Request<Body>) -> StoreResult {
        let (head, body) = request.into_parts();
        match head.uri.path() {
            path::OPEN => self.open(decode(body).await?).await,
            path::READ => self.read(decode(body).await?).await,
            path::WRITE => self.write(decode(body).await?).await,
            path::FLUSH => {
                let FlushRequest { session } = decode(body).await?;
                self.run(session, "flushing", |volume| volume.flush()).await.map(|()| done())
            }
            path::DISCARD => {
                let RangeRequest { session, offset, length, .. } = self.range(decode(body).await?)?;
                self.run(session, "discarding", move |volume| volume.discard(offset, length)).await.map(|()| done())
            }
            path::WRITE_ZEROES => {
                let RangeRequest { session, offset, length, may_unmap } = self.range(decode(body).await?)?;
                let unmap = if may_unmap { Unmap::Allowed } else { Unmap::Refused };
                let zero = move |volume: &dyn Volume| volume.write_zeroes(offset, length, unmap);
                self.run(session, "writing zeroes", zero).await.map(|()| done())
            }
            other => Err(Status::unimplemented(format!("there is no {other}"))),
        }
    }

    async fn open(&self, request: OpenRequest) -> StoreResult {
        if request.volume_hash != 0 && request.volume_hash != name_hash(&self.info.name) {
            return Err(status::of(Errno::ESTALE, "the client wants another volume"));
        }
        let mode = match (request.takeover, request.resume) {
            (true, _) => ClaimMode::Takeover,
            (false, true) => ClaimMode::Resume,
            (false, false) => ClaimMode::Free,
        };
        let lease = self.sessions.open(request.owner, mode).await?;
        let VolumeInfo { name, size, is_read_only, has_cache } = self.info.clone();
        let opened = OpenReply { session: lease.session(), size, volume: name, read_only: is_read_only, volatile_cache: has_cache };
        Ok(respond(GrpcBody::with_stream_state(&opened, lease)))
    }

    async fn read(&self, request: ReadRequest) -> StoreResult {
        let ReadRequest { session, offset, length } = request;
        self.check(offset, length.into(), IO_MAX.into(), "reading")?;
        let read = move |volume: &dyn Volume| {
            let mut bytes = vec![0; length as usize];
            volume.read(offset, &mut bytes).map(|()| Bytes::from(bytes))
        };
        let data = self.run(session, "reading", read).await?;
        Ok(respond(GrpcBody::answer(&ReadReply::default(), data)))
    }

    async fn write(&self, request: WriteRequest) -> StoreResult {
        let WriteRequest { session, offset, fua, data } = request;
        self.check(offset, data.len() as u64, IO_MAX.into(), "writing")?;
        self.check_writable()?;
        let durability = if fua { Durability::Durable } else { Durability::Cached };
        self.run(session, "writing", move |volume| volume.write(offset, &data, durability)).await.map(|()| done())
    }

    fn range(&self, request: RangeRequest) -> Result<RangeRequest, Status> {
        self.check(request.offset, request.length, RANGE_MAX, "zeroing")?;
        self.check_writable()?;
        Ok(request)
    }

    fn check_writable(&self) -> Result<(), Status> {
        if self.info.is_read_only { Err(status::of(Errno::EROFS, "this store is read-only")) } else { Ok(()) }
    }

    fn check(&self, offset: u64, len: u64, len_max: u64, what: &str) -> Result<(), Status> {
        let fits = len <= len_max && offset.checked_add(len).is_some_and(|end| end <= self.info.size);
        if fits { Ok(()) } else { Err(Status::out_of_range(format!("{what} {len} bytes at {offset} of {}", self.info.size))) }
    }

    /// Runs an operation of a session, on a blocking thread if it may block.
    async fn run<T, F>(&self, session: u64, what: &str, operation: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Volume) -> Result<T, Errno> + Send + 'static,
    {
        let guard = self.sessions.enter(session).await?;
        let result = if self.volume.is_nonblocking() {
            operation(&*self.volume)
        } else {
            let volume = Arc::clone(&self.volume);
            // The guard moves along: the request may be cancelled long before the operation ends.
            let work = move || {
                let result = operation(&*volume);
                drop(guard);
                result
            };
            // Fails only when the runtime ends; the client retries with the next store.
            tokio::task::spawn_blocking(work).await.map_err(|_| Status::unavailable("the store is shutting down"))?
        };
        result.map_err(|errno| status::of(errno, what))
    }
}

impl tower::Service<Request<Body>> for BlockStore {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let store = self.clone();
        Box::pin(async move { Ok(store.answer(request).await.unwrap_or_else(Status::into_http)) })
    }
}

async fn decode<M: prost::Message + Default + 'static>(body: Body) -> Result<M, Status> {
    let mut messages = Streaming::new_request(MessageDecoder(PhantomData::<M>), body, None, Some(MESSAGE_MAX));
    messages.message().await?.ok_or_else(|| Status::invalid_argument("there is no message"))
}

fn respond(frames: GrpcBody) -> Response<Body> {
    let mut response = Response::new(Body::new(frames));
    response.headers_mut().insert(HeaderName::from_static("content-type"), HeaderValue::from_static("application/grpc"));
    response
}

fn done() -> Response<Body> {
    respond(GrpcBody::answer(&Done {}, Bytes::new()))
}
