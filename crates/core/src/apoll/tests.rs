//! The poller on a pipe, without a ring.

use super::*;
use core::num::NonZeroU32;
use uringlet_sys::fd::EpollEvent;
use uringlet_sys::{UserPtr, io};

struct Scene {
    poller: Poller,
    reader: i32,
    writer: i32,
}

impl Scene {
    fn new() -> Self {
        fd_table::init();
        let [reader, writer] = io::pipe(io::O_NONBLOCK).unwrap();
        Self { poller: Poller::new().unwrap(), reader, writer }
    }

    fn arm(&mut self, key: u32, look: Look) {
        let waiting = Waiting { id: id(key), mask: EPOLLIN, is_multishot: false };
        self.poller.arm(Place { fd: self.reader, node: None }, waiting, look).unwrap();
    }

    fn write(&self) {
        io::write(self.writer, io::ptr_of(&7_u8), 1).unwrap();
    }

    fn read(&self) {
        let mut byte = 0_u8;
        io::read(self.reader, io::ptr_of_mut(&mut byte), 1).unwrap();
    }

    /// Who is woken by what the epoll set has now.
    fn woken(&mut self) -> Vec<u32> {
        let mut events = [EpollEvent::default(); 4];
        let n = self.poller.epoll.wait(&mut events, 0, UserPtr::NULL).unwrap();
        let mut ready = Vec::new();
        for event in &events[..n] {
            self.poller.fired(event.data, event.events, &mut ready);
        }
        ready.iter().map(|w| w.id.key).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        io::close(self.reader).unwrap();
        io::close(self.writer).unwrap();
    }
}

fn id(key: u32) -> ReqId {
    ReqId { key, generation: NonZeroU32::MIN }
}

#[test]
fn a_wait_on_trust_is_ended_by_the_next_edge() {
    let mut scene = Scene::new();
    scene.arm(1, Look::Anew);
    assert_eq!(scene.woken(), []);
    scene.write();
    assert_eq!(scene.woken(), [1]);
    scene.read();
    scene.arm(2, Look::Done);
    assert_eq!(scene.woken(), []);
    scene.write();
    assert_eq!(scene.woken(), [2]);
    assert!(!scene.poller.is_armed());
}

#[test]
fn what_holds_already_is_reported_to_those_who_have_not_looked() {
    let mut scene = Scene::new();
    scene.write();
    scene.arm(1, Look::Anew);
    assert_eq!(scene.woken(), [1]);
    // Nothing was read: there is no new edge, but it holds.
    scene.arm(2, Look::Anew);
    assert_eq!(scene.woken(), [2]);
}

#[test]
fn what_waits_on_trust_for_long_is_looked_at() {
    let mut scene = Scene::new();
    scene.write();
    scene.arm(1, Look::Anew);
    assert_eq!(scene.woken(), [1]);
    // Says that it has looked, and has not.
    scene.arm(2, Look::Done);
    scene.poller.check();
    assert_eq!(scene.woken(), [], "not in the round in which it was armed");
    scene.poller.check();
    assert_eq!(scene.woken(), [2]);
}

#[test]
fn a_file_that_nobody_waits_for_is_given_up() {
    let mut scene = Scene::new();
    scene.arm(1, Look::Anew);
    assert!(fd_table::has_users(scene.reader));
    scene.poller.disarm(scene.reader, id(1));
    for _ in 0..2 {
        scene.write();
        assert_eq!(scene.woken(), []);
    }
    assert!(!fd_table::has_users(scene.reader));
    scene.write();
    let mut events = [EpollEvent::default(); 4];
    assert_eq!(scene.poller.epoll.wait(&mut events, 0, UserPtr::NULL), Ok(0));
}

#[test]
fn an_event_of_an_earlier_registration_wakes_nobody() {
    let mut scene = Scene::new();
    scene.arm(1, Look::Anew);
    let stale = scene.poller.files[&scene.reader].serial;
    assert_eq!(scene.poller.take(scene.reader).len(), 1);
    scene.arm(2, Look::Anew);
    let mut ready = Vec::new();
    scene.poller.fired(u64::from(stale) << 32 | scene.reader as u64, EPOLLIN, &mut ready);
    assert!(ready.is_empty());
    scene.write();
    assert_eq!(scene.woken(), [2]);
}
