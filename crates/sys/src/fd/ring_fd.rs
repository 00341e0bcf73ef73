//! The descriptor of a ring.

use super::engine_fd::EngineFd;
use super::epoll_event::EPOLLERR;
use crate::io;
use crate::linux::general::AT_FDCWD;
use crate::proc_path::ProcPath;
use syscalls::{Errno, Sysno, raw_syscall};

/// A ring's descriptor, as the program polls, dups and closes it: a FIFO. The program has the end
/// to read from, the engine the end to write to.
///
/// A byte in the FIFO makes the program's end readable. When the program's last number for it is
/// closed, in any process, the FIFO has no reader any more, and poll reports an error at the
/// writing end, at once or later.
#[derive(Debug)]
pub struct RingFd {
    writer: EngineFd,
    /// A duplicate of the program's end, to drain the FIFO with. Only while the ring is polled,
    /// since it is a reader too.
    reader: Option<EngineFd>,
    /// `st_ino` on pipefs: how a duplicate is recognised.
    ino: u64,
}

impl RingFd {
    /// Makes the FIFO and the program's descriptor for it (close-on-exec, the lowest free number).
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn open() -> Result<(i32, Self), Errno> {
        let [app, writer] = io::pipe(io::O_CLOEXEC | io::O_NONBLOCK)?;
        let writer = EngineFd::adopt(writer);
        Self::make_writable(app);
        let ino = io::fstat(app)?.ino;
        Ok((app, Self { writer, reader: None, ino }))
    }

    /// A ring polls as writable, too. That takes a FIFO opened for both, which only /proc can give;
    /// without it the program's end polls as readable only.
    fn make_writable(app: i32) {
        let path = ProcPath::of(app);
        let flags = io::O_RDWR | io::O_NONBLOCK | io::O_CLOEXEC;
        if let Ok(both) = io::openat(AT_FDCWD, io::ptr_of_slice(path.bytes()), flags, 0) {
            let both = io::number_of(both);
            let _ = io::dup3(both, app, io::O_CLOEXEC);
            let _ = io::close(both);
        }
    }

    /// The writing end's number: it has an error when [orphaned](Self::is_orphaned).
    #[must_use]
    pub fn writer(&self) -> i32 {
        self.writer.number()
    }

    /// `st_ino` on pipefs: how a duplicate is recognised.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Whether the engine's end is in the calling thread's descriptor table.
    #[must_use]
    pub fn is_in_table(&self) -> bool {
        io::fstat(self.writer.number()).is_ok_and(|stat| stat.ino == self.ino)
    }

    /// Whether the program's last number is closed, in all processes.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        self.reader.is_none() && io::poll_now(self.writer.number(), 0).is_ok_and(|events| events & EPOLLERR != 0)
    }

    /// Keeps readiness from now on: `app`, a number of the program's, is polled.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn track_readiness(&mut self, app: i32) -> Result<(), Errno> {
        if self.reader.is_none() {
            self.reader = Some(EngineFd::dup_of(app)?);
        }
        Ok(())
    }

    /// Stops keeping readiness: the program has no number left to poll.
    pub fn untrack_readiness(&mut self) {
        self.reader = None;
    }

    /// Makes the program's descriptor readable. Writing when it already is gives edge-triggered
    /// pollers their edge.
    pub fn set_readable(&self) {
        // Without a reader a write raises SIGPIPE.
        if self.reader.is_some() {
            let byte = 0_u8;
            // SAFETY: one live byte; a full FIFO answers EAGAIN, and is readable.
            unsafe { raw_syscall!(Sysno::write, self.writer.number(), &raw const byte, 1) };
        }
    }

    /// Makes the program's descriptor not readable.
    pub fn clear_readable(&self) {
        let Some(reader) = &self.reader else { return };
        let mut sink = [0_u8; 4096];
        // SAFETY: the kernel writes at most 4096 bytes to `sink`.
        while unsafe { raw_syscall!(Sysno::read, reader.number(), sink.as_mut_ptr(), sink.len()) } == sink.len() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::EPOLLIN;

    #[test]
    fn the_last_close_of_a_rings_number_orphans_it() {
        let (app, mut fd) = RingFd::open().unwrap();
        fd.track_readiness(app).unwrap();
        fd.set_readable();
        assert_eq!(io::poll_now(app, EPOLLIN), Ok(EPOLLIN));
        fd.clear_readable();
        assert_eq!(io::poll_now(app, EPOLLIN), Ok(0));
        let other = EngineFd::dup_of(app).unwrap();
        io::close(app).unwrap();
        fd.untrack_readiness();
        assert!(!fd.is_orphaned());
        drop(other);
        assert!(fd.is_orphaned());
        // No SIGPIPE.
        fd.set_readable();
    }
}
