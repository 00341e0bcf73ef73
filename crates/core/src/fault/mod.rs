//! What is done to requests on purpose (`uringlet run --inject`, `--legal`, `uringlet chaos`).
//!
//! It is decided where an SQE is consumed: the order of submissions is the program's, that of
//! completions depends on time. The request keeps what is done to it, and `submit::fault` does it
//! when the request is issued. A process without a plan pays for nothing: only the slow way of
//! `trace::is_on` comes here.

mod legal;
mod multishot;
mod shorten;

use crate::file::FileKind;
use crate::ops::table;
use crate::ring_resources::RingResources;
use crate::trace;
use alloc::boxed::Box;
use multishot::is_multishot;
use uringlet_abi::{Opcode, Sqe, enter, sqe};
use uringlet_sys::fault_plan::{CALLS, FaultCounts, FaultPlan, FaultRule, FaultTarget};
pub(crate) use uringlet_sys::fault_plan::{Fault, FaultActions};
use uringlet_sys::process;
use uringlet_sys::static_ref::StaticRef;
use uringlet_sys::trace::FaultedCall;

/// The plan of this process, and how far its calls are.
#[derive(Debug)]
struct ProcessFaults {
    plan: FaultPlan,
    calls: FaultCounts,
}

static FAULTS: StaticRef<ProcessFaults> = StaticRef::new();

/// From now on the plan of this text holds. False: the text is none.
pub(crate) fn begin(text: &[u8]) -> bool {
    let Some(plan) = core::str::from_utf8(text).ok().and_then(FaultPlan::from_text) else { return false };
    let calls = plan.counts();
    FAULTS.set(Box::leak(Box::new(ProcessFaults { plan, calls })));
    uringlet_sys::trace::look();
    true
}

/// What is done to the request of this SQE, which is changed accordingly.
#[cold]
pub(crate) fn of_sqe(res: &mut RingResources, entry: &mut Sqe) -> Option<Fault> {
    let ProcessFaults { plan, .. } = FAULTS.get()?;
    let opcode = Opcode::from_u8(entry.opcode)?;
    let counts = res.faults.take().unwrap_or_else(|| Box::new(plan.counts()));
    let meets = |rule: &FaultRule| is_about(res, rule, opcode, entry);
    let legal = |chance| legal::of_request(res, opcode, entry, chance);
    let fault = plan.decide(&counts, res.ring_index, meets, legal);
    res.faults = Some(counts);
    let mut fault = fault?;
    if fault.actions.has(FaultActions::WORKER) {
        entry.flags |= sqe::ASYNC;
    }
    if fault.actions.is_short() && shorten::shorten(res, opcode, entry, fault.actions) {
        fault.actions.flags |= FaultActions::BREAKS_LINK;
    }
    Some(fault)
}

/// Whether a rule is about the request of this SQE: as it says, and it can do there what it says.
fn is_about(res: &RingResources, rule: &FaultRule, opcode: Opcode, entry: &Sqe) -> bool {
    let FaultTarget::Requests(opcodes) = rule.target else { return false };
    opcodes & 1 << opcode as u8 != 0
        && (rule.files.is_empty() || rule.files.contains(&entry.fd))
        && can_do(res, rule.actions, opcode, entry)
        && (rule.path.is_empty() || trace::has_path(res, entry, |path| is_like(&rule.path, path)))
}

fn can_do(res: &RingResources, actions: FaultActions, opcode: Opcode, entry: &Sqe) -> bool {
    (!actions.is_short() || shorten::can_be_short(res, opcode, entry, actions))
        && (actions.shots == 0 || is_multishot(opcode, entry))
        && (!actions.has(FaultActions::HANGUP) || FileKind::of(trace::file_number(res, entry)).is_socket())
        && (!actions.has(FaultActions::WORKER) || table::of(opcode).routing.honours_async)
        && (!actions.has(FaultActions::READY) || (opcode == Opcode::PollAdd && !is_multishot(opcode, entry)))
}

/// Whether a text is as a pattern of a shell says: `*` any text, `?` any byte. Takes at most the
/// product of both lengths: only the last star that was met is tried again.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where the last star was, and how far it has taken the text.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[from] => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                (at, from) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

// Calls -------------------------------------------------------------------------------------------

fn of_call(target: FaultTarget, call: FaultedCall, legal: impl FnOnce(u64) -> FaultActions) -> FaultActions {
    let Some(ProcessFaults { plan, calls }) = FAULTS.get() else { return FaultActions::NONE };
    let Some(fault) = plan.decide(calls, CALLS, |rule| rule.target == target, legal) else { return FaultActions::NONE };
    trace::faulted_call(call, fault);
    if fault.actions.delay_ns > 0 {
        process::sleep_ns(fault.actions.delay_ns);
    }
    fault.actions
}

/// What io_uring_setup(2) returns instead of being executed.
#[cold]
pub(crate) fn of_setup() -> Option<isize> {
    let actions = of_call(FaultTarget::Setup, FaultedCall::Setup, |_| FaultActions::NONE);
    actions.result.map(|result| result as isize)
}

/// The same of io_uring_register(2).
#[cold]
pub(crate) fn of_register() -> Option<isize> {
    let actions = of_call(FaultTarget::Register, FaultedCall::Register, |_| FaultActions::NONE);
    actions.result.map(|result| result as isize)
}

/// The same of io_uring_enter(2), which may be changed instead.
#[cold]
pub(crate) fn of_enter(to_submit: u32, min_complete: &mut u32, flags: u32) -> Option<isize> {
    let waits = flags & enter::GETEVENTS != 0 && *min_complete > 0;
    let actions = of_call(FaultTarget::Enter, FaultedCall::Enter, |chance| legal::of_enter(to_submit, waits, chance));
    if actions.has(FaultActions::NO_WAIT) {
        *min_complete = 0;
    }
    actions.result.map(|result| result as isize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, text, is_so) in [
            ("/data/*", "/data/a/b", true),
            ("*.db", "/x/y.db", true),
            ("/a?c", "/abc", true),
            ("a*b*c", "aXbYbZc", true),
            ("/data/*", "/dat/a", false),
            ("*.db", "/x/y.dbx", false),
            ("a*b", "aXbY", false),
            ("a*b", "aXbYb", true),
            ("*", "", true),
            ("?", "", false),
            ("", "", true),
            ("", "a", false),
            ("a**", "a", true),
        ] {
            assert_eq!(is_like(pattern.as_bytes(), text.as_bytes()), is_so, "{pattern} {text}");
        }
    }

    /// A test of each way to divide the text between the stars would not end.
    #[test]
    fn many_stars_take_no_more_than_a_moment() {
        let text = [b'a'; 4000];
        let mut pattern = b"*a".repeat(40);
        assert!(is_like(&pattern, &text));
        pattern.push(b'b');
        assert!(!is_like(&pattern, &text));
    }
}
