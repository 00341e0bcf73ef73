//! The program's futexes, as requests wait on them and wake who does.

#[cfg_attr(loom, path = "model/user_futex.rs")]
mod calls;

use crate::arch;
use crate::sync::AtomicU32;
use crate::user::UserPtr;
use syscalls::Errno;

const FUTEX2_SIZE_U32: u32 = 2;
const FUTEX2_PRIVATE: u32 = 128;

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
    /// `EINVAL` for what is not 32 bits, private or not.
    pub const fn at(addr: u64, flags: u32) -> Result<Self, Errno> {
        if flags & !FUTEX2_PRIVATE != FUTEX2_SIZE_U32 {
            return Err(Errno::EINVAL);
        }
        Ok(Self { addr: UserPtr::at(addr), is_private: flags & FUTEX2_PRIVATE != 0 })
    }

    /// Whether it can be one, by its address alone.
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

    /// What it holds.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn value(self) -> Result<u32, Errno> {
        calls::value(self.addr)
    }

    /// Wakes up to `n` of those that wait with a bit of `mask`; how many. A negative number wakes one, as the kernel has it.
    ///
    /// # Errors
    /// `EINVAL` no mask, not aligned; `EFAULT`.
    pub fn wake(self, n: i32, mask: u32) -> Result<usize, Errno> {
        if n == 0 {
            // futex(2) would wake one.
            self.check()?;
            if !self.is_private {
                self.value()?;
            }
            return if mask == 0 { Err(Errno::EINVAL) } else { Ok(0) };
        }
        calls::wake(self.addr.addr(), self.is_private, n, mask)
    }

    /// Sleeps while it holds `value`, until it is woken with a bit of `mask`.
    ///
    /// # Errors
    /// `EAGAIN` it holds another value; `EINTR`, `EFAULT`.
    pub fn wait(self, value: u32, mask: u32) -> Result<(), Errno> {
        calls::wait(self.waitv(value), mask)
    }

    /// For [`wait_any`]: while it holds `value`.
    #[must_use]
    pub const fn waitv(self, value: u32) -> FutexWaitv {
        FutexWaitv::new(self.addr.addr(), value, self.is_private)
    }
}

/// A word of ours to sleep on, from which a sleeper is moved to a futex of the program's. It always holds 0.
#[derive(Debug, Default)]
pub struct RequeueWord(AtomicU32);

impl RequeueWord {
    /// Sleeps until moved, and woken there with a bit of `mask`. `to` is where it will be moved.
    ///
    /// # Errors
    /// `EINTR`.
    pub fn wait(&self, to: Futex, mask: u32) -> Result<(), Errno> {
        calls::wait(self.waitv(to), mask)
    }

    /// For [`wait_any`]: a sleeper that will be moved to `to`.
    #[must_use]
    pub fn waitv(&self, to: Futex) -> FutexWaitv {
        FutexWaitv::new(self.addr(), 0, to.is_private)
    }

    fn addr(&self) -> usize {
        core::ptr::from_ref(&self.0).addr()
    }

    /// Moves who sleeps here to `to`. `false`: nobody sleeps here (yet).
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL` there is no futex there.
    pub fn requeue_one(&self, to: Futex) -> Result<bool, Errno> {
        calls::requeue_one(self.addr(), to.addr.addr(), to.is_private)
    }
}

/// `struct futex_waitv`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FutexWaitv {
    value: u64,
    addr: u64,
    flags: u32,
    reserved: u32,
}

impl FutexWaitv {
    const fn new(addr: usize, value: u32, is_private: bool) -> Self {
        let private = if is_private { FUTEX2_PRIVATE } else { 0 };
        Self { value: value as u64, addr: addr as u64, flags: FUTEX2_SIZE_U32 | private, reserved: 0 }
    }

    #[cfg(not(loom))]
    const fn is_private(self) -> bool {
        self.flags & FUTEX2_PRIVATE != 0
    }
}

/// futex_waitv(2): sleeps while all hold their value, until one is woken: which (the last of them).
///
/// # Errors
/// `EAGAIN` one holds another value; `EINTR`, `EFAULT`; `ENOSYS` before Linux 5.16.
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
    fn who_sleeps_on_a_pillow_is_woken_where_it_was_moved() {
        for flags in [2, 130] {
            let requeue_words: Arc<[RequeueWord; 3]> = Arc::default();
            let words = [const { AtomicU32::new(5) }; 3];
            let futexes = words.each_ref().map(|word| Futex::at(word.as_ptr() as u64, flags).unwrap());
            let sleeper = std::thread::spawn({
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
            assert_eq!(sleeper.join().unwrap(), (Ok(1), Ok(())));
        }
    }
}
