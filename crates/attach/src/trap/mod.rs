//! `--trap`: io_uring calls of code that cannot be rewritten, or that comes later (JIT).
//!
//! A seccomp filter raises SIGSYS for them. The handler makes the thread continue in `trap_entry`,
//! which enters the engine as a rewritten site does: no signal is being handled then, and the
//! engine may wait. A call that is left to the kernel is made from there, which the filter allows.
//!
//! The filter looks at the address of the code (`covered`): a child that cannot be attached
//! inherits it, but has other code there, and gets the kernel's answer. Only calls are trapped that
//! nothing makes between fork and execve, where the handler may be gone or the signal blocked.
//!
//! | module | holds |
//! |---|---|
//! | `covered` | the addresses, and the filters |
//! | `calls` | which calls are trapped |
//! | `on_trap` | the handler |
//! | `state` | flags that other modules ask for |
//!
//! `signals::sigsys` keeps SIGSYS out of masks, and the program's action of it.

mod calls;
mod covered;
mod on_trap;
mod state;

use alloc::vec::Vec;
use core::ops::Range;

use uringlet_sys::seccomp;

pub(crate) use covered::{note_code, note_objects};
pub(crate) use on_trap::on_trap;
pub(crate) use state::{covers_new_code, is_on, is_trap_signal, note_filter, note_start};

use crate::arch::SYSCALL_INSN;
use crate::rewrite::{LeftAlone, LoadedObject, is_static_go};
use crate::{doctor, environ, explain, intercepted, signals, stack};

/// In the constructor. An attached child may have inherited filters: its handler is there before
/// anything can be trapped.
pub(crate) fn start() {
    if environ::is_on("URINGLET_TRAP") {
        state::cover_new_code();
        switch_on();
    }
}

fn switch_on() {
    if state::begin() {
        stack::prepare_reserve();
        signals::take_sigsys();
        intercepted::intercept_for_traps();
    }
}

/// What an object needs whose call sites were examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftSites {
    None,
    /// Some stay as they are that might concern io_uring.
    Some,
    /// All, io_uring calls among them: the system forbids to change the code.
    All,
}

/// More sites are covered together with the code around them: each costs every call of the process
/// some instructions.
const MAX_SINGLE_SITES: usize = 8;

/// The instructions of the sites.
fn instructions(object: &LoadedObject, sites: &[LeftAlone]) -> Vec<Range<u64>> {
    let start = sites.iter().map(|site| object.base.wrapping_add(site.at));
    start.map(|at| at..at + SYSCALL_INSN.len() as u64).collect()
}

/// Traps the calls of an object's sites that could not be rewritten. Without `--trap` only where
/// nothing is lost by it: all sites are left, and the process can gain no privileges anyway. A
/// static program loses what it asks of its own file. `sites` are those left. Whether they are
/// trapped.
pub(crate) fn cover_object(object: &LoadedObject, left: LeftSites, sites: &[LeftAlone]) -> bool {
    let is_wanted = match left {
        LeftSites::None => false,
        LeftSites::Some => covers_new_code(),
        LeftSites::All if object.is_static => covers_new_code(),
        LeftSites::All => covers_new_code() || (state::can_be_on() && !state::is_confined() && seccomp::has_no_new_privs()),
    };
    // Its runtime sets an action of SIGSYS by a site that was left as well: a trap would kill.
    let loses_handler = left == LeftSites::All && is_static_go(object);
    if !is_wanted || loses_handler {
        return false;
    }
    switch_on();
    let is_covered = match left {
        LeftSites::Some if sites.len() <= MAX_SINGLE_SITES => covered::cover(&instructions(object, sites)),
        _ => covered::cover(&object.executable),
    };
    if is_covered {
        explain::trapped_object(&object.name);
        doctor::trapped(&object.name);
    }
    is_covered
}
