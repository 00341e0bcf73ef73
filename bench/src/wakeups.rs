//! Two threads that wake each other in turn.

use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{read, write};
use rustix::pipe::pipe;
use uringlet_abi::{Opcode, Sqe};

use crate::sys::liburing::LibRing;
use crate::timing::{Metrics, throughput};

const ENTRIES: u32 = 8;
/// What ends the second thread.
const END: u8 = 1;

/// One of the two.
trait Partner: Send {
    /// Wakes the other thread, and has it end if `message` is [`END`].
    fn wake(&mut self, message: u8) -> anyhow::Result<()>;
    /// Waits for its message.
    fn wait(&mut self) -> anyhow::Result<u8>;
}

/// The time from a wake-up to the answer, ns.
pub(crate) fn measure(via: &str, op: &str, time: Duration) -> anyhow::Result<Metrics> {
    match (op, via) {
        ("pipe", "calls") => {
            let ((from_b, to_a), (from_a, to_b)) = (pipe()?, pipe()?);
            play(PipeCalls { from: from_b, to: to_b }, PipeCalls { from: from_a, to: to_a }, time)
        }
        ("pipe", "ring") => {
            let ((from_b, to_a), (from_a, to_b)) = (pipe()?, pipe()?);
            let end = |from, to| Ok::<_, anyhow::Error>(PipeRing { from, to, ring: LibRing::new(ENTRIES)?, byte: Box::new([0]) });
            play(end(from_b, to_b)?, end(from_a, to_a)?, time)
        }
        ("message", "ring") => {
            let (a, b) = (LibRing::new(ENTRIES)?, LibRing::new(ENTRIES)?);
            let (fd_a, fd_b) = (a.fd(), b.fd());
            play(Messages::new(a, fd_b), Messages::new(b, fd_a), time)
        }
        _ => bail!("there is no wake-up `{op}` by `{via}`"),
    }
}

fn play(mut one: impl Partner, mut other: impl Partner, time: Duration) -> anyhow::Result<Metrics> {
    thread::scope(|scope| {
        let answers = scope.spawn(move || {
            while other.wait()? != END {
                other.wake(0)?;
            }
            anyhow::Ok(())
        });
        let trips = throughput(time, || {
            one.wake(0)?;
            one.wait()?;
            Ok(1)
        });
        one.wake(END)?;
        answers.join().map_err(|_| anyhow!("the second thread panicked"))??;
        Ok(Metrics::value(1e9 / trips?.median))
    })
}

struct PipeCalls {
    from: OwnedFd,
    to: OwnedFd,
}

impl Partner for PipeCalls {
    fn wake(&mut self, message: u8) -> anyhow::Result<()> {
        write(&self.to, &[message])?;
        Ok(())
    }

    fn wait(&mut self) -> anyhow::Result<u8> {
        let mut byte = [0];
        ensure!(read(&self.from, &mut byte)? == 1, "the pipe has ended");
        Ok(byte[0])
    }
}

/// Wakes by write(2), and waits in io_uring_enter(2).
struct PipeRing {
    from: OwnedFd,
    to: OwnedFd,
    ring: LibRing,
    byte: Box<[u8; 1]>,
}

impl Partner for PipeRing {
    fn wake(&mut self, message: u8) -> anyhow::Result<()> {
        write(&self.to, &[message])?;
        Ok(())
    }

    fn wait(&mut self) -> anyhow::Result<u8> {
        self.ring.prep_read(self.from.as_raw_fd(), &mut self.byte[..], u64::MAX, 0);
        self.ring.submit_all(1, 1)?;
        Ok(self.byte[0])
    }
}

/// Wakes by MSG_RING.
struct Messages {
    ring: LibRing,
    other: i32,
    /// Messages that came while this thread waited for the CQE of its own request.
    received: Option<u8>,
}

/// The user_data of MSG_RING requests; that of messages is 0.
const SENT: u64 = 1;

impl Messages {
    fn new(ring: LibRing, other: i32) -> Self {
        Self { ring, other, received: None }
    }

    fn reap(&mut self) {
        let received = &mut self.received;
        self.ring.for_each_cqe(|user_data, res| {
            if user_data != SENT {
                *received = u8::try_from(res).ok();
            }
        });
    }
}

impl Partner for Messages {
    fn wake(&mut self, message: u8) -> anyhow::Result<()> {
        let (fd, len) = (self.other, message.into());
        *self.ring.get_sqe() = Sqe { opcode: Opcode::MsgRing as u8, fd, len, user_data: SENT, ..Sqe::default() };
        let submitted = self.ring.submit();
        ensure!(submitted == 1, "io_uring_submit returns {submitted}");
        Ok(())
    }

    fn wait(&mut self) -> anyhow::Result<u8> {
        loop {
            self.reap();
            if let Some(message) = self.received.take() {
                return Ok(message);
            }
            ensure!(self.ring.submit_and_wait(1) >= 0, "waiting failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_wake_each_other() {
        let time = Duration::from_millis(5);
        assert!(measure("calls", "message", time).is_err() && measure("ring", "drum", time).is_err());
        let measured = measure("calls", "pipe", time).unwrap().into_json();
        assert!(measured["value"].as_f64().unwrap() > 0.0);
    }
}
