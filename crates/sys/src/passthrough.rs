//! System calls that the program has asked for and the engine leaves to the kernel.

use crate::linux::general::{STDERR_FILENO, STDOUT_FILENO};
use syscalls::{Sysno, raw};

/// Issues the call as the program asked for it: the result, or `-errno`.
///
/// # Safety
/// The call and its arguments are the program's own.
#[must_use]
pub unsafe fn pass_through(nr: Sysno, args: [usize; 6]) -> isize {
    let [a1, a2, a3, a4, a5, a6] = args;
    // SAFETY: see above.
    unsafe { raw::syscall6(nr as usize, a1, a2, a3, a4, a5, a6) }.cast_signed()
}

/// Writes a line to standard error, at once.
pub fn write_stderr(line: &[u8]) {
    write(STDERR_FILENO, line);
}

/// Writes a line to standard output, at once.
pub fn write_stdout(line: &[u8]) {
    write(STDOUT_FILENO, line);
}

fn write(fd: u32, line: &[u8]) {
    // SAFETY: write reads a live buffer.
    unsafe { raw::syscall3(Sysno::write as usize, fd as usize, line.as_ptr().addr(), line.len()) };
}
