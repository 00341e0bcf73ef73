//! Replaces `fd::event` with `--cfg loom`: the same functions on the model's kernel. Nothing is
//! closed: the kernel ends with the model.

use crate::fd::{EpollEvent, EpollOp};
use crate::io::Res;
use crate::model::{self, Awake, On, Over};
use crate::user::UserPtr;
use syscalls::Errno;

/// Signals an eventfd of the model's. Ignores other numbers.
pub fn signal_eventfd(fd: i32) {
    model::with(|kernel| kernel.signal(fd));
}

/// An eventfd that wakes the threads that poll it.
#[derive(Debug)]
pub struct EventFd(i32);

impl EventFd {
    /// A new one.
    ///
    /// # Errors
    /// None in a model.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(model::with(|kernel| kernel.events.new_eventfd())))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        signal_eventfd(self.0);
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0
    }
}

/// A timer that is readable once the model's time has come to its expiry.
#[derive(Debug)]
pub struct TimerFd(i32);

impl TimerFd {
    /// A new one, not running.
    ///
    /// # Errors
    /// None in a model.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(model::with(|kernel| kernel.events.new_eventfd())))
    }

    /// Lets it expire once, `ns` from now. Whether it runs.
    #[must_use]
    pub fn start(&self, ns: u64) -> bool {
        model::with(|kernel| kernel.start_timer(self.0, ns));
        true
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0
    }
}

/// Readable when the wall clock is set, which no model does.
#[derive(Debug)]
pub struct ClockStep(i32);

impl ClockStep {
    /// A new one.
    ///
    /// # Errors
    /// None in a model.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(model::with(|kernel| kernel.events.new_eventfd())))
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0
    }
}

/// An epoll set of the engine.
#[derive(Debug)]
pub struct Epoll(i32);

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// None in a model.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(model::with(|kernel| kernel.events.new_set())))
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Adds, changes or removes a file.
    ///
    /// # Errors
    /// `EPERM` a file that is not the model's; `EEXIST`, `ENOENT`.
    pub fn ctl(&self, op: EpollOp, fd: i32, events: u32, data: u64) -> Result<(), Errno> {
        model::with(|kernel| kernel.ctl(self.0, op, fd, events, data))
    }

    /// Waits until `deadline_ns` (0: not at all; `u64::MAX`: without limit). Returns how many
    /// events were stored. A thread that would wait when the model is over ends here.
    ///
    /// # Errors
    /// None in a model.
    pub fn wait(&self, events: &mut [EpollEvent], deadline_ns: u64, _sigmask: UserPtr) -> Res {
        if deadline_ns == 0 {
            return Ok(model::with(|kernel| kernel.events.take(self.0, events)));
        }
        loop {
            let slept = model::sleep_unless(On::Epoll(self.0), deadline_ns, |kernel| {
                let n = kernel.events.take(self.0, events);
                (n > 0).then_some(n)
            });
            match slept {
                Ok(n) => return Ok(n),
                Err(Awake::Woken) => {}
                Err(Awake::TimedOut) => return Ok(0),
                Err(Awake::Ended) => std::panic::resume_unwind(std::boxed::Box::new(Over)),
            }
        }
    }
}
