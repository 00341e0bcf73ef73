//! A program that the engine runs, out of sight of the program that it serves: no child to be waited for, no signal at its end, none of its descriptors.

use crate::process::die;
use core::ffi::CStr;
use syscalls::{Errno, Sysno, raw_syscall, syscall};

const WALL: usize = 0x4000_0000;
const SIG_SETMASK: usize = 2;
const CLOSE_RANGE_CLOEXEC: usize = 4;
const SIGCHLD: usize = 17;
const O_RDWR: usize = 2;
/// How a shell says that a program could not be run.
const CANNOT_RUN: i32 = 127;

/// Runs a program to its end: its exit status. `argv` and `envp` end in a null pointer.
///
/// # Errors
/// Those of fork(2); `ENOEXEC` it cannot be run, or was killed.
pub fn run(program: &CStr, argv: &[Option<&CStr>], envp: &[Option<&CStr>]) -> Result<i32, Errno> {
    let argv = pointers(argv)?;
    let envp = pointers(envp)?;
    // A child that announces its end by no signal: wait(2) of the program does not see it, only __WALL does.
    // SAFETY: a copy of this process with this thread alone, which makes system calls and nothing else until it ends.
    let child = unsafe { syscall!(Sysno::clone, 0, 0, 0, 0, 0) }?;
    if child == 0 {
        exit(in_between(program, &argv, &envp));
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

/// In the child: the program is its child, since exec(2) would give a signal back to its own end.
fn in_between(program: &CStr, argv: &Pointers, envp: &Pointers) -> i32 {
    // SAFETY: as above.
    match unsafe { syscall!(Sysno::clone, SIGCHLD, 0, 0, 0, 0) } {
        Ok(0) => become_program(program, argv, envp),
        Ok(child) => wait(child).unwrap_or(CANNOT_RUN),
        Err(_) => CANNOT_RUN,
    }
}

fn become_program(program: &CStr, argv: &Pointers, envp: &Pointers) -> ! {
    let no_signals = 0_u64;
    let null = c"/dev/null";
    // SAFETY: live strings and a live mask; the descriptors are this child's own copies.
    unsafe {
        raw_syscall!(Sysno::rt_sigprocmask, SIG_SETMASK, &raw const no_signals, 0, 8);
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
        match unsafe { syscall!(Sysno::wait4, child, &raw mut status, WALL, 0) } {
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
    die(b"a process that does not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_runs_and_its_status_comes_back() {
        let run = |script: &CStr| run(c"/bin/sh", &[Some(c"sh"), Some(c"-c"), Some(script)], &[Some(c"A=b")]);
        assert_eq!(run(c"exit 7"), Ok(7));
        assert_eq!(run(c"[ $A = b ] && [ -c /proc/self/fd/1 ]"), Ok(0));
        assert_eq!(super::run(c"/nowhere", &[], &[]), Err(Errno::ENOEXEC));
    }
}
