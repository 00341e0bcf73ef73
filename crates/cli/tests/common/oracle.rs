//! Runs a C program on the engine and on the kernel's own ring: the kernel is the oracle.
//!
//! On the engine a real io_uring call kills the program. The kernel's run checks the expectations
//! themselves. It is skipped where the kernel has no ring, or is older than the expectations.

use super::{compile, directory, finish, stderr, stdout, uringlet};
use std::process::{Command, Output};

/// Exit status of the C programs if they get no ring.
pub(crate) const NO_RING: i32 = 77;

/// The release that the expectations were taken from: major and minor number.
const EXPECTED_RELEASE: (u32, u32) = (6, 18);

/// Whether this kernel is at least as new as the expectations.
pub(crate) fn is_kernel_new_enough() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(EXPECTED_RELEASE.0), Some(EXPECTED_RELEASE.1))
}

/// Whether a run on the kernel's ring counts: it does not if the program got no ring.
pub(crate) fn has_ring(output: &Output) -> bool {
    let has_ring = output.status.code() != Some(NO_RING);
    if !has_ring {
        eprintln!("skipped: this kernel gives no io_uring");
    }
    has_ring
}

/// Runs `tests/c/PROGRAM.c` under `uringlet run OPTIONS`; it must succeed.
pub(crate) fn engine_with(options: &[&str], program: &str, arguments: &[&str]) {
    let directory = directory(&format!("{program}-engine{}{}", options.concat(), arguments.concat()));
    let executable = compile("cc", &directory, program, &[&format!("{program}.c")], &[]);
    let mut command = uringlet(&directory);
    command.args(options).arg("--").arg(executable).args(arguments);
    let output = finish(command.env("BLOCK_IO_URING", "1").current_dir(&directory));
    must_succeed(&output, &format!("{options:?} {program} {arguments:?}"));
}

/// Runs the program under `uringlet run` without options.
pub(crate) fn engine(program: &str, arguments: &[&str]) {
    engine_with(&[], program, arguments);
}

/// Runs the program on the kernel's ring.
pub(crate) fn kernel(program: &str, arguments: &[&str]) {
    if !is_kernel_new_enough() {
        eprintln!("skipped: this kernel is older than the expectations");
        return;
    }
    let directory = directory(&format!("{program}-kernel{}", arguments.concat()));
    let executable = compile("cc", &directory, program, &[&format!("{program}.c")], &[]);
    let output = finish(Command::new(executable).args(arguments).current_dir(&directory));
    if has_ring(&output) {
        must_succeed(&output, &format!("{program} {arguments:?} on the kernel's ring"));
    }
}

pub(crate) fn must_succeed(output: &Output, what: &str) {
    println!("{what}:\n{}", stdout(output));
    assert!(output.status.success(), "{what}: {}\n{}{}", output.status, stdout(output), stderr(output));
}

/// A module of two tests, `engine` and `kernel`, for a C program of the module's name.
macro_rules! compare {
    ($($(#[$doc:meta])* $program:ident),+ $(,)?) => {
        $($(#[$doc])*
        mod $program {
            #[test]
            fn engine() {
                $crate::common::oracle::engine(stringify!($program), &[]);
            }

            #[test]
            fn kernel() {
                $crate::common::oracle::kernel(stringify!($program), &[]);
            }
        })+
    };
}
pub(crate) use compare;
