//! An epoll instance that reports the data words of ready descriptors.

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Most events that one wait reports.
pub(super) const BATCH: usize = 256;

pub(super) struct EpollSet {
    fd: OwnedFd,
    events: Vec<Event>,
}

impl EpollSet {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { fd: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(BATCH) })
    }

    pub(super) fn add(&self, fd: impl AsFd, events: EventFlags, data: u64) -> io::Result<()> {
        Ok(epoll::add(&self.fd, fd, EventData::new_u64(data), events)?)
    }

    pub(super) fn modify(&self, fd: impl AsFd, events: EventFlags, data: u64) -> io::Result<()> {
        Ok(epoll::modify(&self.fd, fd, EventData::new_u64(data), events)?)
    }

    /// Waits for at most `limit`, in whole milliseconds, and replaces `data` with the data words of
    /// all ready descriptors. None after the limit or after a signal.
    pub(super) fn wait(&mut self, limit: Option<Duration>, data: &mut Vec<u64>) -> io::Result<()> {
        let millis = |limit: Duration| Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let limit = limit.and_then(|limit| Timespec::try_from(millis(limit)).ok());
        data.clear();
        self.events.clear();
        match epoll::wait(&self.fd, spare_capacity(&mut self.events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        data.extend(self.events.iter().map(|event| event.data.u64()));
        Ok(())
    }
}
