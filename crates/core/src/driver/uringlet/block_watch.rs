//! The standby: it notices that the holder of the baton is blocked, which nobody tells us, and takes over.

use super::Attendance;
use uringlet_sys::clock::ticks;
use uringlet_sys::process;

/// Between two looks.
const LOOK_NS: u64 = 200_000;
/// Looks without anything in line before the standby goes.
const QUIET_LOOKS: u32 = 16;

/// Looks after the holder while there is something in line behind what it is at, and a little longer.
pub(super) fn watch(attendance: &Attendance) {
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        process::sleep_ns(LOOK_NS);
        let Some(mut guard) = attendance.lock() else { return };
        if guard.line.is_empty() {
            quiet += 1;
            continue;
        }
        quiet = 0;
        if let Some((baton, blocked)) = guard.line.succeed(ticks()) {
            guard.line.end_watch();
            return attendance.issue(guard, baton, blocked);
        }
    }
    let Some(mut guard) = attendance.lock() else { return };
    guard.line.end_watch();
    super::call(&mut guard);
    super::release_ring_of_worker(guard);
}
