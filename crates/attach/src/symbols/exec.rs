//! The functions that execute or spawn a program (`exec`). Those that replace this process are
//! prepared here. Where libc starts a program by itself (`posix_spawn`, `system`, `popen`,
//! `execl`), or another object precedes libc's function, the system call inside libc is hooked
//! first if the call has to be changed.

use core::ffi::{c_char, c_int, c_void};

use uringlet_sys::UserPtr;
use uringlet_sys::exec_file::ExecPath;
use uringlet_sys::linux::general::{AT_EMPTY_PATH, AT_FDCWD};

use super::next::{
    EXECL, EXECLE, EXECLP, EXECV, EXECVE, EXECVEAT, EXECVP, EXECVPE, FEXECVE, NextFunction, POPEN, POSIX_SPAWN, POSIX_SPAWNP, SYSTEM,
};
use crate::arch::variadic_exec;
use crate::convert::{Register, low_u32};
use crate::exec::{self, ExecCall};
use crate::{environ, exec_hook};

const SHELL: *const c_char = c"/bin/sh".as_ptr();

/// A request for the file at `path`.
fn request(path: usize, arguments: usize, environment: usize) -> ExecCall {
    request_at(AT_FDCWD, path, 0, arguments, environment)
}

fn request_at(dir: c_int, path: usize, flags: u32, arguments: usize, environment: usize) -> ExecCall {
    let local = 0_u8;
    let file = ExecPath { dir, path: UserPtr::new(path), flags };
    ExecCall { file, is_searched: false, arguments, environment, stack: (&raw const local).addr() }
}

/// As [`request`], for a file that is looked up in PATH.
fn search(file: usize, arguments: usize, environment: usize) -> ExecCall {
    ExecCall { is_searched: true, ..request(file, arguments, environment) }
}

/// For the functions that replace this process.
fn execute(next: &NextFunction, args: [usize; 6], request: ExecCall) -> c_int {
    if next.is_libcs() {
        exec::execute(request);
    } else {
        hook_if_changed(request);
    }
    next.call_int(args)
}

/// Before libc starts a program by itself.
fn hook_if_changed(request: ExecCall) {
    if exec::is_changed(request) {
        exec_hook::install();
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execve(path: *const c_char, arguments: *const c_void, environment: *const c_void) -> c_int {
    let (path, arguments, environment) = (path.reg(), arguments.reg(), environment.reg());
    execute(&EXECVE, [path, arguments, environment, 0, 0, 0], request(path, arguments, environment))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execv(path: *const c_char, arguments: *const c_void) -> c_int {
    let (path, arguments) = (path.reg(), arguments.reg());
    execute(&EXECV, [path, arguments, 0, 0, 0, 0], request(path, arguments, environ::libc_environ()))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execvp(file: *const c_char, arguments: *const c_void) -> c_int {
    let (file, arguments) = (file.reg(), arguments.reg());
    execute(&EXECVP, [file, arguments, 0, 0, 0, 0], search(file, arguments, environ::libc_environ()))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execvpe(file: *const c_char, arguments: *const c_void, environment: *const c_void) -> c_int {
    let (file, arguments, environment) = (file.reg(), arguments.reg(), environment.reg());
    execute(&EXECVPE, [file, arguments, environment, 0, 0, 0], search(file, arguments, environment))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fexecve(fd: c_int, arguments: *const c_void, environment: *const c_void) -> c_int {
    let (arguments, environment) = (arguments.reg(), environment.reg());
    let of_file = request_at(fd, c"".as_ptr().reg(), AT_EMPTY_PATH, arguments, environment);
    execute(&FEXECVE, [fd.reg(), arguments, environment, 0, 0, 0], of_file)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    arguments: *const c_void,
    environment: *const c_void,
    flags: c_int,
) -> c_int {
    let (path, arguments, environment) = (path.reg(), arguments.reg(), environment.reg());
    let of_file = request_at(dir, path, low_u32(flags.reg()), arguments, environment);
    execute(&EXECVEAT, [dir.reg(), path, arguments, environment, flags.reg(), 0], of_file)
}

macro_rules! spawn_functions {
    ($($name:ident = $next:ident by $request:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(pid: usize, path: usize, actions: usize, attributes: usize, arguments: usize, environment: usize) -> c_int {
            // They may close the descriptor that the object lies behind, after this.
            if actions != 0 && exec::is_behind_descriptor() {
                exec_hook::install();
            } else {
                hook_if_changed($request(path, arguments, environment));
            }
            $next.call_int([pid, path, actions, attributes, arguments, environment])
        })*
    };
}

spawn_functions! {
    posix_spawn = POSIX_SPAWN by request;
    posix_spawnp = POSIX_SPAWNP by search;
}

/// Before the shell is started with libc's own environment.
fn before_shell() {
    hook_if_changed(request(SHELL.reg(), 0, environ::libc_environ()));
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    before_shell();
    SYSTEM.call_int([command.reg(), 0, 0, 0, 0, 0])
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    before_shell();
    POPEN.call([command.reg(), mode.reg(), 0, 0, 0, 0]) as *mut c_void
}

// Variadic in C: the arguments stay where they are, and libc's function is jumped to.

extern "C" fn before_execl(path: usize) -> usize {
    hook_if_changed(request(path, 0, environ::libc_environ()));
    EXECL.address()
}

extern "C" fn before_execlp(file: usize) -> usize {
    hook_if_changed(search(file, 0, environ::libc_environ()));
    EXECLP.address()
}

/// Its environment is its last argument.
extern "C" fn before_execle() -> usize {
    exec_hook::install();
    EXECLE.address()
}

variadic_exec! {
    execl => before_execl;
    execlp => before_execlp;
    execle => before_execle;
}
