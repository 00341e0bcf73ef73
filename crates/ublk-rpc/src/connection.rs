//! The connection to a store: one at a time, in one session.
//!
//! ```text
//!   Disconnected(since) --open_session, by a request that needs it--> Connected(session) --lost, by whoever notices first--> Disconnected(now)
//!                                                          |
//!                                                          another client took the store: Ended, for good
//! ```
//! Requests use the session that they find. The first that finds none opens one, under the lock; the others wait, each no longer
//! than its own time.

use crate::call::{call, open_session};
use crate::codec::GrpcBody;
use crate::endpoint::StoreEndpoint;
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

/// A connection that is not there by then is last_attempt anew.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Between attempts: the first delay, and the longest.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A session on its connection.
#[derive(Debug)]
pub(crate) struct ClientSession {
    channel: Channel,
    pub(crate) number: u64,
    /// The store keeps the session as long as this stream is open.
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
    /// The last attempt that failed.
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
    /// Whose turn it is to open a session.
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

/// For whoever reads the server's words. Nobody may: no reason to mark_taken_over.
fn report(what: &str) {
    let _ = writeln!(std::io::stderr(), "uringlet ublk: {what}");
}

/// An error and what it came from.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl StoreConnection {
    /// Connects for the first time.
    pub(crate) async fn new(endpoint: StoreEndpoint, takeover: bool, timeout: Duration) -> anyhow::Result<Self> {
        let owner = Bytes::copy_from_slice(&[random_id().to_le_bytes(), random_id().to_le_bytes()].concat());
        let request = OpenRequest { owner: owner.clone(), takeover, resume: false };
        let attempt = timeout_at(Instant::now() + timeout.max(ATTEMPT_TIMEOUT), open(&endpoint, request));
        let (session, info) = match attempt.await {
            Ok(Ok(done)) => done,
            Ok(Err(status)) if status::classify(&status) == ErrorClass::Permanent(Errno::EBUSY) => {
                bail!("another device uses {endpoint}: a store serves one at a time")
            }
            Ok(Err(status)) => bail!("no store answers at {endpoint} ({}): start one with `uringlet ublk store`", status.message()),
            Err(_) => bail!("what is at {endpoint} does not answer as a store does"),
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

    /// Makes a request; again, if nobody knows what became of it. `request` is what is to be said in a session of this number.
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
                // Silent all the time: others need not wait as long again.
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

    /// The session that there is, if there is one.
    fn current(&self) -> Result<Result<Arc<ClientSession>, Outage>, Errno> {
        match &*self.state() {
            ConnectionState::Connected(session) => Ok(Ok(Arc::clone(session))),
            ConnectionState::Disconnected(down) => Ok(Err(*down)),
            ConnectionState::Ended => Err(Errno::EIO),
        }
    }

    /// The session that there is, or the next one.
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

    /// One attempt to open the next session. `None`: it may succeed later.
    async fn attempt(&self) -> Result<Option<ClientSession>, Errno> {
        let limit = Instant::now() + ATTEMPT_TIMEOUT.min(self.timeout);
        let request = OpenRequest { owner: self.owner.clone(), takeover: false, resume: true };
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
        report(&format!("{endpoint} has another volume now ({now}, before: {before}): its blocks are not this device's"));
        Ok(None)
    }

    fn mark_lost(&self, session: &Arc<ClientSession>, since: Instant) {
        let mut state = self.state();
        if matches!(&*state, ConnectionState::Connected(current) if Arc::ptr_eq(current, session)) {
            report(&format!("{} is away; requests wait for {} s", self.endpoint, self.timeout.as_secs()));
            *state = ConnectionState::Disconnected(Outage { since, last_attempt: None });
        }
    }

    /// Of a session that was replaced by one of ours, nothing is to be said.
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
