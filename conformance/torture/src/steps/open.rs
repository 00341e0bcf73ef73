//! Opens and lookups by the ring, compared with plain ones by the same thread: by every way that a
//! request can take, and with a change of identity between submission and execution.

use anyhow::ensure;
use io_uring::squeue::Flags;
use io_uring::types::Timespec;
use io_uring::{opcode, types};
use std::ffi::CString;

use crate::actor::{Actor, Whose};
use crate::identity::OpenAnswer;
use crate::ring::RequestId;

/// How an open is executed.
#[derive(Clone, Copy, Debug)]
enum Way {
    Single,
    Async,
    AfterNop,
    AfterTimeout,
    AsyncAfterTimeout,
    Drained,
}

/// The rights that the kernel would use, if the submitter changes them after the submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    AtSubmission,
    AtExecution,
    /// The kernel executes it during the submission or later.
    Either,
}

impl Way {
    const ALL: [Self; 6] = [Self::Single, Self::Async, Self::AfterNop, Self::AfterTimeout, Self::AsyncAfterTimeout, Self::Drained];

    fn rights(self) -> Rights {
        match self {
            // A drained request keeps the credentials of its submission.
            Self::Single | Self::Async | Self::Drained => Rights::AtSubmission,
            Self::AfterNop => Rights::Either,
            Self::AfterTimeout | Self::AsyncAfterTimeout => Rights::AtExecution,
        }
    }
}

pub(crate) fn step(actor: &mut Actor) -> anyhow::Result<()> {
    if actor.rng.percent(15) {
        return look(actor);
    }
    let path = actor.any_path();
    let flags = actor.rng.pick(&[libc::O_RDONLY, libc::O_RDWR, libc::O_WRONLY]) | libc::O_CLOEXEC;
    let way = actor.rng.pick(&Way::ALL);
    // A ring that several threads use is driven by another thread, which is what a ring of the
    // thread's own cannot show; there the thread itself executes its requests.
    let whose = actor.any_ring();
    let changes = actor.rng.percent(30);
    let before = actor.expected(&path, flags);
    let delay = Timespec::new().nsec(if changes { 3_000_000 } else { 300_000 });
    let id = submit(actor, whose, way, &path, flags, &delay)?;
    if changes {
        // Not the directory: the kernel keeps only the credentials of a submission.
        actor.change_user()?;
    }
    let answer = actor.wait(whose, id)?;
    let got = OpenAnswer::of_result(answer);
    let after = actor.expected(&path, flags);
    // Behind another thread's drained request everything has the rights of its submission.
    let rights = if whose == Whose::Shared && way.rights() == Rights::AtExecution { Rights::Either } else { way.rights() };
    let is_right = match rights {
        Rights::AtSubmission => got == before,
        Rights::AtExecution => got == after,
        Rights::Either => got == before || got == after,
    };
    if matches!(way, Way::Drained) {
        // The kernel looks at the numbers of requests behind a drained one late: of these NOPs.
        for _ in 0..3 {
            actor.ask(whose, opcode::Nop::new().build(), "a NOP")?;
        }
    }
    actor.world.count("opens", 1);
    ensure!(
        is_right,
        "WRONG RIGHTS: open {path:?} with {flags:#x}, {way:?}, on {whose:?} ring: {got:?}, a plain one: {before:?} at submission, {after:?} at execution"
    );
    Ok(())
}

fn submit(actor: &mut Actor, whose: Whose, way: Way, path: &CString, flags: i32, delay: &Timespec) -> anyhow::Result<RequestId> {
    let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).flags(flags).build();
    let timeout = || opcode::Timeout::new(delay).flags(types::TimeoutFlags::ETIME_SUCCESS).build().flags(Flags::IO_LINK);
    actor.with(whose, |ring| {
        let open = match way {
            Way::Single => open,
            Way::Async => open.flags(Flags::ASYNC),
            Way::AfterNop => {
                let first = ring.push(opcode::Nop::new().build().flags(Flags::IO_LINK), "a NOP")?;
                ring.ignore(first);
                open
            }
            Way::AfterTimeout => {
                let first = ring.push(timeout(), "a TIMEOUT")?;
                ring.ignore(first);
                open
            }
            Way::AsyncAfterTimeout => {
                let first = ring.push(timeout(), "a TIMEOUT")?;
                ring.ignore(first);
                open.flags(Flags::ASYNC)
            }
            Way::Drained => {
                let first = ring.push(opcode::Timeout::new(delay).build(), "a TIMEOUT")?;
                ring.ignore(first);
                open.flags(Flags::IO_DRAIN)
            }
        };
        let id = ring.push(open, "an OPENAT")?;
        ring.submit()?;
        Ok(id)
    })
}

/// A STATX whose path needs the right to search, or a file of the thread's own directory.
fn look(actor: &mut Actor) -> anyhow::Result<()> {
    let path = actor.any_path();
    let whose = actor.any_ring();
    let mut answers = [const { std::mem::MaybeUninit::<libc::statx>::zeroed() }; 2];
    let [plain, ours] = &mut answers;
    // SAFETY: a string that ends in NUL, and a structure that statx fills.
    let wanted = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), 0, libc::STATX_INO, plain.as_mut_ptr()) };
    let entry = opcode::Statx::new(types::Fd(libc::AT_FDCWD), path.as_ptr(), ours.as_mut_ptr().cast()).mask(libc::STATX_INO).build();
    let got = actor.ask(whose, entry, "a STATX")?;
    // SAFETY: zeros are values of the structure.
    let [plain, ours] = answers.map(|answer| unsafe { answer.assume_init() });
    actor.world.count("opens", 1);
    ensure!((wanted == 0) == (got == 0) && plain.stx_ino == ours.stx_ino, "WRONG RIGHTS: statx {path:?}: {got}, a plain one: {wanted}");
    Ok(())
}
