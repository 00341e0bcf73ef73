//! The functions that execute or spawn a program: a child whose environment has lost LD_PRELOAD
//! gets it back. Where the caller passes the environment, libc's function gets another one. Where
//! libc takes its own (`system`, `popen`, `execl`), the system call inside libc is hooked first,
//! if that environment has lost the variable (`exec_hook`).

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;

use super::next::{
    EXECL, EXECLE, EXECLP, EXECV, EXECVE, EXECVEAT, EXECVP, EXECVPE, FEXECVE, NextFunction, POPEN, POSIX_SPAWN, POSIX_SPAWNP, SYSTEM,
};
use crate::arch::variadic_exec;
use crate::convert::{Register, int};
use crate::exec_env::{EnvEdit, build_env, edit_env, end_shared_requests};
use crate::{environ, exec_hook};

/// Calls `call` with the environment that a child shall have instead of the one at `given`. It may
/// run in a vfork child, so it lies on the stack and takes no more room than about what it needs.
fn with_child_env(given: usize, call: impl FnOnce(usize) -> isize) -> isize {
    const SMALL: usize = 128;
    const LARGE: usize = 1408;
    let mut edit = EnvEdit::default();
    match edit_env(given, &mut edit).div_ceil(8) {
        0 => call(given),
        1..=SMALL => in_buffer::<SMALL>(given, &edit, call),
        words if words <= LARGE => in_buffer::<LARGE>(given, &edit, call),
        _ => call(given),
    }
}

#[inline(never)]
fn in_buffer<const WORDS: usize>(given: usize, edit: &EnvEdit, call: impl FnOnce(usize) -> isize) -> isize {
    let mut buffer = [MaybeUninit::<usize>::uninit(); WORDS];
    // SAFETY: the buffer is as long as `edit_env` said.
    call(unsafe { build_env(given, edit, buffer.as_mut_ptr().cast()) })
}

/// For the functions that replace this process: argument `at` is the environment.
fn execute(next: &NextFunction, at: usize, mut args: [usize; 6]) -> c_int {
    end_shared_requests();
    int(with_child_env(args[at], |environment| {
        args[at] = environment;
        next.call(args)
    }))
}

/// For those that take libc's environment, with the function that takes one as its third argument.
fn execute_in_environ(next: &NextFunction, with_env: &NextFunction, path: *const c_char, arguments: *const c_void) -> c_int {
    end_shared_requests();
    let given = environ::libc_environ();
    int(with_child_env(given, |environment| {
        if environment == given {
            next.call([path.reg(), arguments.reg(), 0, 0, 0, 0])
        } else {
            with_env.call([path.reg(), arguments.reg(), environment, 0, 0, 0])
        }
    }))
}

/// For those that start another process.
fn spawn(next: &NextFunction, mut args: [usize; 6]) -> c_int {
    int(with_child_env(args[5], |environment| {
        args[5] = environment;
        next.call(args)
    }))
}

/// Before libc starts a program with its own environment.
fn hook_if_needed() {
    if edit_env(environ::libc_environ(), &mut EnvEdit::default()) != 0 {
        exec_hook::install();
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execve(path: *const c_char, arguments: *const c_void, environment: *const c_void) -> c_int {
    execute(&EXECVE, 2, [path.reg(), arguments.reg(), environment.reg(), 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execvpe(file: *const c_char, arguments: *const c_void, environment: *const c_void) -> c_int {
    execute(&EXECVPE, 2, [file.reg(), arguments.reg(), environment.reg(), 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fexecve(fd: c_int, arguments: *const c_void, environment: *const c_void) -> c_int {
    execute(&FEXECVE, 2, [fd.reg(), arguments.reg(), environment.reg(), 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    arguments: *const c_void,
    environment: *const c_void,
    flags: c_int,
) -> c_int {
    execute(&EXECVEAT, 3, [dir.reg(), path.reg(), arguments.reg(), environment.reg(), flags.reg(), 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execv(path: *const c_char, arguments: *const c_void) -> c_int {
    execute_in_environ(&EXECV, &EXECVE, path, arguments)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execvp(file: *const c_char, arguments: *const c_void) -> c_int {
    execute_in_environ(&EXECVP, &EXECVPE, file, arguments)
}

macro_rules! spawn_functions {
    ($($name:ident = $next:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(pid: usize, path: usize, actions: usize, attributes: usize, arguments: usize, environment: usize) -> c_int {
            spawn(&$next, [pid, path, actions, attributes, arguments, environment])
        })*
    };
}

spawn_functions! {
    posix_spawn = POSIX_SPAWN;
    posix_spawnp = POSIX_SPAWNP;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    hook_if_needed();
    SYSTEM.call_int([command.reg(), 0, 0, 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    hook_if_needed();
    POPEN.call([command.reg(), mode.reg(), 0, 0, 0, 0]) as *mut c_void
}

// Variadic in C: the arguments stay where they are, and libc's function is jumped to.

extern "C" fn before_execl() -> usize {
    end_shared_requests();
    hook_if_needed();
    EXECL.address()
}

extern "C" fn before_execlp() -> usize {
    end_shared_requests();
    hook_if_needed();
    EXECLP.address()
}

/// Its environment is its last argument.
extern "C" fn before_execle() -> usize {
    end_shared_requests();
    exec_hook::install();
    EXECLE.address()
}

variadic_exec! {
    execl => before_execl;
    execlp => before_execlp;
    execle => before_execle;
}
