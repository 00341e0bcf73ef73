//! Children are attached as well. Before an execve(2) of the program it is found out what the call
//! would start, as the kernel does:
//!
//! | what | what is done |
//! |---|---|
//! | a program with a dynamic linker | the environment gets LD_PRELOAD back if it has lost it |
//! | a static program | this object is executed instead, and loads it (`static_program`) |
//! | a script | as for its last interpreter, with the arguments that the kernel would give it |
//! | set-uid, set-gid, capabilities; damaged; missing | nothing |
//!
//! If the changed call fails, the program's own is made: the result is always that of the program's
//! call. Where this object is missing (another root), LD_PRELOAD loses it.
//!
//! | module | holds |
//! |---|---|
//! | `call`, `attempt` | the program's call, and the changed one |
//! | `library` | where this object lies |
//! | `target`, `search`, `script` | what would be started |
//! | `environment`, `room`, `decimal` | its strings and arrays |
//! | `task_policy` | the variable of the restrictions and filters that it inherits |
//! | `stack` | where this runs: the caller may have next to no stack, or borrow its parent's memory |
//! | `filter` | whether the program lets itself be killed for our system calls |
//!
//! Roads here: `exec_entry` from rewritten sites and `syscall(2)`, `symbols::exec` from libc's
//! functions, and by a rewritten site in libc where libc starts a program by itself (`exec_hook`).
//!
//! Differs: the process is of this object's security domain (AppArmor, SELinux) while it loads a
//! static program. Record locks of fcntl(2) on an executed file are lost, because the file is read
//! and closed.

mod attempt;
mod call;
mod decimal;
mod environment;
mod filter;
mod library;
mod room;
mod script;
mod search;
mod stack;
mod target;
mod task_policy;

use core::sync::atomic::AtomicU32;

use uringlet_core::ENGINE;

use crate::arch::CallFrame;
use crate::backend;
use crate::entry::{on_engine_stack, on_exec_stack};
use crate::kernel_rings;
use attempt::ExecAttempt;
pub(crate) use call::ExecCall;
pub(crate) use filter::note_filter;
pub(crate) use library::{is_behind_descriptor, keep_descriptor, set_library_path};
pub(crate) use stack::{EXEC_STACK_BYTES, EXEC_STACKS, OwnStack, STACKS, WORDS, free_all};
pub(crate) use task_policy::inherit as inherit_task_policy;

/// Makes a call that starts a program, changed so that the program is attached. Returns if nothing
/// is to be changed, or if the changed call has failed: the program's own call follows.
pub(crate) fn execute(request: ExecCall) {
    if backend::is_kernel() {
        return;
    }
    end_shared_requests();
    if !filter::is_confined() {
        let _ = on_exec_stack(|stack| attempt(request, stack));
    }
}

/// Whether [`execute`] would change the call.
pub(crate) fn is_changed(request: ExecCall) -> bool {
    if backend::is_kernel() {
        return false;
    }
    end_shared_requests();
    let is_change = |stack: OwnStack| ExecAttempt::new(request, stack.room).is_some_and(|attempt| attempt.is_change());
    !filter::is_confined() && on_exec_stack(is_change) == Some(true)
}

fn attempt(request: ExecCall, stack: OwnStack) {
    if let Some(attempt) = ExecAttempt::new(request, stack.room) {
        attempt.execute(&stack.lender);
    }
}

/// The system calls at rewritten sites and in `syscall(2)`. `word` is that of the stack that this
/// runs on.
pub(crate) unsafe extern "C" fn execute_at_site(call: &CallFrame, word: &'static AtomicU32) {
    // SAFETY: `arch` has taken the stack for this call.
    let stack = unsafe { OwnStack::of(word) };
    end_shared_requests();
    if !filter::is_confined() {
        attempt(ExecCall::of(call.nr, call.args(), core::ptr::from_ref(call).addr()), stack);
    }
}

/// Ends the requests of this process on rings that other processes use, too, and looks for the last
/// time at rings of the kernel's. A vfork child shares none, so nothing is touched there.
pub(crate) fn end_shared_requests() {
    if ENGINE.shares_rings() {
        on_engine_stack(|| ENGINE.before_exec());
    }
    kernel_rings::look();
}

/// The same in exit(3): what needs this process no more goes on.
pub(crate) fn end_at_exit() {
    if ENGINE.shares_rings() {
        on_engine_stack(|| ENGINE.before_exit());
    }
}
