//! The connection to a store: one at a time, in one session.
//!
//! ```text
//!   Down(since) --opened, by a request that needs it--> Up(session) --lost, by whoever notices first--> Down(now)
//!                                                          |
//!                                                          another client took the store: Ended, for good
//! ```
//! Requests use the session that they find. The first that finds none opens one, under the lock; the others wait, each no longer
//! than its own time.

use crate::call::{call, opened};
use crate::frames::Frames;
use crate::messages::{OpenRequest, Opened};
use crate::place::Place;
use crate::status::{self, Meaning};
use crate::volume::{self, Facts};
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

/// A connection that is not there by then is tried anew.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Between attempts: the first pause, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A session on its connection.
#[derive(Debug)]
pub(crate) struct Session {
    channel: Channel,
    pub(crate) number: u64,
    /// The store keeps the session as long as this stream is open.
    _lease: Streaming<Opened>,
}

#[derive(Debug)]
enum State {
    Up(Arc<Session>),
    Down(Down),
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Down {
    since: Instant,
    /// The last attempt that failed.
    tried: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    place: Place,
    owner: Bytes,
    facts: Facts,
    patience: Duration,
    state: Mutex<State>,
    /// Whose turn it is to open a session.
    opening: AsyncMutex<()>,
}

fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(PAUSES.0), |pause| Some((*pause * 2).min(PAUSES.1)))
}

async fn open(place: &Place, request: OpenRequest) -> Result<(Session, Facts), Status> {
    let channel = place.connect().await.map_err(|error| Status::unavailable(causes(&error)))?;
    let request = Frames::request(&request, Bytes::new());
    let (facts, lease) = opened(channel.clone(), request).await?;
    let Opened { session, size, volume, read_only, volatile_cache } = facts;
    let facts = Facts { name: volume, size, is_read_only: read_only, has_cache: volatile_cache };
    Ok((Session { channel, number: session, _lease: lease }, facts))
}

/// For whoever reads the server's words. Nobody may: no reason to end.
fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "uringlet ublk: {what}");
}

/// An error and what it came from.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Link {
    /// Connects for the first time.
    pub(crate) async fn new(place: Place, takeover: bool, patience: Duration) -> anyhow::Result<Self> {
        let owner = Bytes::copy_from_slice(&[volume::random().to_le_bytes(), volume::random().to_le_bytes()].concat());
        let request = OpenRequest { owner: owner.clone(), takeover, resume: false };
        let attempt = timeout_at(Instant::now() + patience.max(ATTEMPT), open(&place, request));
        let (session, facts) = match attempt.await {
            Ok(Ok(done)) => done,
            Ok(Err(status)) if status::meaning(&status) == Meaning::Failed(Errno::EBUSY) => {
                bail!("another device uses {place}: a store serves one at a time")
            }
            Ok(Err(status)) => bail!("no store answers at {place} ({}): start one with `uringlet ublk store`", status.message()),
            Err(_) => bail!("what is at {place} does not answer as a store does"),
        };
        let state = Mutex::new(State::Up(Arc::new(session)));
        Ok(Self { place, owner, facts, patience, state, opening: AsyncMutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Makes a request; again, if nobody knows what became of it. `request` is what is to be said in a session of this number.
    pub(crate) async fn ask<A>(&self, path: &'static str, request: impl Fn(u64) -> Frames) -> Result<A, Errno>
    where
        A: Message + Default + 'static,
    {
        let begun = Instant::now();
        let deadline = begun + self.patience;
        for pause in pauses() {
            let session = self.session(deadline).await?;
            let answer = timeout_at(deadline, call(session.channel.clone(), path, request(session.number))).await;
            let Ok(answer) = answer else {
                // Silent all the time: others need not wait as long again.
                self.lose(&session, begun);
                return Err(Errno::EIO);
            };
            let status = match answer {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            match status::meaning(&status) {
                Meaning::Failed(errno) => return Err(errno),
                Meaning::Lost | Meaning::Unknown => self.lose(&session, Instant::now()),
                Meaning::TakenAway => self.end(&session),
            }
            if Instant::now() + pause >= deadline {
                break;
            }
            sleep(pause).await;
        }
        Err(Errno::EIO)
    }

    /// The session that there is, if there is one.
    fn current(&self) -> Result<Result<Arc<Session>, Down>, Errno> {
        match &*self.state() {
            State::Up(session) => Ok(Ok(Arc::clone(session))),
            State::Down(down) => Ok(Err(*down)),
            State::Ended => Err(Errno::EIO),
        }
    }

    /// The session that there is, or the next one.
    async fn session(&self, deadline: Instant) -> Result<Arc<Session>, Errno> {
        if let Ok(session) = self.current()? {
            return Ok(session);
        }
        let _turn = timeout_at(deadline, self.opening.lock()).await.map_err(|_| Errno::EIO)?;
        let Down { since, tried } = match self.current()? {
            Ok(session) => return Ok(session),
            Err(down) => down,
        };
        let now = Instant::now();
        let until = deadline.min(since + self.patience);
        if until <= now && tried.is_some_and(|tried| tried + ATTEMPT > now) {
            return Err(Errno::EIO);
        }
        for pause in pauses() {
            if let Some(session) = self.attempt().await? {
                let session = Arc::new(session);
                *self.state() = State::Up(Arc::clone(&session));
                tell(&format!("{} is back", self.place));
                return Ok(session);
            }
            *self.state() = State::Down(Down { since, tried: Some(Instant::now()) });
            if Instant::now() + pause >= until {
                break;
            }
            sleep(pause).await;
        }
        Err(Errno::EIO)
    }

    /// One attempt to open the next session. `None`: it may succeed later.
    async fn attempt(&self) -> Result<Option<Session>, Errno> {
        let limit = Instant::now() + ATTEMPT.min(self.patience);
        let request = OpenRequest { owner: self.owner.clone(), takeover: false, resume: true };
        let (session, facts) = match timeout_at(limit, open(&self.place, request)).await {
            Ok(Ok(done)) => done,
            Ok(Err(status)) if status::meaning(&status) == Meaning::TakenAway => {
                self.finish();
                return Err(Errno::EIO);
            }
            Ok(Err(_)) | Err(_) => return Ok(None),
        };
        if facts == self.facts {
            return Ok(Some(session));
        }
        let (place, now, before) = (&self.place, facts.name, &self.facts.name);
        tell(&format!("{place} has another volume now ({now}, before: {before}): its blocks are not this device's"));
        Ok(None)
    }

    fn lose(&self, session: &Arc<Session>, since: Instant) {
        let mut state = self.state();
        if matches!(&*state, State::Up(current) if Arc::ptr_eq(current, session)) {
            tell(&format!("{} is away; requests wait for {} s", self.place, self.patience.as_secs()));
            *state = State::Down(Down { since, tried: None });
        }
    }

    /// Of a session that was replaced by one of ours, nothing is to be said.
    fn end(&self, session: &Arc<Session>) {
        let is_current = matches!(&*self.state(), State::Up(current) if Arc::ptr_eq(current, session));
        if is_current {
            self.finish();
        }
    }

    fn finish(&self) {
        tell(&format!("another client has used {}: all requests fail from now on", self.place));
        *self.state() = State::Ended;
    }
}
