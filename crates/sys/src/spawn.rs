//! Running a helper program without the served program noticing: no child that it could wait for,
//! no signal at its end, none of its descriptors.

use crate::linux::general::{__WALL, O_RDWR, SIG_SETMASK, SIGCHLD};
use crate::process::die;
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
    // A child without an exit signal: the program's wait(2) does not see it, only __WALL does.
    // SAFETY: a copy of this process with this thread alone, which makes system calls and nothing
    // else until it ends.
    let child = unsafe { syscall!(Sysno::clone, 0, 0, 0, 0, 0) }?;
    if child == 0 {
        exit(intermediate(program, &argv, &envp));
    }
    match wait(child)? {
        CANNOT_RUN => Err(Errno::ENOEXEC),
        status => Ok(status),
    }
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
        Ok(child) => wait(child).unwrap_or(CANNOT_RUN),
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

fn wait(child: usize) -> Result<i32, Errno> {
    let mut status = 0_i32;
    loop {
        // SAFETY: the kernel writes 4 bytes to a live word.
        match unsafe { syscall!(Sysno::wait4, child, &raw mut status, __WALL, 0) } {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) if status & 0x7f != 0 => return Err(Errno::EIO),
            Ok(_) => return Ok(status >> 8 & 0xff),
        }
    }
}

fn exit(status: i32) -> ! {
    // SAFETY: this child is a process of its own.
    unsafe { raw_syscall!(Sysno::exit_group, status) };
    die(b"uringlet: a process that does not end\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_returns_the_programs_exit_status() {
        let run = |script: &CStr| run(c"/bin/sh", &[Some(c"sh"), Some(c"-c"), Some(script)], &[Some(c"A=b")]);
        assert_eq!(run(c"exit 7"), Ok(7));
        assert_eq!(run(c"[ $A = b ] && [ -c /proc/self/fd/1 ]"), Ok(0));
        assert_eq!(super::run(c"/nowhere", &[], &[]), Err(Errno::ENOEXEC));
    }
}
