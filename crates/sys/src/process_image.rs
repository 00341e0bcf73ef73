//! What the kernel shows of this process' program: `/proc/self/{stat,cmdline,environ,auxv,comm}`.

use syscalls::{Errno, Sysno, syscall};

use crate::linux::prctl::{PR_SET_MM, PR_SET_MM_MAP, PR_SET_NAME, prctl_mm_map};

/// Addresses of the program's parts, as in `struct prctl_mm_map` (prctl(2), `PR_SET_MM_MAP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramParts {
    /// From the first executable segment to the end of the last one.
    pub code: [u64; 2],
    /// From the last segment's start to the highest end of what came from the file.
    pub data: [u64; 2],
    /// Where the initial stack pointer points.
    pub stack: u64,
    /// The strings of the arguments.
    pub arguments: [u64; 2],
    /// The strings of the environment.
    pub environment: [u64; 2],
}

/// The end of the heap that brk(2) moves.
#[must_use]
pub fn program_break() -> u64 {
    // SAFETY: brk(0) changes nothing.
    unsafe { syscalls::raw_syscall!(Sysno::brk, 0) as u64 }
}

/// Tells the kernel where the program's parts are; `auxiliary` is its auxiliary vector, pairs of
/// words up to `AT_NULL`. Nothing depends on it but what other processes read, debuggers above all.
///
/// # Errors
/// `EINVAL` in a kernel without `CONFIG_CHECKPOINT_RESTORE`; a filter's error.
pub fn describe_program(parts: &ProgramParts, auxiliary: &mut [u64]) -> Result<(), Errno> {
    const NO_FILE: u32 = u32::MAX;
    // Nothing has moved it yet.
    let brk = program_break();
    let map = prctl_mm_map {
        start_code: parts.code[0],
        end_code: parts.code[1],
        start_data: parts.data[0],
        end_data: parts.data[1],
        start_brk: brk,
        brk,
        start_stack: parts.stack,
        arg_start: parts.arguments[0],
        arg_end: parts.arguments[1],
        env_start: parts.environment[0],
        env_end: parts.environment[1],
        auxv: auxiliary.as_mut_ptr(),
        auxv_size: u32::try_from(size_of_val(auxiliary)).map_err(|_| Errno::EINVAL)?,
        exe_fd: NO_FILE,
    };
    // SAFETY: the kernel reads the structure and the vector, which live.
    unsafe { syscall!(Sysno::prctl, PR_SET_MM, PR_SET_MM_MAP, &raw const map, size_of::<prctl_mm_map>(), 0) }.map(drop)
}

/// Gives this thread the first 15 bytes of `name` as its own (`/proc/self/comm`).
pub fn set_name(name: &[u8]) {
    const NAME_BYTES: usize = 16;
    let mut comm = [0_u8; NAME_BYTES];
    let len = name.len().min(NAME_BYTES - 1);
    comm[..len].copy_from_slice(&name[..len]);
    // SAFETY: the kernel reads 16 bytes.
    let _ = unsafe { syscall!(Sysno::prctl, PR_SET_NAME, comm.as_ptr()) };
}

/// exit_group(2).
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: the call does not return.
        let _ = unsafe { syscall!(Sysno::exit_group, status) };
    }
}
