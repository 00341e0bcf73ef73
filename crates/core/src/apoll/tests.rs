//! The poller on a pipe, without a ring.

use super::*;
use crate::req_id::ReqId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use uringlet_sys::fd::{EPOLLIN, NO_EVENT};
use uringlet_sys::{UserPtr, fd_table, io};

struct PipeFixture {
    poller: Poller,
    reader: i32,
    writer: i32,
}

impl PipeFixture {
    fn new() -> Self {
        let _ = fd_table::init();
        let [reader, writer] = io::pipe(io::O_NONBLOCK).unwrap();
        Self { poller: Poller::new(Arc::new(uringlet_sys::fd::EventFd::new().unwrap())).unwrap(), reader, writer }
    }

    fn arm(&mut self, key: u32, rearm: Rearm) {
        let waiting = PollWaiter { id: id(key), mask: EPOLLIN, is_multishot: false };
        self.poller.arm(PollTarget { fd: self.reader, node: None }, waiting, rearm).unwrap();
    }

    fn write(&self) {
        io::write(self.writer, io::ptr_of(&7_u8), 1).unwrap();
    }

    fn read(&self) {
        let mut byte = 0_u8;
        io::read(self.reader, io::ptr_of_mut(&mut byte), 1).unwrap();
    }

    /// The keys of the requests that fire by what the epoll set has now.
    fn fired(&mut self) -> Vec<u32> {
        let mut events = [NO_EVENT; 4];
        let n = self.poller.epoll.wait(&mut events, 0, UserPtr::NULL).unwrap();
        let mut ready = Vec::new();
        for event in &events[..n] {
            self.poller.on_event(event.data, event.events, &mut ready);
        }
        ready.iter().map(|w| w.id.key).collect()
    }
}

impl Drop for PipeFixture {
    fn drop(&mut self) {
        io::close(self.reader).unwrap();
        io::close(self.writer).unwrap();
    }
}

fn id(key: u32) -> ReqId {
    ReqId { key, generation: NonZeroU32::MIN }
}

#[test]
fn next_edge_fires_a_request_that_waits_on_trust() {
    let mut pipe = PipeFixture::new();
    pipe.arm(1, Rearm::Recheck);
    assert_eq!(pipe.fired(), []);
    pipe.write();
    assert_eq!(pipe.fired(), [1]);
    pipe.read();
    pipe.arm(2, Rearm::TrustEdge);
    assert_eq!(pipe.fired(), []);
    pipe.write();
    assert_eq!(pipe.fired(), [2]);
    assert!(!pipe.poller.is_armed());
}

#[test]
fn recheck_reports_what_already_holds() {
    let mut pipe = PipeFixture::new();
    pipe.write();
    pipe.arm(1, Rearm::Recheck);
    assert_eq!(pipe.fired(), [1]);
    // Nothing was read: there is no new edge, but it holds.
    pipe.arm(2, Rearm::Recheck);
    assert_eq!(pipe.fired(), [2]);
}

#[test]
fn long_wait_on_trust_is_rechecked() {
    let mut pipe = PipeFixture::new();
    pipe.write();
    pipe.arm(1, Rearm::Recheck);
    assert_eq!(pipe.fired(), [1]);
    // Claims to have found the file not ready, and has not tried.
    pipe.arm(2, Rearm::TrustEdge);
    pipe.poller.recheck();
    assert_eq!(pipe.fired(), [], "not in the round in which it was armed");
    pipe.poller.recheck();
    assert_eq!(pipe.fired(), [2]);
}

#[test]
fn two_unclaimed_events_end_the_registration() {
    let mut pipe = PipeFixture::new();
    pipe.arm(1, Rearm::Recheck);
    assert!(fd_table::has_users(pipe.reader));
    pipe.poller.disarm(pipe.reader, id(1));
    for _ in 0..2 {
        pipe.write();
        assert_eq!(pipe.fired(), []);
    }
    assert!(!fd_table::has_users(pipe.reader));
    pipe.write();
    let mut events = [NO_EVENT; 4];
    assert_eq!(pipe.poller.epoll.wait(&mut events, 0, UserPtr::NULL), Ok(0));
}

#[test]
fn event_of_an_earlier_registration_fires_nothing() {
    let mut pipe = PipeFixture::new();
    pipe.arm(1, Rearm::Recheck);
    let stale = pipe.poller.files[&pipe.reader].serial;
    assert_eq!(pipe.poller.remove_file(pipe.reader).len(), 1);
    pipe.arm(2, Rearm::Recheck);
    let mut ready = Vec::new();
    pipe.poller.on_event(u64::from(stale) << 32 | pipe.reader as u64, EPOLLIN, &mut ready);
    assert!(ready.is_empty());
    pipe.write();
    assert_eq!(pipe.fired(), [2]);
}
