//! Child processes: ended with their parent, and the CPU time that they use.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::ensure;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Has the child killed when its parent ends, however that happens. Survives an execve(2).
pub(crate) fn kill_with_parent(command: &mut Command) {
    let parent = Pid::from_raw(std::process::id().cast_signed());
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // Different if the parent ended before the signal was set.
            if getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
        });
    }
}

/// The CPU clock of another process: all its threads, those that ended too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuClock(libc::clockid_t);

impl CpuClock {
    pub(crate) fn of(child: &Child) -> anyhow::Result<Self> {
        let mut clock = 0;
        // SAFETY: the id is written to a local variable.
        let ret = unsafe { libc::clock_getcpuclockid(child.id().cast_signed(), &raw mut clock) };
        ensure!(ret == 0, "clock_getcpuclockid: {}", io::Error::from_raw_os_error(ret));
        Ok(Self(clock))
    }

    /// `None` once the process has been reaped.
    pub(crate) fn read(self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the time is written to a local variable.
        let ret = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        let (secs, nanos) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
        (ret == 0).then(|| Duration::new(secs, nanos))
    }
}
