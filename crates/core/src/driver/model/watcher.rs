//! The watcher: rings whose programs only look at the CQ.

use super::{EngineModel, at, poll, timeout, wait};
use crate::driver::watcher::{TICK_NS, WATCHER};
use crate::identity;
use alloc::vec::Vec;
use loom::thread;
use uringlet_abi::{Opcode, Sqe};
use uringlet_sys::fd::EventFd;
use uringlet_sys::model;

/// Ticks after which the watcher is about to fall asleep.
const QUIET: u64 = 1;

impl EngineModel {
    /// Looks at the CQ, without calls, until there is a CQE; time goes on meanwhile, but not beyond
    /// `until_ns`.
    fn look_for(&mut self, user_data: u64, until_ns: u64) {
        let mut now = model::monotonic_ns();
        while self.program.reap().is_none_or(|cqe| cqe.user_data != user_data) {
            now = until_ns.min(now + TICK_NS);
            model::advance_to(now);
            thread::yield_now();
        }
    }
}

/// Lets the watcher find everything quiet; the model explores how far it then gets in falling
/// asleep.
fn quiet_ticks() {
    let now = model::monotonic_ns();
    for tick in 1..=QUIET {
        thread::yield_now();
        model::advance_to(now + tick * TICK_NS);
    }
}

#[test]
fn a_timer_fires_for_a_program_that_never_enters_again() {
    model::check(3, || {
        let mut scene = EngineModel::new();
        scene.submit(&timeout(1, &at(10 * TICK_NS)));
        scene.look_for(1, 10 * TICK_NS);
    });
}

#[test]
fn an_event_comes_while_the_watcher_falls_asleep() {
    model::check(3, || {
        let mut scene = EngineModel::new();
        let file = EventFd::new().unwrap();
        scene.submit(&poll(1, &file));
        quiet_ticks();
        file.signal();
        scene.look_for(1, u64::MAX);
    });
}

#[test]
fn a_second_request_comes_while_the_watcher_falls_asleep() {
    model::check(3, || {
        let mut scene = EngineModel::new();
        let files = [1, 2].map(|_| EventFd::new().unwrap());
        scene.submit(&poll(1, &files[0]));
        quiet_ticks();
        scene.submit(&poll(2, &files[1]));
        files[1].signal();
        scene.look_for(2, u64::MAX);
    });
}

#[test]
fn a_sooner_timer_comes_while_the_watcher_sleeps_for_a_later_one() {
    model::check(3, || {
        let mut scene = EngineModel::new();
        scene.submit(&timeout(1, &at(100 * TICK_NS)));
        quiet_ticks();
        scene.submit(&timeout(2, &at(20 * TICK_NS)));
        scene.look_for(2, 20 * TICK_NS);
    });
}

#[test]
fn the_soonest_timer_is_removed_while_the_watcher_falls_asleep() {
    model::check(3, || {
        let mut scenes = [EngineModel::new(), EngineModel::new()];
        scenes[0].submit(&timeout(1, &at(10 * TICK_NS)));
        scenes[1].submit(&timeout(2, &at(100 * TICK_NS)));
        quiet_ticks();
        scenes[0].submit(&Sqe { opcode: Opcode::TimeoutRemove as u8, fd: -1, addr: 1, user_data: 3, ..Sqe::default() });
        scenes[1].submit(&timeout(4, &at(20 * TICK_NS)));
        scenes[1].look_for(4, 20 * TICK_NS);
    });
}

#[test]
fn a_watcher_that_falls_asleep_is_replaced_and_its_timer_fires() {
    model::check(2, || {
        let mut scene = EngineModel::new();
        scene.submit(&timeout(1, &at(10 * TICK_NS)));
        quiet_ticks();
        WATCHER.renew(identity::of_this_thread());
        scene.look_for(1, 10 * TICK_NS);
    });
}

#[test]
fn a_timer_fires_that_waited_while_there_was_no_watcher() {
    model::check(2, || {
        let mut scene = EngineModel::new();
        scene.submit(&timeout(1, &at(10 * TICK_NS)));
        quiet_ticks();
        WATCHER.pause(u64::MAX);
        WATCHER.resume(identity::of_this_thread());
        scene.look_for(1, 10 * TICK_NS);
    });
}

#[test]
fn a_timer_fires_that_comes_after_an_idle_watcher_was_given_up() {
    model::check(2, || {
        let mut scene = EngineModel::new();
        scene.submit(&timeout(1, &at(TICK_NS)));
        scene.look_for(1, TICK_NS);
        WATCHER.renew(identity::of_this_thread());
        scene.submit(&timeout(2, &at(10 * TICK_NS)));
        scene.look_for(2, 10 * TICK_NS);
    });
}

#[test]
fn an_event_reaches_the_waiter_or_the_watcher() {
    model::check(2, || {
        let mut scene = EngineModel::new();
        let files: Vec<EventFd> = (0..2).map(|_| EventFd::new().unwrap()).collect();
        scene.submit(&poll(1, &files[0]));
        scene.submit(&poll(2, &files[1]));
        let ring = scene.ring;
        let waiter = thread::spawn(move || wait(ring, 1));
        quiet_ticks();
        files[0].signal();
        waiter.join().unwrap();
        files[1].signal();
        scene.look_for(2, u64::MAX);
    });
}
