//! Running a helper program without the served program noticing: no child that it could wait for,
//! no signal at its end, none of its descriptors.

use crate::linux::general::{__WALL, O_RDWR, SIG_SETMASK, SIGCHLD};
#[cfg(test)]
use crate::process::die;
use crate::process::exit;
use crate::signal::SIGSET_BYTES;
use core::ffi::CStr;
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// close_range(2): sets close-on-exec instead of closing. Not in linux-raw-sys.
const CLOSE_RANGE_CLOEXEC: u32 = 4;
/// Exit status of shells for a program that cannot be run.
const CANNOT_RUN: i32 = 127;

/// Runs a program to its end. Returns its exit status. `argv` and `envp` have at most 7 entries,
/// `None` as the last.
///
/// # Errors
/// Those of fork(2); `ENOEXEC` it cannot be run, or was killed.
pub fn run(program: &CStr, argv: &[Option<&CStr>], envp: &[Option<&CStr>]) -> Result<i32, Errno> {
    let argv = pointers(argv)?;
    let envp = pointers(envp)?;
    match in_copy(|| intermediate(program, &argv, &envp))? {
        CopyEnd::Exit(CANNOT_RUN) | CopyEnd::Signal(_) => Err(Errno::ENOEXEC),
        CopyEnd::Exit(status) => Ok(status),
    }
}

/// How a copy of this process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEnd {
    /// With this exit status.
    Exit(i32),
    /// Killed by this signal.
    Signal(i32),
}

/// Runs `act` in a copy of this process, which has the calling thread alone and ends with the
/// result (its lowest 8 bits) as its exit status. The program's wait(2) does not see it. `act` must
/// not wait for another thread of this process: there is none.
///
/// # Errors
/// Those of fork(2).
pub fn in_copy(act: impl FnOnce() -> i32) -> Result<CopyEnd, Errno> {
    // Without an exit signal only __WALL sees it.
    // SAFETY: a copy of this process that never returns from here.
    let child = unsafe { syscall!(Sysno::clone, 0, 0, 0, 0, 0) }?;
    if child == 0 {
        exit(act());
    }
    wait(child)
}

type Pointers = [*const core::ffi::c_char; 8];

fn pointers(strings: &[Option<&CStr>]) -> Result<Pointers, Errno> {
    let mut all = [core::ptr::null(); 8];
    if strings.len() >= all.len() {
        return Err(Errno::E2BIG);
    }
    for (at, string) in all.iter_mut().zip(strings) {
        *at = string.map_or(core::ptr::null(), CStr::as_ptr);
    }
    Ok(all)
}

/// Runs in the child and makes the program its own child: exec(2) would restore the exit signal.
fn intermediate(program: &CStr, argv: &Pointers, envp: &Pointers) -> i32 {
    // SAFETY: as above.
    match unsafe { syscall!(Sysno::clone, SIGCHLD, 0, 0, 0, 0) } {
        Ok(0) => exec(program, argv, envp),
        Ok(child) => match wait(child) {
            Ok(CopyEnd::Exit(status)) => status,
            _ => CANNOT_RUN,
        },
        Err(_) => CANNOT_RUN,
    }
}

fn exec(program: &CStr, argv: &Pointers, envp: &Pointers) -> ! {
    let no_signals = 0_u64;
    let null = c"/dev/null";
    // SAFETY: live strings and a live mask; the descriptors are this child's own copies.
    unsafe {
        raw_syscall!(Sysno::rt_sigprocmask, SIG_SETMASK, &raw const no_signals, 0, SIGSET_BYTES);
        let fd = raw_syscall!(Sysno::open, null.as_ptr(), O_RDWR, 0);
        for standard in 0..3_usize {
            raw_syscall!(Sysno::dup2, fd, standard);
        }
        raw_syscall!(Sysno::close_range, 3, u32::MAX, CLOSE_RANGE_CLOEXEC);
        raw_syscall!(Sysno::setsid);
        raw_syscall!(Sysno::execve, program.as_ptr(), argv.as_ptr(), envp.as_ptr());
    }
    exit(CANNOT_RUN)
}

fn wait(child: usize) -> Result<CopyEnd, Errno> {
    let mut status = 0_i32;
    loop {
        // SAFETY: the kernel writes 4 bytes to a live word.
        match unsafe { syscall!(Sysno::wait4, child, &raw mut status, __WALL, 0) } {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) if status & 0x7f != 0 => return Ok(CopyEnd::Signal(status & 0x7f)),
            Ok(_) => return Ok(CopyEnd::Exit(status >> 8 & 0xff)),
        }
    }
}

/// Asks the kernel for a ring by a call that it refuses, in a copy of this process, because a
/// filter may kill for it. The errno is `EFAULT` where the call is allowed.
///
/// # Errors
/// Those of fork(2).
pub fn ask_kernel_for_ring() -> Result<CopyEnd, Errno> {
    // SAFETY: the address of the parameters is null, so nothing is made or written.
    in_copy(|| unsafe { syscall!(Sysno::io_uring_setup, 1, 0) }.map_or_else(Errno::into_raw, |_| 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_copy_is_its_status_or_its_signal() {
        assert_eq!(in_copy(|| 7), Ok(CopyEnd::Exit(7)));
        assert!(matches!(in_copy(|| die(b"a copy that dies\n")), Ok(CopyEnd::Signal(6))));
    }

    #[test]
    fn run_returns_the_programs_exit_status() {
        let run = |script: &CStr| run(c"/bin/sh", &[Some(c"sh"), Some(c"-c"), Some(script)], &[Some(c"A=b")]);
        assert_eq!(run(c"exit 7"), Ok(7));
        assert_eq!(run(c"[ $A = b ] && [ -c /proc/self/fd/1 ]"), Ok(0));
        assert_eq!(super::run(c"/nowhere", &[], &[]), Err(Errno::ENOEXEC));
    }
}
