//! What changes for all threads: nobody else is in a step meanwhile.

use anyhow::ensure;
use std::fs;
use std::sync::PoisonError;

use crate::actor::Actor;
use crate::identity::{self, CallWay};
use crate::numbers::{Fd, foreign};
use crate::pool::USERS;

pub(crate) fn step(actor: &mut Actor) -> anyhow::Result<()> {
    let world = actor.world;
    let _alone = world.quiet.write().unwrap_or_else(PoisonError::into_inner);
    match actor.rng.below(3) {
        0 if world.is_root => {
            world.count("identities", 1);
            identity::become_user(actor.rng.pick(&USERS), CallWay::Libc)
        }
        1 => thread_limit(actor),
        _ => take_foreign_number(actor),
    }
}

/// No further thread for users who are not root.
fn thread_limit(actor: &mut Actor) -> anyhow::Result<()> {
    let soft = actor.rng.pick(&[1, libc::RLIM_INFINITY]);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live structure.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit);
        limit.rlim_cur = soft.min(limit.rlim_max);
        libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit);
    }
    Ok(())
}

/// Puts a file of the program onto a number that is not the program's: nothing must be written to
/// it, and nothing below the program may break.
fn take_foreign_number(actor: &mut Actor) -> anyhow::Result<()> {
    let from = actor.rng.pick(&[3, 20, 40, 60, 100]);
    let foreign = foreign(from);
    if foreign.is_empty() {
        return Ok(());
    }
    let number = actor.rng.pick(&foreign);
    // SAFETY: a string that ends in NUL.
    let victim = unsafe { libc::open(actor.world.pool.victim.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    let Ok(victim) = Fd::of(victim) else { return Ok(()) };
    if number == victim.number() {
        return Ok(());
    }
    actor.world.count("foreign numbers", 1);
    // SAFETY: a number that this program does not use.
    let taken = Fd::of(unsafe { libc::dup2(victim.number(), number) })?;
    // Whatever wakes somebody up now must not go to the file.
    for _ in 0..4 {
        let whose = actor.any_ring();
        let result = actor.ask(whose, io_uring::opcode::Nop::new().build(), "a NOP")?;
        ensure!(result == 0, "a NOP: {result}");
    }
    drop(taken);
    let size = fs::metadata(actor.world.pool.victim.to_str()?)?.len();
    ensure!(size == 0, "WRONG FILE: {size} bytes in a file that took number {number}");
    Ok(())
}
