//! Whether processes run.

use std::fs;

/// Whether a process has not ended. A zombie has.
pub(super) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name before the state may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Whether two processes see the same numbers of processes.
pub(super) fn shares_numbers(pid: i32) -> bool {
    let space = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    // If that cannot be seen, the process may not be traced either.
    space("self").zip(space(&pid.to_string())).is_none_or(|(own, other)| own == other)
}
