//! The client's connection to a store: at most one, in one session.
//!
//! ```text
//!   Disconnected(since) -- a request opens a session --> Connected(session)
//!        ^------------------ a request fails ------------------'  |
//!                              another client takes the store over: Ended, for good
//! ```
//! Requests use the current session. The first request without one opens it, under a lock; the
//! others wait, each until its own deadline.

use crate::call::{call, open_session};
use crate::codec::GrpcBody;
use crate::endpoint::{StoreClaim, StoreEndpoint};
use crate::messages::{OpenReply, OpenRequest};
use crate::status::{self, ErrorClass};
use anyhow::bail;
use bytes::Bytes;
use prost::Message;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use uringlet_sys::Errno;
use uringlet_ublk_server::volume::{VolumeInfo, random_id};

/// Longest attempt to connect.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pauses between attempts: the first and the longest.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A session and its connection.
#[derive(Debug)]
pub(crate) struct ClientSession {
    channel: Channel,
    pub(crate) number: u64,
    /// The store keeps the session while this stream is open.
    _lease: Streaming<OpenReply>,
}

#[derive(Debug)]
enum ConnectionState {
    Connected(Arc<ClientSession>),
    Disconnected(Outage),
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Instant,
    /// The last failed attempt.
    last_attempt: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct StoreConnection {
    endpoint: StoreEndpoint,
    owner: Bytes,
    info: VolumeInfo,
    timeout: Duration,
    state: Mutex<ConnectionState>,
    /// Held while opening a session.
    opening: AsyncMutex<()>,
}

fn retry_delays() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(RETRY_DELAYS.0), |delay| Some((*delay * 2).min(RETRY_DELAYS.1)))
}

async fn open(endpoint: &StoreEndpoint, request: OpenRequest) -> Result<(ClientSession, VolumeInfo), Status> {
    let channel = endpoint.connect().await.map_err(|error| Status::unavailable(causes(&error)))?;
    let request = GrpcBody::request(&request, Bytes::new());
    let (info, lease) = open_session(channel.clone(), request).await?;
    let OpenReply { session, size, volume, read_only, volatile_cache } = info;
    let info = VolumeInfo { name: volume, size, is_read_only: read_only, has_cache: volatile_cache };
    Ok((ClientSession { channel, number: session, _lease: lease }, info))
}

/// Prints a line for the server's user. An error of the write is no reason to end.
fn report(what: &str) {
    let _ = writeln!(std::io::stderr(), "uringlet ublk: {what}");
}

/// An error and its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl StoreConnection {
    /// Connects for the first time.
    pub(crate) async fn new(endpoint: StoreEndpoint, claim: StoreClaim, timeout: Duration) -> anyhow::Result<Self> {
        let owner = Bytes::copy_from_slice(&[random_id().to_le_bytes(), random_id().to_le_bytes()].concat());
        let (takeover, volume_hash) = match claim {
            StoreClaim::IfUnused => (false, 0),
            StoreClaim::TakeOver(volume_hash) => (true, volume_hash),
        };
        let request = OpenRequest { owner: owner.clone(), takeover, resume: false, volume_hash };
        let attempt = timeout_at(Instant::now() + timeout.max(ATTEMPT_TIMEOUT), open(&endpoint, request));
        let (session, info) = match attempt.await {
            Ok(Ok(done)) => done,
            Ok(Err(status)) if status::classify(&status) == ErrorClass::Permanent(Errno::EBUSY) => {
                bail!("another device uses {endpoint}: a store serves one at a time")
            }
            Ok(Err(status)) if status::classify(&status) == ErrorClass::Permanent(Errno::ESTALE) => {
                bail!("the store at {endpoint} has another volume than the device: give the --server that it was added with")
            }
            Ok(Err(status)) => bail!("no store answers at {endpoint} ({}): start one with `uringlet ublk store`", status.message()),
            Err(_) => bail!("the server at {endpoint} does not answer like a store"),
        };
        let state = Mutex::new(ConnectionState::Connected(Arc::new(session)));
        Ok(Self { endpoint, owner, info, timeout, state, opening: AsyncMutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn info(&self) -> &VolumeInfo {
        &self.info
    }

    /// Calls the store, and calls again while the outcome is unknown. `request` makes the request
    /// for a session's number.
    pub(crate) async fn call_with_retry<A>(&self, path: &'static str, request: impl Fn(u64) -> GrpcBody) -> Result<A, Errno>
    where
        A: Message + Default + 'static,
    {
        let started = Instant::now();
        let deadline = started + self.timeout;
        for delay in retry_delays() {
            let session = self.session(deadline).await?;
            let answer = timeout_at(deadline, call(session.channel.clone(), path, request(session.number))).await;
            let Ok(answer) = answer else {
                // No answer until the deadline: later requests need not wait as long again.
                self.mark_lost(&session, started);
                return Err(Errno::EIO);
            };
            let status = match answer {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            match status::classify(&status) {
                ErrorClass::Permanent(errno) => return Err(errno),
                ErrorClass::Retry | ErrorClass::UnknownSession => self.mark_lost(&session, Instant::now()),
                ErrorClass::TakenOver => self.mark_taken_over(&session),
            }
            if Instant::now() + delay >= deadline {
                break;
            }
            sleep(delay).await;
        }
        Err(Errno::EIO)
    }

    /// The current session, if there is one.
    fn current(&self) -> Result<Result<Arc<ClientSession>, Outage>, Errno> {
        match &*self.state() {
            ConnectionState::Connected(session) => Ok(Ok(Arc::clone(session))),
            ConnectionState::Disconnected(down) => Ok(Err(*down)),
            ConnectionState::Ended => Err(Errno::EIO),
        }
    }

    /// The current session, or a new one.
    async fn session(&self, deadline: Instant) -> Result<Arc<ClientSession>, Errno> {
        if let Ok(session) = self.current()? {
            return Ok(session);
        }
        let _guard = timeout_at(deadline, self.opening.lock()).await.map_err(|_| Errno::EIO)?;
        let Outage { since, last_attempt } = match self.current()? {
            Ok(session) => return Ok(session),
            Err(down) => down,
        };
        let now = Instant::now();
        let until = deadline.min(since + self.timeout);
        if until <= now && last_attempt.is_some_and(|last_attempt| last_attempt + ATTEMPT_TIMEOUT > now) {
            return Err(Errno::EIO);
        }
        for delay in retry_delays() {
            if let Some(session) = self.attempt().await? {
                let session = Arc::new(session);
                *self.state() = ConnectionState::Connected(Arc::clone(&session));
                report(&format!("{} is back", self.endpoint));
                return Ok(session);
            }
            *self.state() = ConnectionState::Disconnected(Outage { since, last_attempt: Some(Instant::now()) });
            if Instant::now() + delay >= until {
                break;
            }
            sleep(delay).await;
        }
        Err(Errno::EIO)
    }

    /// One attempt to open the next session. `None`: retry later.
    async fn attempt(&self) -> Result<Option<ClientSession>, Errno> {
        let limit = Instant::now() + ATTEMPT_TIMEOUT.min(self.timeout);
        let request = OpenRequest { owner: self.owner.clone(), takeover: false, resume: true, volume_hash: 0 };
        let (session, info) = match timeout_at(limit, open(&self.endpoint, request)).await {
            Ok(Ok(done)) => done,
            Ok(Err(status)) if status::classify(&status) == ErrorClass::TakenOver => {
                self.end();
                return Err(Errno::EIO);
            }
            Ok(Err(_)) | Err(_) => return Ok(None),
        };
        if info == self.info {
            return Ok(Some(session));
        }
        let (endpoint, now, before) = (&self.endpoint, info.name, &self.info.name);
        report(&format!("{endpoint} has another volume now ({now}, before: {before}), so its blocks are not this device's"));
        Ok(None)
    }

    fn mark_lost(&self, session: &Arc<ClientSession>, since: Instant) {
        let mut state = self.state();
        if matches!(&*state, ConnectionState::Connected(current) if Arc::ptr_eq(current, session)) {
            report(&format!("{} is away; requests wait for {} s", self.endpoint, self.timeout.as_secs()));
            *state = ConnectionState::Disconnected(Outage { since, last_attempt: None });
        }
    }

    /// Another client took the session over, unless it was replaced by a later session of this
    /// client.
    fn mark_taken_over(&self, session: &Arc<ClientSession>) {
        let is_current = matches!(&*self.state(), ConnectionState::Connected(current) if Arc::ptr_eq(current, session));
        if is_current {
            self.end();
        }
    }

    fn end(&self) {
        report(&format!("another client has used {}: all requests fail from now on", self.endpoint));
        *self.state() = ConnectionState::Ended;
    }
}
