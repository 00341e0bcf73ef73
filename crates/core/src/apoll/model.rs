//! Requests are tried and armed, armed requests fire and are cancelled, while another thread has
//! the events in its hands: each request ends once, and none waits for an edge that has gone by.
//!
//! The poller is the engine's. Around it stands as much of a ring as the protocol needs: a lock, a
//! thread that waits for events without it, and a file that is an eventfd, each of whose signals is
//! read by one request. A request that misses its edge leaves the waiting thread asleep for ever,
//! which loom reports as a deadlock.

use super::recheck::RECHECK_NS;
use super::*;
use crate::req_id::ReqId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use loom::thread;
use uringlet_sys::UserPtr;
use uringlet_sys::fd::{EPOLLIN, EpollEvent, EpollOp, EventFd, NO_EVENT};
use uringlet_sys::lock::{Mutex, MutexGuard};
use uringlet_sys::model;

/// What the ring's lock guards.
struct RingPart {
    poller: Poller,
    /// Requests that have got a signal.
    done: Vec<u32>,
    cancelled: Vec<u32>,
}

/// A ring with one file.
struct PollRing {
    part: Mutex<RingPart>,
    file: EventFd,
}

impl RingPart {
    fn arm(&mut self, fd: i32, key: u32, rearm: Rearm) {
        let waiting = PollWaiter { id: id(key), mask: EPOLLIN, is_multishot: false };
        self.poller.arm(PollTarget { fd, node: None }, waiting, rearm).unwrap();
    }

    /// Tries a request, and arms it on trust if it would block.
    fn try_or_arm(&mut self, fd: i32, key: u32) {
        if !self.poller.known_empty(fd) && model::read_eventfd(fd) {
            return self.done.push(key);
        }
        self.arm(fd, key, Rearm::TrustEdge);
    }

    /// Deals with events that were taken out of the epoll set.
    fn handle(&mut self, fd: i32, events: &[EpollEvent]) {
        let mut ready = Vec::new();
        for event in events {
            match event.data {
                WAKE_EVENT => {}
                RECHECK_EVENT => self.poller.recheck(),
                data => self.poller.on_event(data, event.events, &mut ready),
            }
        }
        // A fired request has its poll behind it: it is tried, whatever the readiness cache says.
        for waiting in ready {
            if model::read_eventfd(fd) {
                self.done.push(waiting.id.key);
            } else {
                self.arm(fd, waiting.id.key, Rearm::TrustEdge);
            }
        }
    }
}

impl PollRing {
    /// A file that is registered, readable never so far.
    fn new() -> Arc<Self> {
        let ring = Self::unregistered();
        {
            let mut part = ring.lock();
            part.arm(ring.fd(), 0, Rearm::Recheck);
            part.poller.disarm(ring.fd(), id(0));
        }
        ring
    }

    fn unregistered() -> Arc<Self> {
        let part = RingPart { poller: Poller::new(Arc::new(EventFd::new().unwrap())).unwrap(), done: Vec::new(), cancelled: Vec::new() };
        Arc::new(Self { part: Mutex::of(part), file: EventFd::new().unwrap() })
    }

    fn lock(&self) -> MutexGuard<'_, RingPart> {
        self.part.lock()
    }

    fn fd(&self) -> i32 {
        self.file.number()
    }

    fn submit(&self, key: u32) {
        self.lock().try_or_arm(self.fd(), key);
        self.wake();
    }

    /// Cancels a request, if it has not ended.
    fn cancel(&self, key: u32) {
        let mut part = self.lock();
        let had_waiter = part.poller.is_armed();
        part.poller.disarm(self.fd(), id(key));
        if had_waiter && !part.poller.is_armed() {
            part.cancelled.push(key);
        }
        drop(part);
        self.wake();
    }

    /// Signals the waiting thread: its condition may be true.
    fn wake(&self) {
        let wake_eventfd = self.lock().poller.wake_eventfd.number();
        uringlet_sys::fd::signal_eventfd(wake_eventfd);
    }

    /// The thread that waits: takes events without the lock, until `ended` requests have ended.
    fn wait_for(&self, ended: usize) {
        let epoll = Arc::clone(&self.lock().poller.epoll);
        loop {
            {
                let part = self.lock();
                if part.done.len() + part.cancelled.len() >= ended {
                    return;
                }
            }
            let mut events = [NO_EVENT; 4];
            let n = epoll.wait(&mut events, u64::MAX, UserPtr::NULL).unwrap();
            self.lock().handle(self.fd(), &events[..n]);
        }
    }

    /// Another thread that reaps, without waiting: under the lock, as the watcher does.
    fn reap(&self) {
        let mut part = self.lock();
        let mut events = [NO_EVENT; 4];
        let n = part.poller.epoll.wait(&mut events, 0, UserPtr::NULL).unwrap();
        part.handle(self.fd(), &events[..n]);
        drop(part);
        self.wake();
    }

    fn spawn(self: &Arc<Self>, run: impl Fn(&Self) + Send + 'static) -> thread::JoinHandle<()> {
        let ring = Arc::clone(self);
        thread::spawn(move || run(&ring))
    }

    /// Each request ended once, and none waits.
    fn assert_ended(&self, keys: &[u32]) {
        let part = self.lock();
        let mut ended: Vec<u32> = part.done.iter().chain(&part.cancelled).copied().collect();
        ended.sort_unstable();
        assert_eq!(ended, keys);
        assert!(!part.poller.is_armed());
    }
}

fn id(key: u32) -> ReqId {
    ReqId { key, generation: NonZeroU32::MIN }
}

#[test]
fn readiness_between_try_and_arm_fires_the_request() {
    model::check(3, || {
        let ring = PollRing::new();
        let submitter = ring.spawn(|ring| ring.submit(1));
        let peer = ring.spawn(|ring| ring.file.signal());
        ring.wait_for(1);
        submitter.join().unwrap();
        peer.join().unwrap();
        ring.assert_ended(&[1]);
    });
}

#[test]
fn event_in_hand_does_not_swallow_the_edge_of_a_later_request() {
    model::check(3, || {
        let ring = PollRing::new();
        ring.submit(1);
        let peer = ring.spawn(|ring| (0..2).for_each(|_| ring.file.signal()));
        let submitter = ring.spawn(|ring| ring.submit(2));
        ring.wait_for(2);
        submitter.join().unwrap();
        peer.join().unwrap();
        ring.assert_ended(&[1, 2]);
    });
}

#[test]
fn watcher_and_waiting_thread_both_reap() {
    model::check(2, || {
        let ring = PollRing::new();
        ring.submit(1);
        ring.submit(2);
        let peer = ring.spawn(|ring| (0..2).for_each(|_| ring.file.signal()));
        let watcher = ring.spawn(PollRing::reap);
        ring.wait_for(2);
        watcher.join().unwrap();
        peer.join().unwrap();
        ring.assert_ended(&[1, 2]);
    });
}

#[test]
fn cancelled_request_leaves_its_event_to_the_next_one() {
    model::check(3, || {
        let ring = PollRing::new();
        ring.submit(1);
        let canceller = ring.spawn(|ring| {
            ring.cancel(1);
            ring.submit(2);
        });
        let peer = ring.spawn(|ring| (0..2).for_each(|_| ring.file.signal()));
        ring.wait_for(2);
        canceller.join().unwrap();
        peer.join().unwrap();
        ring.assert_ended(&[1, 2]);
    });
}

#[test]
fn request_waits_for_the_next_edge_of_a_stream_known_empty() {
    model::check(3, || {
        let ring = PollRing::new();
        if let Some(file) = ring.lock().poller.files.get_mut(&ring.fd()) {
            file.readiness.is_tcp = true;
        }
        let receiver = ring.spawn(|ring| {
            let mut part = ring.lock();
            part.try_or_arm(ring.fd(), 1);
            // A short read, unless a second signal is there already.
            if !part.done.is_empty() && uringlet_sys::io::poll_now(ring.fd(), EPOLLIN) == Ok(0) {
                part.poller.note_empty(ring.fd());
            }
            drop(part);
            ring.submit(2);
        });
        let peer = ring.spawn(|ring| (0..2).for_each(|_| ring.file.signal()));
        ring.wait_for(2);
        receiver.join().unwrap();
        peer.join().unwrap();
        ring.assert_ended(&[1, 2]);
    });
}

#[test]
fn request_on_a_lost_registration_is_rechecked() {
    model::check(2, || {
        let ring = PollRing::new();
        // The number was closed unseen, and is another file's now.
        ring.lock().poller.epoll.ctl(EpollOp::Del, ring.fd(), 0, 0).unwrap();
        ring.submit(1);
        let peer = ring.spawn(|ring| ring.file.signal());
        let clock = ring.spawn(|ring| {
            for round in 1.. {
                if !ring.lock().done.is_empty() {
                    return;
                }
                model::advance_to(round * RECHECK_NS);
                thread::yield_now();
            }
        });
        ring.wait_for(1);
        peer.join().unwrap();
        clock.join().unwrap();
        ring.assert_ended(&[1]);
    });
}
