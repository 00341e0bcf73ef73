//! seccomp(2) with a supervisor: a process is asked before the kernel executes certain calls of its
//! descendants. The caller waits meanwhile.

use crate::io;
use crate::linux::ptrace::{SECCOMP_USER_NOTIF_FLAG_CONTINUE, seccomp_data, seccomp_notif, seccomp_notif_resp};
use crate::seccomp::{self, TrapRule};
use core::mem::zeroed;
use syscalls::{Errno, Sysno, syscall};

/// `SECCOMP_IOCTL_NOTIF_RECV`
const RECEIVE: u32 = 0xc050_2100;
/// `SECCOMP_IOCTL_NOTIF_SEND`
const SEND: u32 = 0xc018_2101;
const POLLIN: u32 = 1;

/// Where the kernel asks. Closed on drop: then the calls of which it asks fail with ENOSYS.
#[derive(Debug)]
pub struct CallSupervisor(i32);

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct AskedCall {
    id: u64,
    /// The thread, as the supervisor sees it.
    pub tid: u32,
    /// The call.
    pub nr: i32,
    /// Its arguments.
    pub args: [u64; 6],
}

impl CallSupervisor {
    /// From now on the kernel asks before the calling thread, and what it starts, make a call that
    /// `rules` trap. The thread can gain no privileges any more.
    ///
    /// # Errors
    /// `EBUSY` it has such a supervisor; `EPERM` and others where a filter denies the calls.
    pub fn over_this_thread(rules: &[TrapRule]) -> Result<Self, Errno> {
        seccomp::ask(rules).map(Self)
    }

    /// The next call, without waiting. `None`: there is none, or the one that there was has ended.
    ///
    /// # Errors
    /// `ENOENT` and others: it cannot be asked any more.
    pub fn next(&self) -> Result<Option<AskedCall>, Errno> {
        if io::poll_now(self.0, POLLIN)? & POLLIN == 0 {
            return Ok(None);
        }
        // SAFETY: integers, of which zeros are some.
        let mut asked: seccomp_notif = unsafe { zeroed() };
        // SAFETY: the kernel writes the live structure.
        match unsafe { syscall!(Sysno::ioctl, self.0, RECEIVE, &raw mut asked) } {
            Ok(_) => {
                let seccomp_data { nr, args, .. } = asked.data;
                Ok(Some(AskedCall { id: asked.id, tid: asked.pid, nr, args }))
            }
            // Its thread was killed, or a signal has come.
            Err(Errno::ENOENT | Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Sleeps until there is a call, at most so long.
    pub fn sleep(&self, ms: u32) {
        // SAFETY: `struct pollfd` and `struct timespec` of the kernel's layout, live.
        unsafe {
            let mut file = [u64::from(self.0.cast_unsigned()) | u64::from(POLLIN) << 32];
            let timeout = [u64::from(ms / 1000), u64::from(ms % 1000) * 1_000_000];
            let _ = syscall!(Sysno::ppoll, file.as_mut_ptr(), 1, timeout.as_ptr(), 0, 0);
        }
    }

    /// Lets the kernel execute a call. A thread that was killed meanwhile needs no answer.
    pub fn unlock_call(&self, call: AskedCall) {
        self.answer(seccomp_notif_resp { id: call.id, val: 0, error: 0, flags: SECCOMP_USER_NOTIF_FLAG_CONTINUE });
    }

    /// Answers a call, which is not executed.
    pub fn refuse(&self, call: AskedCall, errno: Errno) {
        self.answer(seccomp_notif_resp { id: call.id, val: 0, error: -errno.into_raw(), flags: 0 });
    }

    fn answer(&self, mut answer: seccomp_notif_resp) {
        // SAFETY: the kernel reads the live structure.
        let _ = unsafe { syscall!(Sysno::ioctl, self.0, SEND, &raw mut answer) };
    }
}

impl Drop for CallSupervisor {
    fn drop(&mut self) {
        let _ = io::close(self.0);
    }
}
