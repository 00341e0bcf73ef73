//! The fast path of OPENAT, CLOSE, STATX and UNLINKAT: an op on the stack instead of a request. As
//! in [`fast_path`](super::fast_path), all of it is inlined into the submission loop.

use super::attempt::{Depth, FastPath};
use crate::file::FileKind;
use crate::identity;
use crate::ops::fs::FsOp;
use crate::ops::{Issue, OpFamily, PrepCx, fs, table};
use crate::route::{Route, SqeFacts, Step, route};
use crate::state::UringGuard;
use uringlet_abi::{Opcode, Sqe};
use uringlet_sys::Errno;
use uringlet_sys::clock::ticks;

/// Of an SQE without flags that is not in a chain.
const ALONE: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

// As constants, for `route`.
const OPEN: SqeFacts = SqeFacts::of(table::routing(Opcode::Openat));
const CLOSE: SqeFacts = SqeFacts::of(table::routing(Opcode::Close));
const STATX: SqeFacts = SqeFacts::of(table::routing(Opcode::Statx));
const UNLINK: SqeFacts = SqeFacts::of(table::routing(Opcode::Unlinkat));

/// STATX: one statx.
#[inline(always)]
pub(super) fn statx(guard: &mut UringGuard, sqe: &Sqe, depth: Depth) -> FastPath {
    execute(guard, sqe, (Opcode::Statx, STATX), depth, fs::prep_statx)
}

/// UNLINKAT: one unlinkat.
#[inline(always)]
pub(super) fn unlink(guard: &mut UringGuard, sqe: &Sqe, depth: Depth) -> FastPath {
    execute(guard, sqe, (Opcode::Unlinkat, UNLINK), depth, fs::prep_unlinkat)
}

/// CLOSE of a number.
#[inline(always)]
pub(super) fn close(guard: &mut UringGuard, sqe: &Sqe, depth: Depth) -> FastPath {
    execute(guard, sqe, (Opcode::Close, CLOSE), depth, fs::prep_close)
}

/// OPENAT of what needs no I/O.
#[inline(always)]
pub(super) fn open(guard: &mut UringGuard, sqe: &Sqe) -> FastPath {
    let facts = SqeFacts { is_plain: is_plain(guard, sqe), ..OPEN };
    if route(FileKind::UNKNOWN, guard.res.mode, Step::Sqe(facts)) != Route::FastPath {
        return FastPath::Fallback;
    }
    let Ok(mut op) = fs::prep_openat(sqe, &ALONE) else { return FastPath::Fallback };
    match op.try_open(&mut guard.res) {
        Issue::Complete(outcome) => FastPath::Done(outcome),
        _ => FastPath::WouldBlock,
    }
}

/// Whether an SQE has no option of those that need a request, and the names in it mean what they
/// mean to the thread that submitted it.
#[inline(always)]
fn is_plain(guard: &UringGuard, sqe: &Sqe) -> bool {
    u32::from(sqe.flags) | u32::from(sqe.personality) | u32::from(sqe.ioprio) | sqe.file_index() == 0
        && guard.res.lock_owner.is_submitter()
        && !identity::is_diverged()
}

/// Executes an operation without the lock, while its kind is quick. Its time says whether the next
/// ones may be executed here.
#[inline(always)]
fn execute(
    guard: &mut UringGuard,
    sqe: &Sqe,
    (opcode, facts): (Opcode, SqeFacts),
    depth: Depth,
    prep: fn(&Sqe, &PrepCx) -> Result<FsOp, Errno>,
) -> FastPath {
    let is_paced = depth == Depth::Deep;
    let facts = SqeFacts { is_plain: is_plain(guard, sqe), is_quick: !is_paced || guard.metadata_pace.is_quick(opcode), ..facts };
    if route(FileKind::UNKNOWN, guard.res.mode, Step::Sqe(facts)) != Route::FastPath {
        return FastPath::Fallback;
    }
    let Ok(mut op) = prep(sqe, &ALONE) else { return FastPath::Fallback };
    let start = if is_paced { ticks() } else { 0 };
    let unlocked = guard.unlock();
    let outcome = op.run(-1);
    unlocked.relock();
    if is_paced {
        guard.metadata_pace.note_inline(opcode, ticks().wrapping_sub(start));
    }
    FastPath::Done(outcome)
}
