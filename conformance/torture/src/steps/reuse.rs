//! A request stays on the file that its number meant when it was submitted.

use anyhow::{Context, ensure};
use io_uring::{opcode, types};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::SeqCst;

use crate::actor::{Actor, Whose};
use crate::numbers::{Fd, pipe};
use crate::pool::{SLOT_BYTES, SLOT_LEN, SLOT_RESULT, contents};
use crate::steps::transfer::{any_slot, open_data};

/// How a number comes to mean another file.
#[derive(Clone, Copy, Debug)]
enum Reuse {
    Dup2,
    Dup3Raw,
    CloseAndDup,
    CloseRange,
    /// Closed by libc itself, out of reach of what is interposed.
    Fclose,
}

const ALL: [Reuse; 5] = [Reuse::Dup2, Reuse::Dup3Raw, Reuse::CloseAndDup, Reuse::CloseRange, Reuse::Fclose];

pub(crate) fn step(actor: &mut Actor) -> anyhow::Result<()> {
    actor.world.count("reused numbers", 1);
    if actor.rng.percent(40) { queued_write(actor) } else { armed_read(actor) }
}

/// Makes the number of `old` mean the file of `new`. If another thread is faster, another number
/// is.
fn replace(old: Fd, new: &Fd, how: Reuse) -> anyhow::Result<Fd> {
    let (n, m) = (old.number(), new.number());
    // SAFETY: the number is this thread's own until it is closed.
    let result = unsafe {
        match how {
            Reuse::Dup2 => libc::dup2(m, old.release()),
            Reuse::Dup3Raw => return Ok(Fd::of_syscall(libc::syscall(libc::SYS_dup3, m, old.release(), libc::O_CLOEXEC))?),
            _ => {
                close(old.release(), how)?;
                libc::fcntl(m, libc::F_DUPFD_CLOEXEC, n)
            }
        }
    };
    Fd::of(result).with_context(|| format!("{how:?} of {m} to {n}"))
}

/// # Safety
/// The number is the caller's own.
unsafe fn close(number: RawFd, how: Reuse) -> anyhow::Result<()> {
    // SAFETY: the caller's.
    unsafe {
        match how {
            Reuse::CloseRange => _ = libc::syscall(libc::SYS_close_range, number, number, 0),
            Reuse::Fclose => {
                let stream = libc::fdopen(number, c"r".as_ptr());
                ensure!(!stream.is_null(), "fdopen: {}", std::io::Error::last_os_error());
                libc::fclose(stream);
            }
            _ => _ = libc::close(number),
        }
    }
    Ok(())
}

/// A read waits for a pipe whose number then means another pipe.
fn armed_read(actor: &mut Actor) -> anyhow::Result<()> {
    let ((reader, writer), (other_reader, other_writer)) = (pipe()?, pipe()?);
    let number = reader.duplicate()?;
    let buffer: &'static mut [u8; 8] = Box::leak(Box::new([0; 8]));
    let how = actor.rng.pick(&ALL);
    // Not with ASYNC, nor behind another thread's drained request: then the kernel looks at the
    // number later.
    let read = opcode::Read::new(types::Fd(number.number()), buffer.as_mut_ptr(), 8).build();
    let id = actor.own.push(read, "a READ of a pipe")?;
    actor.own.submit()?;
    let number = replace(number, &other_reader, how)?;
    put(&other_writer, b"another!")?;
    put(&writer, b"the old.")?;
    let got = actor.wait(Whose::Own, id)?;
    ensure!(got == 8 && buffer == b"the old.", "WRONG FILE: after {how:?} a read of a pipe: {got}, {:?}", String::from_utf8_lossy(buffer));
    let mut left = [0_u8; 8];
    // SAFETY: a live buffer.
    let n = unsafe { libc::read(other_reader.number(), left.as_mut_ptr().cast(), 8) };
    ensure!(n == 8 && &left == b"another!", "WRONG FILE: after {how:?} the other pipe holds {n} bytes");
    drop(number);
    // SAFETY: leaked above, and nothing uses it any more.
    drop(unsafe { Box::from_raw(buffer) });
    Ok(())
}

fn put(to: &Fd, bytes: &[u8; 8]) -> anyhow::Result<()> {
    // SAFETY: a live buffer.
    let n = unsafe { libc::write(to.number(), bytes.as_ptr().cast(), 8) };
    ensure!(n == 8, "writing to a pipe: {n}");
    Ok(())
}

/// A write that may still be on its way when its number means the file that nobody writes to.
fn queued_write(actor: &mut Actor) -> anyhow::Result<()> {
    let (file, slot) = any_slot(actor);
    let Ok(fd) = open_data(actor, file) else { return Ok(()) };
    // SAFETY: a string that ends in NUL.
    let Ok(victim) = Fd::of(unsafe { libc::open(actor.world.pool.victim.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }) else { return Ok(()) };
    let ledger = &actor.world.ledger.slots[file][slot];
    let version = ledger.settled.load(SeqCst) + 1;
    actor.buffer.copy_from_slice(&contents(file, slot, version));
    ledger.pending.store(version, SeqCst);
    let write = opcode::Write::new(types::Fd(fd.number()), actor.buffer.as_ptr(), SLOT_LEN).offset((slot * SLOT_BYTES) as u64);
    let id = actor.own.push(write.build(), "a WRITE")?;
    actor.own.submit()?;
    let how = actor.rng.pick(&ALL[..4]);
    let fd = replace(fd, &victim, how)?;
    let written = actor.wait(Whose::Own, id).context("a write whose number was replaced")?;
    ensure!(written == SLOT_RESULT, "a write whose number was replaced: {written}");
    drop(fd);
    ledger.settled.store(version, SeqCst);
    Ok(())
}
