//! The program's futexes: requests wait on them and wake their waiters.

#[cfg_attr(loom, path = "model/user_futex.rs")]
mod calls;
mod waitv;

use crate::arch;
use crate::linux::general::{FUTEX2_PRIVATE, FUTEX2_SIZE_U32};
use crate::sync::AtomicU32;
use crate::user::UserPtr;
use core::sync::atomic::Ordering::Relaxed;
use syscalls::Errno;
pub use waitv::FutexWaitv;

/// A futex of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Futex {
    addr: UserPtr,
    is_private: bool,
}

impl Futex {
    /// The futex at an address; `flags` are `FUTEX2_*`.
    ///
    /// # Errors
    /// `EINVAL` for other flags than those of a 32-bit futex, private or not.
    pub const fn at(addr: u64, flags: u32) -> Result<Self, Errno> {
        if flags & !FUTEX2_PRIVATE != FUTEX2_SIZE_U32 {
            return Err(Errno::EINVAL);
        }
        Ok(Self { addr: UserPtr::at(addr), is_private: flags & FUTEX2_PRIVATE != 0 })
    }

    /// Checks the address alone.
    ///
    /// # Errors
    /// `EINVAL` not aligned, `EFAULT` in the kernel's half.
    pub const fn check(self) -> Result<(), Errno> {
        match self.addr.addr() {
            addr if addr % 4 != 0 => Err(Errno::EINVAL),
            addr if addr >> arch::USER_ADDRESS_BITS != 0 => Err(Errno::EFAULT),
            _ => Ok(()),
        }
    }

    /// Checks that a wait could begin, whatever the value.
    ///
    /// # Errors
    /// `EINVAL` not aligned; `EFAULT` nothing there, or a page of the process that nobody may
    /// write.
    pub fn look_up(self) -> Result<(), Errno> {
        calls::look_up(self.addr.addr(), self.is_private)
    }

    /// Its value.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn value(self) -> Result<u32, Errno> {
        calls::value(self.addr)
    }

    /// Unblocks up to `n` waiters that share a bit with `mask`. Returns how many. A negative `n`
    /// wakes one, as in the kernel.
    ///
    /// # Errors
    /// `EINVAL` no mask, not aligned; `EFAULT`.
    pub fn wake(self, n: i32, mask: u32) -> Result<usize, Errno> {
        // Before the address is looked at, as in the kernel.
        if mask == 0 {
            return Err(Errno::EINVAL);
        }
        if n == 0 {
            // FUTEX_WAKE would wake one.
            return self.look_up().map(|()| 0);
        }
        calls::wake(self.addr.addr(), self.is_private, n, mask)
    }

    /// Sleeps while the futex holds `value`, until a wake that shares a bit with `mask`.
    ///
    /// # Errors
    /// `EAGAIN` the futex holds another value; `EINTR`, `EFAULT`.
    pub fn wait(self, value: u32, mask: u32) -> Result<(), Errno> {
        calls::wait(self.waitv(value), mask)
    }

    /// For [`wait_any`]: a wait while the futex holds `value`.
    #[must_use]
    pub const fn waitv(self, value: u32) -> FutexWaitv {
        FutexWaitv::new(self.addr.addr(), value, self.is_private)
    }
}

/// A private futex of the engine, from which a waiter is requeued to a futex of the program's
/// (FUTEX_CMP_REQUEUE). Its value is 0 until it is closed.
#[derive(Debug, Default)]
pub struct RequeueWord(AtomicU32);

impl RequeueWord {
    /// Sleeps until requeued to `to`, and woken there by a wake that shares a bit with `mask`.
    ///
    /// # Errors
    /// `EINTR`; `EAGAIN` it is closed.
    pub fn wait(&self, to: Futex, mask: u32) -> Result<(), Errno> {
        calls::wait(self.waitv(to), mask)
    }

    /// For [`wait_any`]: a waiter that will be requeued to `to`.
    #[must_use]
    pub fn waitv(&self, to: Futex) -> FutexWaitv {
        FutexWaitv::new(self.addr(), OPEN, to.is_private)
    }

    /// No wait begins here from now on, nor begins again.
    pub fn close(&self) {
        // The kernel's lock of the futex orders it: a waiter that has read the old value is found
        // by the next requeue.
        self.0.store(CLOSED, Relaxed);
    }

    fn addr(&self) -> usize {
        core::ptr::from_ref(&self.0).addr()
    }

    /// Requeues the waiter to `to`. `false`: there is no waiter (yet). For the thread that closes
    /// it.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL` there is no futex at `to`.
    pub fn requeue_one(&self, to: Futex) -> Result<bool, Errno> {
        calls::requeue_one(self.addr(), self.0.load(Relaxed), to.addr.addr(), to.is_private)
    }
}

/// Values of a requeue word.
const OPEN: u32 = 0;
const CLOSED: u32 = 1;

/// futex_waitv(2): sleeps while all futexes hold their values, until one is woken. Returns its
/// index; the last one's if several are.
///
/// # Errors
/// `EAGAIN` one futex holds another value; `EINTR`, `EFAULT`; `ENOSYS` before Linux 5.16.
pub fn wait_any(waiters: &[FutexWaitv]) -> Result<usize, Errno> {
    calls::wait_any(waiters)
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::Arc;
    use std::vec::Vec;

    #[test]
    fn a_requeued_waiter_is_woken_at_its_new_futex() {
        for flags in [2, 130] {
            let requeue_words: Arc<[RequeueWord; 3]> = Arc::default();
            let words = [const { AtomicU32::new(5) }; 3];
            let futexes = words.each_ref().map(|word| Futex::at(word.as_ptr() as u64, flags).unwrap());
            let waiter = std::thread::spawn({
                let requeue_words = Arc::clone(&requeue_words);
                move || {
                    let waiters: Vec<_> = requeue_words.iter().zip(futexes).map(|(requeue_word, to)| requeue_word.waitv(to)).collect();
                    (wait_any(&waiters), requeue_words[0].wait(futexes[0], 4))
                }
            });
            for (requeue_word, futex) in requeue_words.iter().zip(futexes) {
                while requeue_word.requeue_one(futex) == Ok(false) {
                    std::thread::yield_now();
                }
            }
            assert_eq!(futexes[1].wake(9, 1), Ok(1));
            while requeue_words[0].requeue_one(futexes[0]) == Ok(false) {
                std::thread::yield_now();
            }
            assert_eq!(futexes[0].wake(9, 3), Ok(0));
            assert_eq!(futexes[0].wake(9, 6), Ok(1));
            assert_eq!(waiter.join().unwrap(), (Ok(1), Ok(())));
        }
    }
}
