//! Makes calls non-blocking that have no flag for it. accept(2) and connect(2) have none, so the
//! open file is made non-blocking for the duration of the call.
//!
//! The flag belongs to all threads and processes that share the file, so two of them that do so at
//! the same time undo each other's change:
//!
//! ```text
//!   thread A                          thread B
//!   poll: a connection                poll: a connection
//!   set O_NONBLOCK                    O_NONBLOCK is set already
//!   accept4: takes it
//!   clear O_NONBLOCK
//!                                     accept4: sleeps, with its ring locked
//! ```
//!
//! Therefore a thread that reads or changes the flag of a listener holds a [`NonblockGuard`]: one
//! per process, and a record lock between processes. No thread waits for the guard: one that does
//! not get it goes back to poll. A guard whose owner died is free: the kernel releases record
//! locks, and the process id tells a guard that fork(2) copied from one of this process.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uringlet_sys::io::{self, O_NONBLOCK, Res};
use uringlet_sys::{Errno, process};

/// The process of which a thread holds the guard; 0 for none.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// See the module.
#[derive(Debug)]
struct NonblockGuard {
    fd: i32,
}

impl NonblockGuard {
    /// # Errors
    /// `EAGAIN` another thread or process holds it.
    fn take(fd: i32) -> Result<Self, Errno> {
        let pid = process::pid();
        let holder = HOLDER.load(Relaxed);
        // Acquire: pairs with the drop of the guard's last holder.
        if holder == pid || HOLDER.compare_exchange(holder, pid, Acquire, Relaxed).is_err() {
            return Err(Errno::EAGAIN);
        }
        let guard = Self { fd };
        match io::set_record_lock(fd, true) {
            Err(Errno::EAGAIN | Errno::EACCES) => Err(Errno::EAGAIN),
            // Where sockets cannot be locked, the guard of this process must do.
            _ => Ok(guard),
        }
    }
}

impl Drop for NonblockGuard {
    fn drop(&mut self) {
        // Unlocking a file that was not locked does nothing.
        let _ = io::set_record_lock(self.fd, false);
        HOLDER.store(0, Release);
    }
}

/// Makes a call that would sleep on a blocking socket return `EAGAIN` or `EINPROGRESS` instead.
/// Other threads that call on the file meanwhile may see `EAGAIN`; a thread that already sleeps in
/// a call does not.
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

/// As [`with_nonblock`], for a listener. Also `EAGAIN` while another thread holds the guard.
pub(super) fn accept_with_nonblock(fd: i32, accept: impl Fn() -> Res) -> Res {
    let _guard = NonblockGuard::take(fd)?;
    with_nonblock(fd, accept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonblock_guard_has_one_holder_and_survives_a_fork() {
        let fd = io::socket(2, 1, 0).unwrap() as i32;
        let guard = NonblockGuard::take(fd).unwrap();
        assert_eq!(NonblockGuard::take(fd).err(), Some(Errno::EAGAIN));
        assert_eq!(accept_with_nonblock(fd, || Ok(1)), Err(Errno::EAGAIN));
        drop(guard);
        // As if a thread of the parent had held the guard at the fork.
        HOLDER.store(process::pid() + 1, Relaxed);
        assert_eq!(accept_with_nonblock(fd, || Ok(1)), Ok(1));
        assert_eq!(HOLDER.load(Relaxed), 0);
        assert_eq!(io::file_flags(fd).unwrap() & io::O_NONBLOCK, 0);
        io::close(fd).unwrap();
    }
}
