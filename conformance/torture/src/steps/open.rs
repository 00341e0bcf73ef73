//! Opens and lookups by the ring, compared with plain ones by the same thread: by every way that a
//! request can take, and with a change of identity between submission and execution.

use anyhow::ensure;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::Timespec;
use io_uring::{opcode, types};
use std::ffi::CStr;
use std::sync::atomic::AtomicU8;

use crate::actor::{Actor, Whose};
use crate::identity::OpenAnswer;
use crate::numbers::{Fd, pipe};
use crate::ring::RequestId;

/// How an open is executed.
#[derive(Clone, Copy, Debug)]
enum Way {
    Single,
    Async,
    AfterNop,
    AfterTimeout,
    AfterRead,
    AsyncAfterRead,
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
    const ALL: [Self; 7] =
        [Self::Single, Self::Async, Self::AfterNop, Self::AfterTimeout, Self::AfterRead, Self::AsyncAfterRead, Self::Drained];

    fn describe(self) -> &'static str {
        match self {
            Self::Single => "an OPENAT",
            Self::Async => "an OPENAT with ASYNC",
            Self::AfterNop => "an OPENAT behind a NOP",
            Self::AfterTimeout => "an OPENAT behind a TIMEOUT",
            Self::AfterRead => "an OPENAT behind a READ",
            Self::AsyncAfterRead => "an OPENAT with ASYNC behind a READ",
            Self::Drained => "an OPENAT with IO_DRAIN",
        }
    }

    fn rights(self) -> Rights {
        match self {
            // A drained request keeps the credentials of its submission.
            Self::Single | Self::Async | Self::Drained => Rights::AtSubmission,
            Self::AfterNop => Rights::Either,
            Self::AfterTimeout | Self::AfterRead | Self::AsyncAfterRead => Rights::AtExecution,
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
    // A timer may come in the middle of a change.
    let changes = actor.rng.percent(30) && !matches!(way, Way::AfterTimeout);
    let before = actor.expected(&path, flags);
    let gate = Gate::new()?;
    let id = submit(actor, whose, way, &path, flags, &gate)?;
    if changes {
        // Not the directory: the kernel keeps only the credentials of a submission.
        actor.change_user()?;
    }
    gate.open()?;
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

/// What an open waits for: a pipe that the thread writes to when it is ready, or a short time.
struct Gate {
    reader: Fd,
    writer: Fd,
    /// Outlives the step.
    byte: *mut u8,
    delay: Timespec,
}

impl Gate {
    fn new() -> anyhow::Result<Self> {
        static BYTE: AtomicU8 = AtomicU8::new(0);
        let (reader, writer) = pipe()?;
        Ok(Self { reader, writer, byte: BYTE.as_ptr(), delay: Timespec::new().nsec(300_000) })
    }

    fn open(&self) -> anyhow::Result<()> {
        // SAFETY: a live byte.
        let n = unsafe { libc::write(self.writer.number(), c"x".as_ptr().cast(), 1) };
        ensure!(n == 1, "writing to a pipe: {n} ({})", std::io::Error::last_os_error());
        Ok(())
    }

    /// The requests before the open, and the flags of the open.
    fn entries(&self, way: Way) -> (Option<(Entry, &'static str)>, Flags) {
        let read = || opcode::Read::new(types::Fd(self.reader.number()), self.byte, 1).build();
        let timeout = || opcode::Timeout::new(&self.delay).flags(types::TimeoutFlags::ETIME_SUCCESS).build();
        let linked = |entry: Entry, what| Some((entry.flags(Flags::IO_LINK), what));
        match way {
            Way::Single => (None, Flags::empty()),
            Way::Async => (None, Flags::ASYNC),
            Way::AfterNop => (linked(opcode::Nop::new().build(), "a NOP"), Flags::empty()),
            Way::AfterTimeout => (linked(timeout(), "a TIMEOUT"), Flags::empty()),
            Way::AfterRead => (linked(read(), "a READ of a gate"), Flags::empty()),
            Way::AsyncAfterRead => (linked(read(), "a READ of a gate"), Flags::ASYNC),
            Way::Drained => (Some((read(), "a READ of a gate")), Flags::IO_DRAIN),
        }
    }
}

fn submit(actor: &mut Actor, whose: Whose, way: Way, path: &CStr, flags: i32, gate: &Gate) -> anyhow::Result<RequestId> {
    let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).flags(flags).build();
    let (before, sqe_flags) = gate.entries(way);
    actor.with(whose, |ring| {
        if let Some((entry, what)) = before {
            let first = ring.push(entry, what)?;
            ring.ignore(first);
        }
        let id = ring.push(open.flags(sqe_flags), way.describe())?;
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
