//! The handler of a trapped call.

use uringlet_sys::Sysno;
use uringlet_sys::passthrough::pass_through;

use super::calls::marked;
use super::state::TRAP_DATA;
use crate::arch::{SignalContext, own_span, trap_entry};
use crate::signals::SignalInfo;

/// Whether a SIGSYS is of our filter; then the call is on its way.
pub(crate) fn on_trap(info: SignalInfo, context: SignalContext) -> bool {
    if info.trap_data() != Some(TRAP_DATA) {
        return false;
    }
    if own_span().contains(&(context.program_counter() as u64)) {
        make_own_call(context);
    } else {
        // SAFETY: the kernel has put all registers back as they were at the call, and
        // `trap_entry` makes the call and continues behind it.
        unsafe { context.call_by_way_of(trap_entry as *const () as usize) };
    }
    true
}

/// A filter that this process has inherited covers addresses at which it has this object, by
/// chance: the call is made in a way that the filter allows.
fn make_own_call(context: SignalContext) {
    let (nr, args) = context.call();
    let result = match Sysno::new(nr) {
        // SAFETY: the same call with a mark that the kernel ignores.
        Some(sysno) => unsafe { pass_through(sysno, marked(nr, args)) },
        None => -ENOSYS,
    };
    // SAFETY: the thread continues behind the call, where its result is expected.
    unsafe { context.set_result(result) };
}

const ENOSYS: isize = 38;
