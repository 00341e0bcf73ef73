//! SIGSYS while calls are trapped (`trap`): it must reach our handler at any time, or it kills. So
//! the kernel's action is ours from then on, whatever the program sets, and no handler's mask
//! blocks it. The program is shown what it has set.
//!
//! Differs: the program's handler of SIGSYS runs on the alternate stack if there is one, and may be
//! interrupted by another SIGSYS.

use core::sync::atomic::{AtomicU64, Ordering};

use uringlet_sys::linux::general::{SA_NODEFER, SA_ONSTACK, SIG_UNBLOCK, SIGSYS};
use uringlet_sys::passthrough::pass_through;
use uringlet_sys::signal::{self, KernelSigaction, bit};
use uringlet_sys::thread::noop_interrupt_action;
use uringlet_sys::{Sysno, UserPtr, user};

use super::file_size::default_stand_in;
use super::handlers::{Handler, RESETHAND, RESTORER, SIG_IGN, SIGINFO, SIGNALS, keep, program_handler, replace};
use super::on_signal::our_handler;
use crate::convert::low_u32;

/// Signals whose handler of the program's blocks SIGSYS.
static BLOCKING: AtomicU64 = AtomicU64::new(0);

/// Makes the kernel's action ours, and unblocks the signal on this thread.
pub(crate) fn take_sigsys() {
    if let Ok(action) = signal::action(SIGSYS)
        && action.handler != our_handler()
    {
        replace(SIGSYS, &action, &ours(&action));
    }
    signal::change_mask(SIG_UNBLOCK, bit(SIGSYS));
}

/// The kernel's action where the program wants this one.
fn ours(program: &KernelSigaction) -> KernelSigaction {
    let common = SIGINFO | u64::from(SA_ONSTACK | SA_NODEFER);
    if program.handler <= SIG_IGN {
        let stand_in = default_stand_in(our_handler());
        return KernelSigaction { flags: stand_in.flags | common, ..stand_in };
    }
    let restorer = if program.flags & RESTORER == 0 { noop_interrupt_action().restorer } else { program.restorer };
    let flags = (program.flags | common | RESTORER) & !RESETHAND;
    KernelSigaction { handler: our_handler(), flags, restorer, mask: program.mask & !bit(SIGSYS) }
}

/// What to tell the kernel when the program sets an action.
pub(crate) fn action_for_kernel(signal: u32, program: &KernelSigaction) -> KernelSigaction {
    if signal == SIGSYS { ours(program) } else { KernelSigaction { mask: program.mask & !bit(SIGSYS), ..*program } }
}

/// After the kernel has taken it.
pub(crate) fn note_action(signal: u32, program: &KernelSigaction) {
    if signal == SIGSYS {
        keep(SIGSYS, program);
    }
    if (1..=SIGNALS).contains(&signal) {
        if program.mask & bit(SIGSYS) != 0 {
            BLOCKING.fetch_or(bit(signal), Ordering::AcqRel);
        } else {
            BLOCKING.fetch_and(!bit(signal), Ordering::AcqRel);
        }
    }
}

/// What the program has set, where the kernel's action differs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramAction {
    sigsys: Option<Handler>,
    blocks_sigsys: bool,
}

impl ProgramAction {
    /// That of a signal now.
    pub(crate) fn of(signal: u32) -> Self {
        let sigsys = if signal == SIGSYS { program_handler(SIGSYS) } else { None };
        let blocks_sigsys = (1..=SIGNALS).contains(&signal) && BLOCKING.load(Ordering::Acquire) & bit(signal) != 0;
        Self { sigsys, blocks_sigsys }
    }

    /// Puts it into what the kernel has told.
    pub(crate) fn show(self, action: &mut KernelSigaction) {
        if let Some(handler) = self.sigsys {
            (action.handler, action.flags) = (handler.address, handler.flags);
        }
        if self.blocks_sigsys {
            action.mask |= bit(SIGSYS);
        }
    }
}

/// rt_sigaction(2) without libc, while calls are trapped: its result.
pub(crate) fn set_raw_action(args: [usize; 6]) -> isize {
    let [signal, new, old, size, a5, a6] = args;
    let signal = low_u32(signal);
    let shown = ProgramAction::of(signal);
    // An address that cannot be read is the kernel's to refuse.
    let program = if new == 0 { None } else { user::read::<KernelSigaction>(UserPtr::new(new)).ok() };
    let ours = program.map(|program| action_for_kernel(signal, &program));
    let passed = ours.as_ref().map_or(new, |ours| core::ptr::from_ref(ours).addr());
    // SAFETY: the program's own call; the action in its place is live.
    let result = unsafe { pass_through(Sysno::rt_sigaction, [args[0], passed, old, size, a5, a6]) };
    if result == 0 {
        if let Some(program) = program {
            note_action(signal, &program);
        }
        if old != 0
            && let Ok(mut told) = user::read::<KernelSigaction>(UserPtr::new(old))
        {
            shown.show(&mut told);
            // If the program has unmapped it meanwhile, nobody reads it.
            let _ = user::write(UserPtr::new(old), &told);
        }
    }
    result
}
