//! Children: they leave at once, execute another program, or use a ring of their own.

use anyhow::ensure;
use io_uring::{opcode, types};
use std::ffi::CStr;
use std::io;

use crate::actor::Actor;
use crate::identity::OpenAnswer;
use crate::numbers;
use crate::ring::{AccountedRing, RingFlavor};

const UNEQUAL: i32 = 3;
const NO_RING: i32 = 4;

/// What a child does.
#[derive(Clone, Copy, Debug)]
enum Life {
    Exits,
    Executes,
    OwnRing,
}

pub(crate) fn step(actor: &mut Actor) -> anyhow::Result<()> {
    actor.world.count("children", 1);
    let life = actor.rng.pick(&[Life::Exits, Life::Executes, Life::OwnRing]);
    let path = actor.any_path();
    let expected = actor.expected(&path, libc::O_RDONLY | libc::O_CLOEXEC);
    let child = numbers::fork();
    ensure!(child >= 0, "fork: {}", io::Error::last_os_error());
    if child == 0 {
        let code = match life {
            Life::Exits => 0,
            Life::Executes => execute(),
            Life::OwnRing => use_ring(&path, expected),
        };
        // SAFETY: ends the child without running what is the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    loop {
        // SAFETY: writes one word.
        let got = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if got == child {
            break;
        }
        ensure!(io::Error::last_os_error().kind() == io::ErrorKind::Interrupted, "waiting for a child: {}", io::Error::last_os_error());
    }
    let what = match status >> 8 {
        UNEQUAL => "WRONG RIGHTS: its open by a ring and a plain one differ",
        NO_RING => "it gets no ring",
        _ => "it failed",
    };
    ensure!(status == 0, "a child that {life:?}: status {status:#x}: {what}");
    Ok(())
}

fn execute() -> i32 {
    let program = c"/bin/true";
    let arguments = [program.as_ptr(), std::ptr::null()];
    // SAFETY: strings that end in NUL, and a list that ends in null.
    unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
    // A confined or unprivileged child may not execute it.
    0
}

fn use_ring(path: &CStr, expected: OpenAnswer) -> i32 {
    let Ok(mut ring) = AccountedRing::new(RingFlavor::Plain) else { return NO_RING };
    let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).flags(libc::O_RDONLY | libc::O_CLOEXEC).build();
    let entry = entry.flags(io_uring::squeue::Flags::ASYNC);
    match ring.push(entry, "an OPENAT of a child").and_then(|id| ring.wait(id)) {
        Ok(result) if OpenAnswer::of_result(result) == expected => 0,
        _ => UNEQUAL,
    }
}
