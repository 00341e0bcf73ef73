//! Cancels: each cancelled request has one CQE, and the cancel counts them.

use anyhow::ensure;
use io_uring::{opcode, types};

use crate::actor::{Actor, Whose};
use crate::numbers::pipe;
use crate::ring::RequestId;

const READS_MAX: usize = 6;

pub(crate) fn step(actor: &mut Actor) -> anyhow::Result<()> {
    actor.world.count("cancels", 1);
    // Nothing else may be in flight: a cancel of everything would find it.
    actor.own.settle()?;
    let (reader, writer) = pipe()?;
    let mut buffers = [[0_u8; 8]; READS_MAX];
    let n = 1 + actor.index_below(READS_MAX);
    let mut reads = Vec::new();
    for buffer in buffers.iter_mut().take(n) {
        let read = opcode::Read::new(types::Fd(reader.number()), buffer.as_mut_ptr(), 8).build();
        reads.push(actor.own.push(read, "a READ of an empty pipe")?);
    }
    actor.own.submit()?;
    let cancelled = match actor.rng.below(3) {
        0 => one_by_one(actor, &reads)?,
        1 => all_at_once(actor, types::CancelBuilder::fd(types::Fd(reader.number())).all())?,
        _ => all_at_once(actor, types::CancelBuilder::any())?,
    };
    ensure!(cancelled == n, "cancelled {cancelled} of {n} reads");
    for &read in &reads {
        let result = actor.wait(Whose::Own, read)?;
        ensure!(matches!(-result, libc::ECANCELED | libc::EINTR), "a cancelled read: {result}");
    }
    drop(writer);
    Ok(())
}

fn one_by_one(actor: &mut Actor, reads: &[RequestId]) -> anyhow::Result<usize> {
    let mut cancelled = 0;
    for read in reads {
        let cancel = opcode::AsyncCancel::new(read.user_data()).build();
        cancelled += usize::from(actor.ask(Whose::Own, cancel, "an ASYNC_CANCEL")? == 0);
    }
    Ok(cancelled)
}

fn all_at_once(actor: &mut Actor, what: types::CancelBuilder) -> anyhow::Result<usize> {
    let id = actor.own.push(opcode::AsyncCancel2::new(what).build(), "an ASYNC_CANCEL")?;
    let cancelled = actor.wait(Whose::Own, id)?;
    Ok(usize::try_from(cancelled)?)
}
