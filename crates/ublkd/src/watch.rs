//! Clients whose command takes its time: one that hangs up meanwhile is noticed.
//!
//! The thread of a connection is inside the driver then and sees nothing. So its socket is in an epoll set, which the broker's own thread
//! looks at: it sets the command's mark and lets the driver look again.
//!
//! A client that only stops sending still waits for its answer: what counts is the end of both directions.

use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uringlet_sys::sync::AtomicBool;

/// Hang-ups that are noticed at once; the next look finds the others.
const EVENTS: usize = 32;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// See the module.
#[derive(Debug)]
pub(crate) struct Watch {
    epoll: OwnedFd,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    /// By a number that is never used again: a late event finds nobody.
    marks: BTreeMap<u64, Arc<AtomicBool>>,
    next: u64,
}

/// A command under way; dropped, it is over.
#[derive(Debug)]
pub(crate) struct Watched<'a> {
    watch: &'a Watch,
    socket: BorrowedFd<'a>,
    number: u64,
    /// Set when the client has hung up.
    pub(crate) gone: Arc<AtomicBool>,
}

impl Watch {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, calls: Mutex::default() })
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable when [`look`](Self::look) has something to see.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Watches over a client's socket while its command is under way.
    pub(crate) fn add<'a>(&'a self, socket: &'a OwnedFd) -> Result<Watched<'a>, Errno> {
        let gone = Arc::new(AtomicBool::new(false));
        let number = {
            let mut calls = self.calls();
            calls.next += 1;
            let number = calls.next;
            calls.marks.insert(number, Arc::clone(&gone));
            number
        };
        let watched = Watched { watch: self, socket: socket.as_fd(), number, gone };
        // Hang-ups are told whatever is asked for; once is enough.
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(number), epoll::EventFlags::ONESHOT)?;
        Ok(watched)
    }

    /// Marks the commands of clients that have hung up. Whether there is one.
    pub(crate) fn look(&self) -> bool {
        let mut events = Vec::with_capacity(EVENTS);
        // Nothing to see is as good.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&AT_ONCE));
        let calls = self.calls();
        let mut is_any = false;
        for event in &events {
            if let Some(gone) = calls.marks.get(&event.data.u64()) {
                gone.store(true, Release);
                is_any = true;
            }
        }
        is_any
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        // Not there if it could not be added.
        let _ = epoll::delete(&self.watch.epoll, self.socket);
        self.watch.calls().marks.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets;
    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
    use std::sync::atomic::Ordering::Acquire;

    #[test]
    fn only_those_who_hung_up_are_marked() {
        let watch = Watch::new().unwrap();
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (first, second, third) = (pair(), pair(), pair());
        let calls = [&first.0, &second.0, &third.0].map(|socket| watch.add(socket).unwrap());
        let marks = || calls.each_ref().map(|call| call.gone.load(Acquire));
        packets::send(&first.1, b"more").unwrap();
        shutdown(&second.1, Shutdown::Write).unwrap();
        assert!(!watch.look());
        drop(third.1);
        assert!(watch.look());
        assert_eq!(marks(), [false, false, true]);
        assert!(!watch.look(), "told once");
        drop(first.1);
        drop(calls);
        assert!(!watch.look());
        assert!(watch.calls().marks.is_empty());
    }
}
