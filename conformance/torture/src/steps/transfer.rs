//! Transfers of slots of the data files. Each slot has one writer; each byte is known.

use anyhow::{Context, ensure};
use io_uring::squeue::Flags;
use io_uring::{opcode, types};
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::Ordering::SeqCst;

use crate::actor::{Actor, Whose};
use crate::numbers::Fd;
use crate::pool::{DATA_FILES, SLOT_BYTES, SLOT_LEN, SLOT_RESULT, SLOTS, contents};

/// A slot of this thread.
pub(crate) fn any_slot(actor: &mut Actor) -> (usize, usize) {
    let (threads, file) = (actor.world.threads, actor.index_below(DATA_FILES));
    let own = SLOTS / threads;
    (file, actor.index_below(own) * threads + actor.me)
}

pub(crate) fn open_data(actor: &Actor, file: usize) -> anyhow::Result<Fd> {
    let path = actor.world.pool.data(file);
    let file = OpenOptions::new().read(true).write(true).open(&path);
    // A confined thread may not open it.
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    Ok(Fd::of(file.into_raw_fd())?)
}

pub(crate) fn step(actor: &mut Actor) -> anyhow::Result<()> {
    let (file, slot) = any_slot(actor);
    let Ok(fd) = open_data(actor, file) else { return Ok(()) };
    let whose = actor.any_ring();
    if whose == Whose::Own && actor.rng.percent(30) {
        return registered(actor, &fd, file, slot);
    }
    let ledger = &actor.world.ledger.slots[file][slot];
    let version = ledger.settled.load(SeqCst) + 1;
    actor.buffer.copy_from_slice(&contents(file, slot, version));
    ledger.pending.store(version, SeqCst);
    let offset = (slot * SLOT_BYTES) as u64;
    let write = opcode::Write::new(types::Fd(fd.number()), actor.buffer.as_ptr(), SLOT_LEN).offset(offset).build();
    let written = actor.ask(whose, write, "a WRITE")?;
    ensure!(written == SLOT_RESULT, "a write of {SLOT_BYTES} bytes: {written}");
    ledger.settled.store(version, SeqCst);
    read_back(actor, whose, &fd, file, slot)
}

fn read_back(actor: &mut Actor, whose: Whose, fd: &Fd, file: usize, slot: usize) -> anyhow::Result<()> {
    let version = actor.world.ledger.slots[file][slot].settled.load(SeqCst);
    let offset = (slot * SLOT_BYTES) as u64;
    actor.buffer.fill(0xaa);
    let read = opcode::Read::new(types::Fd(fd.number()), actor.buffer.as_mut_ptr(), SLOT_LEN).offset(offset).build();
    let got = actor.ask(whose, read, "a READ")?;
    actor.world.count("transfers", 2);
    ensure!(got == SLOT_RESULT, "a read of {SLOT_BYTES} bytes: {got}");
    ensure!(
        actor.buffer[..] == contents(file, slot, version),
        "WRONG BYTES: data{file}, slot {slot}: a read does not see version {version}"
    );
    Ok(())
}

/// A write by a registered file, while the registration changes under it.
fn registered(actor: &mut Actor, fd: &Fd, file: usize, slot: usize) -> anyhow::Result<()> {
    let victim = OpenOptions::new().write(true).open(actor.world.pool.victim.to_str()?);
    let Ok(victim) = victim else { return Ok(()) };
    let ledger = &actor.world.ledger.slots[file][slot];
    let version = ledger.settled.load(SeqCst) + 1;
    actor.buffer.copy_from_slice(&contents(file, slot, version));
    ledger.pending.store(version, SeqCst);
    actor.own.raw().submitter().register_files(&[fd.number()]).context("registering a file")?;
    // With ASYNC the kernel looks into the slot when a worker begins.
    let is_async = actor.rng.percent(50);
    let flags = if is_async { Flags::ASYNC | Flags::FIXED_FILE } else { Flags::FIXED_FILE };
    let write = opcode::Write::new(types::Fd(0), actor.buffer.as_ptr(), SLOT_LEN).offset((slot * SLOT_BYTES) as u64).build();
    let id = actor.own.push(write.flags(flags), "a WRITE to a registered file")?;
    actor.own.submit()?;
    if !is_async {
        actor.own.raw().submitter().register_files_update(0, &[victim.as_raw_fd()]).context("updating a registered file")?;
    }
    let written = actor.own.wait(id)?;
    actor.own.raw().submitter().unregister_files().context("unregistering files")?;
    ensure!(written == SLOT_RESULT, "a write of {SLOT_BYTES} bytes to a registered file: {written}");
    ledger.settled.store(version, SeqCst);
    read_back(actor, Whose::Own, fd, file, slot)
}
