//! A call that starts a program.

use uringlet_sys::exec_file::ExecPath;
use uringlet_sys::{Sysno, UserPtr};

use crate::convert::{low_i32, low_u32};

/// What a program asks execve(2) or execveat(2) for.
#[derive(Clone, Copy)]
pub(crate) struct ExecCall {
    pub(crate) file: ExecPath,
    /// The path is a name that libc looks up in PATH.
    pub(crate) is_searched: bool,
    /// Addresses of the two arrays.
    pub(crate) arguments: usize,
    pub(crate) environment: usize,
    /// Where the program's frames begin.
    pub(crate) stack: usize,
}

impl ExecCall {
    /// The call with this number and these arguments.
    pub(super) fn of(nr: usize, args: [usize; 6], stack: usize) -> Self {
        let [a1, a2, a3, a4, a5, _] = args;
        if nr == Sysno::execveat as usize {
            let file = ExecPath { dir: low_i32(a1), path: UserPtr::new(a2), flags: low_u32(a5) };
            return Self { file, is_searched: false, arguments: a3, environment: a4, stack };
        }
        Self { file: ExecPath::at(UserPtr::new(a1)), is_searched: false, arguments: a2, environment: a3, stack }
    }
}
