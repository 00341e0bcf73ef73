//! A worker falls asleep for a request while its futexes change, are woken, and the request ends:
//! no wake is lost. One that is, is a thread that sleeps for ever, which loom reports as a
//! deadlock.
//!
//! `SleeperModel` stands in for the ring: for its table with this one request, and io-wq, as
//! `super` and `submit::wait` use them.

use super::{FutexOp, FutexWait, InterruptGuard, or_spurious};
use crate::ops::{PrepCx, futex};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Release};
use uringlet_abi::Sqe;
use uringlet_sys::lock::{Mutex, futex_wait};
use uringlet_sys::model::checker::thread::{self, JoinHandle};
use uringlet_sys::sync::AtomicU32;
use uringlet_sys::user_futex::Futex;
use uringlet_sys::{Errno, model};

type Words = Box<[AtomicU32]>;

/// A request that waits until words are no longer 0, or a wake comes.
struct SleeperModel {
    words: Words,
    wait: Arc<FutexWait>,
    interrupts: InterruptGuard,
    /// What the request ended with; `None`: the ring has it.
    end: Mutex<Option<Result<usize, Errno>>>,
}

/// FUTEX2_SIZE_U32, FUTEX2_PRIVATE
const FLAGS: u32 = 2 | 128;

fn address(word: &AtomicU32) -> u64 {
    core::ptr::from_ref(word).addr() as u64
}

/// The request's own part, of a FUTEX_WAIT for one word and a FUTEX_WAITV for several.
fn wait_for(words: &Words) -> Arc<FutexWait> {
    let cx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };
    let op = if let [word] = &**words {
        futex::prep_wait(&Sqe { fd: FLAGS as i32, addr: address(word), addr3: 1, ..Sqe::default() }, &cx)
    } else {
        let waiters: Vec<_> = words.iter().map(|word| [0, address(word), FLAGS.into()]).collect();
        futex::prep_waitv(&Sqe { addr: waiters.as_ptr() as u64, len: waiters.len() as u32, ..Sqe::default() }, &cx)
    };
    let Ok(FutexOp::Wait(wait)) = op else { panic!("not a wait") };
    wait
}

impl SleeperModel {
    fn new(words: usize) -> Arc<Self> {
        let words: Words = (0..words).map(|_| AtomicU32::new(0)).collect();
        let wait = wait_for(&words);
        Arc::new(Self { words, wait, interrupts: InterruptGuard::new(), end: Mutex::new(None) })
    }

    /// Begins to run it as a worker would.
    fn spawn_worker(self: &Arc<Self>) -> JoinHandle<()> {
        let scene = Arc::clone(self);
        thread::spawn(move || scene.work())
    }

    fn work(&self) {
        let Some(woken) = self.interrupts.run(|| self.wait.sleep()) else { return self.wait.decline_sleep() };
        let mut end = self.end.lock();
        if end.is_none() {
            *end = Some(or_spurious(woken));
        } else {
            drop(end);
            if let Ok(which) = woken {
                self.wait.forward_wake(which);
            }
        }
    }

    /// The submitter's part once it is queued.
    fn submit(&self, is_expected: bool) {
        if self.wait.requeue_sleeper(is_expected) == Ok(true)
            && let Err(errno) = self.wait.compare()
        {
            self.end(errno);
        }
    }

    /// Ends it, unless it did.
    fn end(&self, errno: Errno) {
        let mut end = self.end.lock();
        if end.is_none() {
            self.interrupts.cancel(1);
            *end = Some(Err(errno));
            drop(end);
            self.wait.wait_until_awake();
        }
    }

    fn result(&self) -> Option<Result<usize, Errno>> {
        *self.end.lock()
    }

    fn wake(&self, nth: usize) -> usize {
        Futex::at(address(&self.words[nth]), FLAGS).and_then(|futex| futex.wake(1, u32::MAX)).unwrap()
    }

    fn change_and_wake(&self, nth: usize) -> usize {
        // Pairs with `wait_as_a_thread`; the engine gets along with less.
        self.words[nth].store(1, Release);
        self.wake(nth)
    }

    fn spawn(self: &Arc<Self>, main: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let scene = Arc::clone(self);
        thread::spawn(move || main(&scene))
    }

    /// Another thread of the program's that waits for the first word.
    fn wait_as_a_thread(&self) {
        while self.words[0].load(Acquire) == 0 {
            let _ = futex_wait(&self.words[0], 0, u64::MAX);
        }
    }
}

#[test]
fn a_wake_after_the_submission_finds_the_sleeper() {
    model::check(5, || {
        let scene = SleeperModel::new(1);
        let worker = scene.spawn_worker();
        scene.submit(true);
        assert_eq!(scene.wake(0), 1);
        worker.join().unwrap();
        assert_eq!(scene.result(), Some(Ok(0)));
    });
}

/// The kernel wakes it for no reason at any time: the wake finds it, or it has ended already.
#[test]
fn a_wake_after_the_submission_is_not_lost_on_a_disturbed_sleeper() {
    for words in [1, 2] {
        model::check(4, move || {
            let scene = SleeperModel::new(words);
            let worker = scene.spawn_worker();
            let disturbance = thread::spawn(model::wake_spuriously);
            scene.submit(true);
            scene.wake(words - 1);
            worker.join().unwrap();
            disturbance.join().unwrap();
            assert!(matches!(scene.result(), Some(Ok(_))));
        });
    }
}

/// Ends with EAGAIN or a wake, however far it got.
fn is_changed_while_submitted(words: usize, changed: usize, is_expected: bool) {
    let scene = SleeperModel::new(words);
    let worker = scene.spawn_worker();
    let waker = scene.spawn(move |scene| {
        scene.change_and_wake(changed);
    });
    scene.submit(is_expected);
    waker.join().unwrap();
    worker.join().unwrap();
    assert!([Some(Ok(changed)), Some(Err(Errno::EAGAIN))].contains(&scene.result()));
}

#[test]
fn a_value_changes_during_the_submission() {
    model::check(3, || is_changed_while_submitted(1, 0, true));
}

#[test]
fn a_value_changes_before_a_late_worker_comes() {
    model::check(4, || is_changed_while_submitted(1, 0, false));
}

#[test]
fn a_value_of_two_changes_during_the_submission() {
    model::check(3, || is_changed_while_submitted(2, 1, true));
}

#[test]
fn a_wake_after_the_submission_of_two_finds_the_sleeper_on_either() {
    for nth in [0, 1] {
        model::check(4, move || {
            let scene = SleeperModel::new(2);
            let worker = scene.spawn_worker();
            scene.submit(true);
            assert_eq!(scene.wake(nth), 1);
            worker.join().unwrap();
            assert_eq!(scene.result(), Some(Ok(nth)));
        });
    }
}

#[test]
fn a_worker_comes_after_its_submitter_timed_out() {
    model::check(4, || {
        let scene = SleeperModel::new(1);
        let worker = scene.spawn_worker();
        let clock = thread::spawn(|| model::advance_to(u64::MAX / 2));
        scene.submit(true);
        scene.change_and_wake(0);
        clock.join().unwrap();
        worker.join().unwrap();
        assert_eq!(scene.result(), Some(Ok(0)));
    });
}

/// Whether a worker lay down in time or is on its own.
#[test]
fn a_cancelled_wait_consumes_no_wake() {
    for (words, is_expected) in [(1, true), (1, false), (2, true), (2, false)] {
        model::check(4, move || {
            let scene = SleeperModel::new(words);
            let worker = scene.spawn_worker();
            scene.submit(is_expected);
            scene.end(Errno::ECANCELED);
            assert_eq!(scene.wake(0), 0);
            worker.join().unwrap();
            assert_eq!(scene.result(), Some(Err(Errno::ECANCELED)));
        });
    }
}

/// One wake, of a request that is cancelled at the same time: it is the request's, or the other
/// thread's.
fn is_cancelled_while_woken(words: usize, is_expected: bool) {
    let scene = SleeperModel::new(words);
    let worker = scene.spawn_worker();
    scene.submit(is_expected);
    let other = scene.spawn(SleeperModel::wait_as_a_thread);
    let canceller = scene.spawn(|scene| scene.end(Errno::ECANCELED));
    scene.change_and_wake(0);
    canceller.join().unwrap();
    worker.join().unwrap();
    if scene.result() == Some(Ok(0)) {
        scene.wake(0);
    }
    other.join().unwrap();
}

#[test]
fn the_wake_of_a_cancelled_wait_is_passed_on() {
    model::check(2, || is_cancelled_while_woken(1, true));
}

#[test]
fn the_wake_of_a_cancelled_wait_of_two_is_passed_on() {
    model::check(2, || is_cancelled_while_woken(2, true));
}

#[test]
fn the_wake_of_a_cancelled_late_worker_is_passed_on() {
    model::check(2, || is_cancelled_while_woken(1, false));
}

#[test]
fn a_wait_is_cancelled_while_it_is_submitted() {
    model::check(3, || {
        let scene = SleeperModel::new(1);
        let worker = scene.spawn_worker();
        let canceller = scene.spawn(|scene| scene.end(Errno::ECANCELED));
        scene.submit(true);
        canceller.join().unwrap();
        assert_eq!(scene.wake(0), 0);
        worker.join().unwrap();
        assert_eq!(scene.result(), Some(Err(Errno::ECANCELED)));
    });
}

/// It is cancelled in io-wq's queue.
#[test]
fn a_cancelled_wait_does_not_wait_for_its_worker() {
    model::check(4, || {
        let scene = SleeperModel::new(1);
        let canceller = scene.spawn(|scene| scene.end(Errno::ECANCELED));
        scene.submit(true);
        canceller.join().unwrap();
    });
}
