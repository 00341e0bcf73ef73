//! Taking turns at a listener, so that accept(2) never sleeps.
//!
//! accept(2) has no flag for "do not sleep": the open file is made non-blocking for the time of the call. The flag belongs
//! to everybody who shares the file, so two that do so at once undo each other's work:
//!
//! ```text
//!   one                               the other
//!   poll: a connection                poll: a connection
//!   set O_NONBLOCK                    O_NONBLOCK is set already
//!   accept4: takes it
//!   clear O_NONBLOCK
//!                                     accept4: sleeps, with its ring locked
//! ```
//!
//! Whoever looks at the flag, or changes it, therefore holds a [`NonblockGuard`]: one a process, and a record lock among processes.
//! Nobody waits for a turn: who does not get one goes back to poll. A turn that its holder's death left behind is free:
//! the kernel gives up record locks, and a process id tells a turn that fork(2) copied from one of this process.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uringlet_sys::io::{self, O_NONBLOCK, Res};
use uringlet_sys::{Errno, process};

/// The process whose thread has its turn; 0 for none.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// See the module.
#[derive(Debug)]
struct NonblockGuard {
    fd: i32,
}

impl NonblockGuard {
    /// # Errors
    /// `EAGAIN` it is somebody else's.
    fn take(fd: i32) -> Result<Self, Errno> {
        let pid = process::pid();
        let holder = HOLDER.load(Relaxed);
        // Acquire: pairs with the drop of the turn before this one.
        if holder == pid || HOLDER.compare_exchange(holder, pid, Acquire, Relaxed).is_err() {
            return Err(Errno::EAGAIN);
        }
        let guard = Self { fd };
        match io::set_record_lock(fd, true) {
            Err(Errno::EAGAIN | Errno::EACCES) => Err(Errno::EAGAIN),
            // Where sockets cannot be locked, this process' own turn has to do.
            _ => Ok(guard),
        }
    }
}

impl Drop for NonblockGuard {
    fn drop(&mut self) {
        // Unlocking what was not locked does nothing.
        let _ = io::set_record_lock(self.fd, false);
        HOLDER.store(0, Release);
    }
}

/// Makes a call that would sleep on a blocking socket answer `EAGAIN` or `EINPROGRESS` instead.
///
/// There is no flag for that on accept(2) and connect(2), so the open file is non-blocking for the time of the call.
/// Others who call on it in that moment may see `EAGAIN`; whoever sleeps in a call already does not.
pub(super) fn with_nonblock(fd: i32, call: impl Fn() -> Res) -> Res {
    let flags = io::file_flags(fd)?;
    if flags & O_NONBLOCK != 0 {
        return call();
    }
    io::set_file_flags(fd, flags | O_NONBLOCK)?;
    let result = call();
    let _ = io::set_file_flags(fd, flags);
    result
}

/// Makes a call on a listener that would sleep answer `EAGAIN` instead, also when somebody else has his turn at it.
pub(super) fn accept_with_nonblock(fd: i32, accept: impl Fn() -> Res) -> Res {
    let _guard = NonblockGuard::take(fd)?;
    with_nonblock(fd, accept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_by_one_at_a_time_and_survive_a_fork() {
        let fd = io::socket(2, 1, 0).unwrap() as i32;
        let guard = NonblockGuard::take(fd).unwrap();
        assert_eq!(NonblockGuard::take(fd).err(), Some(Errno::EAGAIN));
        assert_eq!(accept_with_nonblock(fd, || Ok(1)), Err(Errno::EAGAIN));
        drop(guard);
        // What a parent's thread held when this process was forked.
        HOLDER.store(process::pid() + 1, Relaxed);
        assert_eq!(accept_with_nonblock(fd, || Ok(1)), Ok(1));
        assert_eq!(HOLDER.load(Relaxed), 0);
        assert_eq!(io::file_flags(fd).unwrap() & io::O_NONBLOCK, 0);
        io::close(fd).unwrap();
    }
}
