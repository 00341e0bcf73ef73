//! An open char device: a server's commands come in, their completions go out.
//!
//! Completions are sent by whoever ends a command. One who finds the socket full leaves them to the channel's own thread, which then
//! waits for room too: nobody sleeps for a slow server. What the driver refuses is complete at once, so a server that only talks
//! and never listens could fill our memory: when more completions wait than there are tags, nothing more is read from it.

use crate::command::{self, Outlet};
use crate::packets::{Inbox, send_with};
use crate::surroundings::Surroundings;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uringlet_ublk::Device;
use uringlet_ublk::wire::{Completion, Submission};

/// Completions in one packet.
const BATCH: usize = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sending {
    #[default]
    Idle,
    /// One thread is at it.
    Busy,
    /// The socket is full: the channel's thread goes on.
    Stalled,
    /// Nobody reads any more.
    Over,
}

#[derive(Debug, Default)]
struct Outbox {
    completions: Vec<Completion>,
    sending: Sending,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    bell: OwnedFd,
    /// Tags of the device.
    tags: usize,
    outbox: Mutex<Outbox>,
}

impl Outlet for Channel {
    fn put(&self, completion: Completion) {
        let mut outbox = self.outbox();
        if outbox.sending != Sending::Over {
            outbox.completions.push(completion);
        }
    }

    fn flush(&self) {
        loop {
            let batch = {
                let mut outbox = self.outbox();
                if outbox.sending != Sending::Idle || outbox.completions.is_empty() {
                    return;
                }
                outbox.sending = Sending::Busy;
                let count = outbox.completions.len().min(BATCH);
                outbox.completions.drain(..count).collect::<Vec<_>>()
            };
            let bytes: Vec<u8> = batch.iter().flat_map(Completion::to_bytes).collect();
            let sent = send_with(&self.socket, &bytes, &[], SendFlags::DONTWAIT);
            let mut outbox = self.outbox();
            match sent {
                Ok(()) => outbox.sending = Sending::Idle,
                Err(Errno::AGAIN) => {
                    outbox.completions.splice(..0, batch);
                    outbox.sending = Sending::Stalled;
                    // Full means that it rings already.
                    let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
                    return;
                }
                Err(_) => {
                    outbox.sending = Sending::Over;
                    outbox.completions.clear();
                }
            }
        }
    }
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd, tags: usize) -> Result<Self, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { socket, bell, tags, outbox: Mutex::default() })
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the server until it goes, or says what nobody understands.
    pub(crate) fn serve(self: &Arc<Self>, device: &Arc<Device<Surroundings>>) {
        let mut inbox = Inbox::new();
        while self.wait() {
            match inbox.receive(&self.socket, RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => match Submission::parse_all(bytes) {
                    Some(all) => command::submit(self, device, &all),
                    None => break,
                },
                Err(Errno::AGAIN) => {}
                Err(_) => break,
            }
        }
        let mut outbox = self.outbox();
        outbox.sending = Sending::Over;
        outbox.completions.clear();
    }

    /// Sleeps until there is something to receive. False: there never will be.
    fn wait(&self) -> bool {
        loop {
            let (is_stalled, waiting) = {
                let outbox = self.outbox();
                (outbox.sending == Sending::Stalled, outbox.completions.len())
            };
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::OUT, is_stalled);
            flags.set(PollFlags::IN, !is_stalled || waiting <= self.tags);
            let mut fds = [PollFd::new(&self.socket, flags), PollFd::new(&self.bell, PollFlags::IN)];
            if !matches!(poll(&mut fds, None), Ok(_) | Err(Errno::INTR)) {
                return false;
            }
            let (socket, bell) = (fds[0].revents(), fds[1].revents());
            if bell.contains(PollFlags::IN) {
                let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            }
            if is_stalled && socket.contains(PollFlags::OUT) {
                self.outbox().sending = Sending::Idle;
                self.flush();
            }
            // First what was sent before the end: commits of a server that has died are commits.
            if socket.contains(PollFlags::IN) {
                return true;
            }
            if socket.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                return false;
            }
        }
    }
}
