//! The steps that a thread takes. Each checks its own result.

mod all_threads;
mod cancel;
mod child;
mod create;
mod open;
mod reuse;
mod transfer;

use crate::actor::Actor;
use anyhow::Context;
use std::sync::PoisonError;

/// Takes random steps until the time is over.
pub(crate) fn play(actor: &mut Actor) -> anyhow::Result<()> {
    while !actor.is_over() {
        step(actor)?;
    }
    actor.own.settle()
}

fn step(actor: &mut Actor) -> anyhow::Result<()> {
    let chance = actor.rng.below(100);
    if chance < 3 {
        return all_threads::step(actor);
    }
    let _quiet = actor.world.quiet.read().unwrap_or_else(PoisonError::into_inner);
    let done = match chance {
        3..=11 => actor.change_identity(),
        12..=41 => open::step(actor),
        42..=49 => create::step(actor),
        50..=74 => transfer::step(actor),
        75..=84 => reuse::step(actor),
        85..=92 => cancel::step(actor),
        93..=95 => child::step(actor),
        _ => actor.new_ring(),
    };
    actor.count_requests();
    done.with_context(|| actor.describe())
}
