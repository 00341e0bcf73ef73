//! Waiting in enter(): one thread drives, the others sleep behind it.

use super::{EngineModel, at, post, timeout, wait, wait_with};
use crate::state::LockOwner;
use loom::thread;
use uringlet_abi::GeteventsArg;
use uringlet_sys::model;

/// Threads that wait for so many CQEs each, while so many are posted.
fn waiters_and_posts<const N: usize>(minimums: [u32; N], posts: u64) {
    let scene = EngineModel::new();
    let ring = scene.ring;
    let waiters = minimums.map(|min| thread::spawn(move || wait(ring, min)));
    (1..=posts).for_each(|n| post(ring, n));
    for waiter in waiters {
        waiter.join().unwrap();
    }
}

#[test]
fn a_post_wakes_a_waiter_that_is_about_to_sleep() {
    model::check(3, || waiters_and_posts([1], 1));
}

#[test]
fn another_waiter_drives_after_the_driver_leaves() {
    model::check(2, || waiters_and_posts([1, 2], 2));
}

#[test]
fn remaining_waiters_sleep_and_do_not_spin() {
    model::check(1, || waiters_and_posts([1, 2, 2], 2));
}

#[test]
fn any_post_ends_a_wait_after_its_minimum() {
    model::check(2, || {
        let scene = EngineModel::new();
        let ring = scene.ring;
        let patient = thread::spawn(move || wait(ring, 2));
        let hasty = thread::spawn(move || {
            let ext = GeteventsArg { min_wait_usec: 1, ..GeteventsArg::default() };
            wait_with(ring, 3, &ext);
        });
        while ring.lock(LockOwner::Worker).unwrap().waiters.sleeping < 2 {
            thread::yield_now();
        }
        model::advance_to(1000);
        post(ring, 1);
        hasty.join().unwrap();
        post(ring, 2);
        patient.join().unwrap();
    });
}

#[test]
fn the_next_driver_takes_over_the_timers_of_one_that_timed_out() {
    model::check(1, || {
        let mut scene = EngineModel::new();
        let ring = scene.ring;
        let hasty = thread::spawn(move || {
            let ten = at(10);
            let ts = core::ptr::from_ref(&ten).addr() as u64;
            wait_with(ring, 1, &GeteventsArg { ts, ..GeteventsArg::default() });
        });
        let patient = thread::spawn(move || wait(ring, 1));
        scene.submit(&timeout(1, &at(20)));
        model::advance_to(10);
        model::advance_to(20);
        hasty.join().unwrap();
        patient.join().unwrap();
    });
}
