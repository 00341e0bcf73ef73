//! Clients that hang up while their command waits inside the driver.
//!
//! The connection's thread is inside the driver then and does not read its socket. The socket is
//! therefore in an epoll set that the broker's main thread polls: it sets the command's flag and
//! has the driver check its waiters again.
//!
//! A client that only stops sending still gets its reply: both directions have to be closed.

use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uringlet_sys::sync::AtomicBool;

/// Hang-ups handled in one poll; the next poll finds the others.
const EVENTS: usize = 32;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// See the module.
#[derive(Debug)]
pub(crate) struct HangupMonitor {
    epoll: OwnedFd,
    commands: Mutex<PendingCommands>,
}

#[derive(Debug, Default)]
struct PendingCommands {
    /// By a number that is never reused, so that a late event matches no command.
    hangup_flags: BTreeMap<u64, Arc<AtomicBool>>,
    next: u64,
}

/// A command in flight; dropping it ends the monitoring.
#[derive(Debug)]
pub(crate) struct MonitoredCommand<'a> {
    monitor: &'a HangupMonitor,
    socket: BorrowedFd<'a>,
    number: u64,
    /// Set when the client has hung up.
    pub(crate) hung_up: Arc<AtomicBool>,
}

impl HangupMonitor {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, commands: Mutex::default() })
    }

    fn commands(&self) -> MutexGuard<'_, PendingCommands> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable when [`poll_hangups`](Self::poll_hangups) has events.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Monitors a client's socket while its command is in flight.
    pub(crate) fn add<'a>(&'a self, socket: &'a OwnedFd) -> Result<MonitoredCommand<'a>, Errno> {
        let hung_up = Arc::new(AtomicBool::new(false));
        let number = {
            let mut commands = self.commands();
            commands.next += 1;
            let number = commands.next;
            commands.hangup_flags.insert(number, Arc::clone(&hung_up));
            number
        };
        let monitored = MonitoredCommand { monitor: self, socket: socket.as_fd(), number, hung_up };
        // EPOLLHUP is always reported; one report is enough.
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(number), epoll::EventFlags::ONESHOT)?;
        Ok(monitored)
    }

    /// Marks the commands of clients that have hung up. True: there is at least one.
    pub(crate) fn poll_hangups(&self) -> bool {
        let mut events = Vec::with_capacity(EVENTS);
        // An error is the same as no event.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&AT_ONCE));
        let commands = self.commands();
        let mut is_any = false;
        for event in &events {
            if let Some(hung_up) = commands.hangup_flags.get(&event.data.u64()) {
                hung_up.store(true, Release);
                is_any = true;
            }
        }
        is_any
    }
}

impl Drop for MonitoredCommand<'_> {
    fn drop(&mut self) {
        // Fails if it was never added.
        let _ = epoll::delete(&self.monitor.epoll, self.socket);
        self.monitor.commands().hangup_flags.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets;
    use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
    use std::sync::atomic::Ordering::Acquire;

    #[test]
    fn only_commands_of_closed_connections_are_marked() {
        let monitor = HangupMonitor::new().unwrap();
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (first, second, third) = (pair(), pair(), pair());
        let commands = [&first.0, &second.0, &third.0].map(|socket| monitor.add(socket).unwrap());
        let hangup_flags = || commands.each_ref().map(|command| command.hung_up.load(Acquire));
        packets::send(&first.1, b"more").unwrap();
        shutdown(&second.1, Shutdown::Write).unwrap();
        assert!(!monitor.poll_hangups());
        drop(third.1);
        assert!(monitor.poll_hangups());
        assert_eq!(hangup_flags(), [false, false, true]);
        assert!(!monitor.poll_hangups(), "reported once");
        drop(first.1);
        drop(commands);
        assert!(!monitor.poll_hangups());
        assert!(monitor.commands().hangup_flags.is_empty());
    }
}
